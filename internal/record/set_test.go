package record

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"
)

// members adds the numbers in pages to a map.
func members(pages []Page, into map[uint64]bool) {
	for _, p := range pages {
		for i := range uint64(pageSize) {
			if p.words[i/64]>>(i%64)&1 != 0 {
				into[p.Number*pageSize+i] = true
			}
		}
	}
}

// A set agrees with a map, and the union of its increments is its content.
func TestSetAgreesWithMap(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range rounds(10, 3) {
		c := NewCollector(time.Second)
		recorder := c.Recorder()
		s := recorder.Set(SetKey{Kind: SetReceived})
		model, handed := map[uint64]bool{}, map[uint64]bool{}
		next := uint64(0)
		for range 40_000 {
			sequence := next
			switch r.IntN(100) {
			case 0:
				sequence = r.Uint64N(next + 1)
			case 1:
				sequence = maxDirect*pageSize + r.Uint64N(10_000)
			case 2:
				next += r.Uint64N(30)
			default:
				next++
			}
			if s.Add(sequence) == model[sequence] {
				t.Fatalf("adding %d: new %v, and it was there: %v", sequence, !model[sequence], model[sequence])
			}
			model[sequence] = true
			if r.IntN(5000) == 0 {
				recorder.Flush()
				_, sets := c.Take()
				for _, p := range sets {
					members(p.Pages, handed)
				}
			}
			if probe := r.Uint64N(next + 100); s.Contains(probe) != model[probe] {
				t.Fatalf("contains %d: %v", probe, !model[probe])
			}
		}
		recorder.Flush()
		_, sets := c.Take()
		for _, p := range sets {
			members(p.Pages, handed)
		}
		if s.count() != uint64(len(model)) {
			t.Errorf("count %d, want %d", s.count(), len(model))
		}
		if len(handed) != len(model) {
			t.Errorf("handed over %d, want %d", len(handed), len(model))
		}
		for sequence := range handed {
			if !model[sequence] {
				t.Errorf("handed over %d, which was never added", sequence)
			}
		}
	}
}

func (s *Set) count() (n uint64) {
	for _, p := range s.pages {
		if p == fullPage {
			n += pageSize
		} else {
			n += p.words.count()
		}
	}
	return n
}

// The memory of a full page that was handed over is reused: it is empty, and the full page stays full.
func TestSetReusesFullPages(t *testing.T) {
	recorder := NewCollector(0).Recorder()
	s := recorder.Set(SetKey{})
	for i := range uint64(3 * pageSize) {
		s.Add(i)
		if i%pageSize == pageSize-1 {
			recorder.Flush()
		}
	}
	if !s.Add(3 * pageSize) {
		t.Error("a fresh page has numbers in it")
	}
	if s.Add(5) || !s.Contains(5) {
		t.Error("a full page forgot its numbers")
	}
	if s.count() != 3*pageSize+1 {
		t.Errorf("count %d", s.count())
	}
}

// Impossibly large numbers must not produce a record that cannot be written.
func TestSetLeavesOutWhatNobodySends(t *testing.T) {
	c := NewCollector(0)
	recorder := c.Recorder()
	s := recorder.Set(SetKey{})
	if s.Add(maxPage*pageSize) || s.Add(^uint64(0)) || s.Contains(^uint64(0)) {
		t.Error("took a number beyond the limit")
	}
	if !s.Add(maxPage*pageSize - 1) {
		t.Error("refused the greatest number")
	}
	recorder.Flush()
	_, sets := c.Take()
	if data, err := json.Marshal(sets); err != nil || len(sets) != 1 {
		t.Errorf("%s: %v", data, err)
	}
}

// Only changes are handed over.
func TestSetHandsOverWhatChanged(t *testing.T) {
	c := NewCollector(0)
	recorder := c.Recorder()
	s := recorder.Set(SetKey{Kind: SetSent, Publisher: 4})
	take := func() []SetPages {
		recorder.Flush()
		_, sets := c.Take()
		return sets
	}
	s.Add(1)
	s.Add(pageSize)
	if got := take(); len(got) != 1 || len(got[0].Pages) != 2 || got[0].Key != (SetKey{Kind: SetSent, Publisher: 4}) {
		t.Errorf("first hand-over: %+v", got)
	}
	s.Add(1) // already in the set
	s.Add(pageSize + 1)
	if got := take(); len(got) != 1 || got[0].Pages[len(got[0].Pages)-1].Number != 1 {
		t.Errorf("second hand-over: %+v", got)
	}
	if got := take(); got != nil {
		t.Errorf("nothing changed, and %+v was handed over", got)
	}
}
