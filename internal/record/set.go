package record

// SetKey says what a set of sequence numbers is about. Subscription matters for SetReceived only.
type SetKey struct {
	Kind         SetKind `json:"kind"`
	Subscription int     `json:"subscription,omitempty"`
	Publisher    int     `json:"publisher"`
}

// near is how many pages a Set reaches without a look-up.
const near = 8

// Set is an exact set of sequence numbers, made by Recorder.Set and belonging to the same goroutine as its Recorder. It takes one bit a number
// where numbers are dense, and nothing for full pages once they were handed over.
type Set struct {
	near  [near]*page // by number % near; only pages that are dirty, so that a page met again after a hand-over is marked again
	pages map[uint64]*page
	dirty []*page
	free  []*page
	count uint64
	key   SetKey
	owner *Recorder
}

// page is one page of a Set that is not known to be full.
type page struct {
	number uint64
	dirty  bool
	words  words
}

var (
	nowhere  = &page{number: ^uint64(0)} // no page has this number
	fullPage = &page{number: ^uint64(0)} // stands for every page that is full
)

// Add adds a sequence number and tells whether it is new. In order it takes a few nanoseconds and allocates once for thousands.
func (s *Set) Add(sequence uint64) bool {
	number := sequence / pageSize
	p := s.near[number%near]
	if p.number != number {
		if p = s.reach(number); p == fullPage {
			return false
		}
	}
	w, bit := &p.words[sequence%pageSize/64], uint64(1)<<(sequence%64)
	if *w&bit != 0 {
		return false
	}
	*w |= bit
	s.count++
	return true
}

// Contains tells whether a sequence number was added.
func (s *Set) Contains(sequence uint64) bool {
	p := s.pages[sequence/pageSize]
	return p == fullPage || p != nil && p.words[sequence%pageSize/64]>>(sequence%64)&1 != 0
}

// Count is how many numbers the set holds.
func (s *Set) Count() uint64 { return s.count }

// reach finds or makes a page that is about to change.
func (s *Set) reach(number uint64) *page {
	p := s.pages[number]
	if p == fullPage {
		return p
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
	s.near[number%near] = p
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
	s := &Set{key: key, owner: owner, pages: map[uint64]*page{}}
	s.forget()
	return s
}

func (s *Set) forget() {
	for i := range s.near {
		s.near[i] = nowhere
	}
}

// handOver returns the contents of the pages that changed since the last time, and lets go of those that are full.
func (s *Set) handOver() SetPages {
	changed := SetPages{Key: s.key, Pages: make([]Page, 0, len(s.dirty))}
	copies := make([]words, 0, len(s.dirty))
	for _, p := range s.dirty {
		p.dirty = false
		if p.words == full {
			changed.Pages = append(changed.Pages, Page{Number: p.number, words: &full})
			s.pages[p.number] = fullPage
			p.words = words{}
			s.free = append(s.free, p)
			continue
		}
		copies = append(copies, p.words)
		changed.Pages = append(changed.Pages, Page{Number: p.number, words: &copies[len(copies)-1]})
	}
	s.dirty = s.dirty[:0]
	s.forget()
	return changed
}
