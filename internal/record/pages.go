package record

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
)

// pageSize is the number of sequence numbers in a page. maxPage is the maximum number of pages of a set: 2⁴⁰ messages
// of one publisher.
const (
	pageSize    = 4096
	pageBytes   = pageSize / 8
	wordsInPage = pageSize / 64
	maxPage     = 1 << 28
	maxIndex    = 1 << 20 // of publishers, and of subscriptions
)

// words are the bits of one page.
type words [wordsInPage]uint64

// none and full are shared and must not be modified.
var (
	none words
	full = func() (w words) {
		for i := range w {
			w[i] = ^uint64(0)
		}
		return w
	}()
)

func (w *words) add(o *words) {
	for i := range w {
		w[i] |= o[i]
	}
}

func (w *words) count() (n uint64) {
	if w == &full {
		return pageSize
	}
	for _, x := range w {
		n += uint64(bits.OnesCount64(x))
	}
	return n
}

// Page is the complete content of one page of a set: sequence numbers from Number·4096. It is read-only.
type Page struct {
	Number uint64
	words  *words
}

// SetPages are pages of one set. Merging them is a union: repeatable, in any order.
type SetPages struct {
	Key   SetKey
	Pages []Page // in ascending order of Number
}

// mergePages unites pages from several owners, or repeated ones. The result takes ownership of the words.
func mergePages(handed []SetPages) []SetPages {
	byKey := map[SetKey]map[uint64]*words{}
	for _, s := range handed {
		pages := byKey[s.Key]
		if pages == nil {
			pages = map[uint64]*words{}
			byKey[s.Key] = pages
		}
		for _, p := range s.Pages {
			if had := pages[p.Number]; had == nil || p.words == &full {
				pages[p.Number] = p.words
			} else if had != &full {
				had.add(p.words)
			}
		}
	}
	var merged []SetPages
	for k, pages := range byKey {
		s := SetPages{Key: k, Pages: make([]Page, 0, len(pages))}
		for number, w := range pages {
			s.Pages = append(s.Pages, Page{number, w})
		}
		slices.SortFunc(s.Pages, func(a, b Page) int { return cmp.Compare(a.Number, b.Number) })
		merged = append(merged, s)
	}
	slices.SortFunc(merged, func(a, b SetPages) int {
		return cmp.Or(cmp.Compare(a.Key.Kind, b.Key.Kind), cmp.Compare(a.Key.Subscription, b.Key.Subscription),
			cmp.Compare(a.Key.Publisher, b.Key.Publisher))
	})
	return merged
}

type setPagesJSON struct {
	SetKey
	Pages []byte `json:"pages"`
}

// MarshalJSON encodes the fields of the key, and all pages as one base64 string.
func (s SetPages) MarshalJSON() ([]byte, error) {
	j := setPagesJSON{SetKey: s.Key, Pages: []byte{}}
	next := uint64(0)
	for _, p := range s.Pages {
		if p.words == nil || *p.words == none || p.Number < next || p.Number >= maxPage {
			return nil, fmt.Errorf("encode set %v: page %d is empty, out of order or out of range", s.Key, p.Number)
		}
		j.Pages = binary.AppendUvarint(j.Pages, p.Number-next)
		j.Pages = p.words.append(j.Pages)
		next = p.Number + 1
	}
	return json.Marshal(j)
}

// read takes over decoded pages. They are only decoded with their Snapshot, which bounds the memory for them.
func (s *SetPages) read(j setPagesJSON, left *budget) error {
	k := j.SetKey
	if k.Publisher < 0 || k.Publisher >= maxIndex || k.Subscription < 0 || k.Subscription >= maxIndex {
		return fmt.Errorf("read set: publisher %d or subscription %d is out of range", k.Publisher, k.Subscription)
	}
	*s = SetPages{Key: k}
	next := uint64(0)
	for rest := j.Pages; len(rest) > 0; {
		skip, n := binary.Uvarint(rest)
		if n <= 0 || skip >= maxPage-next {
			return fmt.Errorf("read set %v: bad page number after %d; the record is damaged", k, next)
		}
		w, after, err := decodeWords(rest[n:])
		if err == nil && w != &full {
			err = left.page()
		}
		if err != nil {
			return fmt.Errorf("read set %v page %d: %w; the record is damaged", k, next+skip, err)
		}
		s.Pages = append(s.Pages, Page{next + skip, w})
		next, rest = next+skip+1, after
	}
	return nil
}

// A page begins with its form: full, raw bytes, or n+formRuns for n runs. A run is the gap before it, and its length
// minus one.
const (
	formFull = iota
	formRaw
	formRuns
)

// append encodes the words in the shorter of the forms.
func (w *words) append(data []byte) []byte {
	if *w == full {
		return append(data, formFull)
	}
	var buffer [pageBytes + 2*binary.MaxVarintLen16]byte
	runs, count, end := buffer[:0], uint64(0), 0
	for len(runs) < pageBytes {
		at := w.next(end, true)
		if at == pageSize {
			return append(binary.AppendUvarint(data, count+formRuns), runs...)
		}
		gap := at - end
		end = w.next(at, false)
		runs = binary.AppendUvarint(runs, uint64(gap))
		runs = binary.AppendUvarint(runs, uint64(end-at-1))
		count++
	}
	data = append(data, formRaw)
	for _, x := range w {
		data = binary.LittleEndian.AppendUint64(data, x)
	}
	return data
}

// next returns the first position from at whose bit is set (or clear), or pageSize.
func (w *words) next(at int, set bool) int {
	for at < pageSize {
		x := w[at/64]
		if !set {
			x = ^x
		}
		if x >>= at % 64; x != 0 {
			return at + bits.TrailingZeros64(x)
		}
		at = (at/64 + 1) * 64
	}
	return pageSize
}

func decodeWords(data []byte) (*words, []byte, error) {
	form, n := binary.Uvarint(data)
	if n <= 0 {
		return nil, nil, io.ErrUnexpectedEOF
	}
	data = data[n:]
	switch form {
	case formFull:
		return &full, data, nil
	case formRaw:
		if len(data) < pageBytes {
			return nil, nil, io.ErrUnexpectedEOF
		}
		w := new(words)
		for i := range w {
			w[i] = binary.LittleEndian.Uint64(data[8*i:])
		}
		return w, data[pageBytes:], nil
	}
	if form == formRuns {
		return nil, nil, errors.New("an empty page")
	}
	return decodeRuns(form-formRuns, data)
}

func decodeRuns(count uint64, data []byte) (*words, []byte, error) {
	w, at := new(words), uint64(0)
	for range count {
		gap, n := binary.Uvarint(data)
		if n <= 0 {
			return nil, nil, io.ErrUnexpectedEOF
		}
		more, m := binary.Uvarint(data[n:])
		if m <= 0 {
			return nil, nil, io.ErrUnexpectedEOF
		}
		data = data[n+m:]
		if gap >= pageSize || more >= pageSize || at+gap+more >= pageSize {
			return nil, nil, errors.New("a run leaves the page")
		}
		for at += gap; ; at++ {
			w[at/64] |= 1 << (at % 64)
			if more == 0 {
				break
			}
			more--
		}
		at++
	}
	return w, data, nil
}

// exceeds reports whether w has a bit that o does not have.
func (w *words) exceeds(o *words) bool {
	for i, x := range w {
		if x&^o[i] != 0 {
			return true
		}
	}
	return false
}
