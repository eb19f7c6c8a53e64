package engine

import (
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
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
			t.Fatalf("take: got slot %d, %v, want a free slot", token, ok)
		}
		seen[token] = true
		f.slots[token].out = true
	}
	if token, ok := f.take(); ok {
		t.Fatalf("take with 3 of 3 in flight: got slot %d, want none", token)
	}
	if f.free(1, 55); f.outstanding() != 3 {
		t.Fatalf("outstanding before release: got %d, want 3", f.outstanding())
	}
	if f.release(); f.outstanding() != 2 {
		t.Fatalf("outstanding after release: got %d, want 2", f.outstanding())
	}
	if token, ok := f.take(); !ok || token != 1 || f.firstFree != 55 {
		t.Fatalf("take: got slot %d, %v, free since %d, want slot 1, true, 55", token, ok, f.firstFree)
	}
}

func TestInflightRejectsUnknownTokens(t *testing.T) {
	f := newTestInflight(2)
	token, _ := f.take()
	f.slots[token].out = true
	if s := f.find(uint64(token)); s != &f.slots[token] {
		t.Errorf("find of a token in flight: got %p, want its slot", s)
	}
	f.free(uint64(token), 0)
	if f.find(uint64(token)) != nil || f.find(99) != nil {
		t.Error("find of tokens that are not in flight: got a slot, want nil")
	}
}

// A waiting publisher is always woken. Confirms come from another goroutine, in any order.
func TestInflightWakesWaitingPublishers(t *testing.T) {
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
				f.free(uint64(h), 1)
			}
			f.release()
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
				t.Fatalf("the publisher was not woken after %d messages, %d in flight", n, f.outstanding())
			}
		}
		f.stopWaiting()
	}
	close(out)
}

// The messages of one call of OnConfirms have one time. A token that is not in flight does not affect the others.
func TestConfirmsOfOneCallHaveOneTime(t *testing.T) {
	const n = 1000
	s := newTestTask(t, func(w *plan.Workload) {
		w.Publishers.Mode, w.Publishers.MaxInFlight, w.Publishers.Threads = "confirm-window", n, 1
	})
	e, err := New(Config{Assignment: s.assignment(), Session: instantSession{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	p, c := e.publishers[0], record.NewCollector(0)
	p.begin(c)
	var tokens []uint64
	for range n {
		token, _ := p.window.take()
		p.window.slots[token].out, p.window.slots[token].sequence = true, uint64(token)
		tokens = append(tokens, uint64(token))
	}
	p.spec.OnConfirms(append(tokens, 0), nil)
	if left := p.window.outstanding(); left != 0 || p.window.firstFree != p.window.lastFree {
		t.Errorf("got %d of %d messages in flight, release times from %d to %d, want 0 and equal times", left, n,
			p.window.firstFree, p.window.lastFree)
	}
	if all := p.recorder.acknowledged; all.Add(n - 1) {
		t.Error("the last message was not recorded as confirmed")
	}
}
