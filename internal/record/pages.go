package record

// pageSize is how many sequence numbers a page covers.
const pageSize = 4096

// words are the bits of one page.
type words [pageSize / 64]uint64

// full is the contents of every full page; it is shared, and never written.
var full = func() (w words) {
	for i := range w {
		w[i] = ^uint64(0)
	}
	return w
}()

// Page is the whole contents of one page of a set: numbers Number·4096 and on. It is read-only.
type Page struct {
	Number uint64
	words  *words
}

// SetPages are pages of one set. Applying them is a union: any number of times, in any order.
type SetPages struct {
	Key   SetKey
	Pages []Page // in ascending order of their numbers
}
