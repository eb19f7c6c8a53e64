package record

// SetKey says what a set of sequence numbers is about. Subscription matters for SetReceived only.
type SetKey struct {
	Kind         SetKind `json:"kind"`
	Subscription int     `json:"subscription,omitempty"`
	Publisher    int     `json:"publisher"`
}

// maxDirect is how many pages a Set may reach without a look-up: those of the first 4·10⁹ messages.
const maxDirect = 1 << 20

// Set is an exact set of sequence numbers, made by Recorder.Set and belonging to the same goroutine as its Recorder. It
// takes one bit a number where numbers are dense, and next to nothing for full pages once they were handed over.
type Set struct {
	direct []*page // by number; only pages that are dirty, so that a page met again after a hand-over is marked again
	pages  map[uint64]*page
	dirty  []*page
	free   []*page
	key    SetKey
	owner  *Recorder
}

// page is one page of a Set that is not known to be full.
type page struct {
	number uint64
	dirty  bool
	words  words
}

// fullPage stands for every page that is full.
var fullPage = new(page)

// Add adds a sequence number and reports whether it is new. In order it takes a few nanoseconds and allocates once for
// thousands. Numbers of 2⁴⁰ and more, which no task comes to, are not kept, and not new.
func (s *Set) Add(sequence uint64) bool {
	var p *page
	if number := sequence / pageSize; number < uint64(len(s.direct)) {
		p = s.direct[number]
	}
	if p == nil {
		if p = s.reach(sequence / pageSize); p == fullPage {
			return false
		}
	}
	w, bit := &p.words[sequence/64%wordsInPage], uint64(1)<<(sequence%64)
	if *w&bit != 0 {
		return false
	}
	*w |= bit
	return true
}

// Contains reports whether a sequence number was added.
func (s *Set) Contains(sequence uint64) bool {
	p := s.pages[sequence/pageSize]
	return p == fullPage || p != nil && p.words[sequence/64%wordsInPage]>>(sequence%64)&1 != 0
}

// Count is how many numbers the set holds; it goes through all pages.
func (s *Set) Count() (n uint64) {
	for _, p := range s.pages {
		if p == fullPage {
			n += pageSize
		} else {
			n += p.words.count()
		}
	}
	return n
}

// reach finds or makes a page that is about to change; fullPage is one that cannot.
func (s *Set) reach(number uint64) *page {
	p := s.pages[number]
	if p == fullPage || number >= maxPage {
		return fullPage
	}
	if p == nil {
		p = s.newPage()
		p.number = number
		s.pages[number] = p
	}
	if !p.dirty {
		if len(s.dirty) == 0 {
			s.owner.dirty = append(s.owner.dirty, s)
		}
		p.dirty = true
		s.dirty = append(s.dirty, p)
	}
	if number < maxDirect {
		for uint64(len(s.direct)) <= number {
			s.direct = append(s.direct, nil)
		}
		s.direct[number] = p
	}
	return p
}

func (s *Set) newPage() *page {
	if n := len(s.free); n > 0 {
		p := s.free[n-1]
		s.free = s.free[:n-1]
		return p
	}
	return new(page)
}

func newSet(owner *Recorder, key SetKey) *Set {
	return &Set{key: key, owner: owner, pages: map[uint64]*page{}}
}

// handOver returns the contents of the pages that changed since the last time, and lets go of those that are full.
func (s *Set) handOver() SetPages {
	changed := SetPages{Key: s.key, Pages: make([]Page, 0, len(s.dirty))}
	partial := s.dirty[:0]
	for _, p := range s.dirty {
		p.dirty = false
		if p.number < maxDirect {
			s.direct[p.number] = nil
		}
		if p.words != full {
			partial = append(partial, p)
			continue
		}
		changed.Pages = append(changed.Pages, Page{p.number, &full})
		s.pages[p.number] = fullPage
		p.words = none
		s.free = append(s.free, p)
	}
	copies := make([]words, len(partial))
	for i, p := range partial {
		copies[i] = p.words
		changed.Pages = append(changed.Pages, Page{p.number, &copies[i]})
	}
	s.dirty = s.dirty[:0]
	return changed
}
