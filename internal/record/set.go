package record

// SetKey identifies a set of sequence numbers. Subscription is used by SetReceived and SetDropped.
type SetKey struct {
	Kind         SetKind `json:"kind"`
	Subscription int     `json:"subscription,omitempty"`
	Publisher    int     `json:"publisher"`
}

// maxDirect is the number of pages that a Set accesses without a map: those of the first 4·10⁹ messages.
const maxDirect = 1 << 20

// Set is an exact set of sequence numbers, created by Recorder.Set and owned by the goroutine of its Recorder. It takes
// one bit per number if numbers are dense. Full pages take almost no memory after they were passed to the collector.
type Set struct {
	direct []*page // by number; only dirty pages, so that the next Add after a hand-over marks the page again
	pages  map[uint64]*page
	dirty  []*page
	free   []*page
	key    SetKey
	owner  *Recorder
}

// page is one page of a Set that may not be full.
type page struct {
	number uint64
	dirty  bool
	words  words
}

// fullPage represents all full pages.
var fullPage = new(page)

// Add adds a sequence number and reports whether it is new. In ascending order it takes a few nanoseconds, and
// allocates once per thousands of numbers. Numbers from 2⁴⁰ on are ignored and reported as not new.
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

// reach returns the page for a number, marked as dirty. It creates the page if needed. It returns fullPage if the page
// cannot change.
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

// handOver returns the content of the pages that changed since its last call, and releases full pages.
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
