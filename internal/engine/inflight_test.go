package engine

import (
	"math/rand/v2"
	"testing"
	"time"
)

func newTestInflight(n int) *inflight {
	return newInflight(n, func() []byte { return nil })
}

func TestInflightBoundsAndReuses(t *testing.T) {
	f := newTestInflight(3)
	seen := map[uint32]bool{}
	for range 3 {
		token, ok := f.take()
		if !ok || seen[token] {
			t.Fatalf("slot %d, %v; want a free one", token, ok)
		}
		seen[token] = true
		f.slots[token].out = true
	}
	if token, ok := f.take(); ok {
		t.Fatalf("took slot %d although three of three are in flight", token)
	}
	if f.release(1, 55); f.outstanding() != 2 {
		t.Fatalf("after one release %d are out, want 2", f.outstanding())
	}
	if token, ok := f.take(); !ok || token != 1 || f.firstFree != 55 {
		t.Fatalf("took slot %d, %v, free since %d; want slot 1, free since 55", token, ok, f.firstFree)
	}
}

func TestInflightRefusesWhatIsNotOut(t *testing.T) {
	f := newTestInflight(2)
	token, _ := f.take()
	f.slots[token].out = true
	if s := f.find(uint64(token)); s != &f.slots[token] {
		t.Errorf("found %p for a token in flight, want its slot", s)
	}
	f.release(uint64(token), 0)
	if f.find(uint64(token)) != nil || f.find(99) != nil {
		t.Error("found a slot for a token that is not in flight")
	}
}

// A waiting publisher is always woken. Confirms come from another goroutine, in any order.
func TestInflightNeverSleepsForGood(t *testing.T) {
	const window, messages = 8, 50_000
	f := newTestInflight(window)
	out := make(chan uint32, window)
	go func() {
		r := rand.New(rand.NewPCG(1, 2))
		for token := range out {
			held := []uint32{token}
			for more := r.IntN(window); more > 0 && len(out) > 0; more-- {
				held = append(held, <-out)
			}
			r.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
			for _, h := range held {
				f.release(uint64(h), 1)
			}
		}
	}()
	deadline := time.After(2 * time.Minute)
	for n := 0; n < messages; {
		if token, ok := f.take(); ok {
			f.slots[token].out = true
			out <- token
			n++
			continue
		}
		for f.await(1) {
			select {
			case <-f.released:
			case <-deadline:
				t.Fatalf("not woken after %d messages, %d in flight", n, f.outstanding())
			}
		}
		f.stopWaiting()
	}
	close(out)
}
