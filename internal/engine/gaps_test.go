package engine

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// longest returns the longest recorded gap per owner, of a kind of gap that ended.
func longest(m *record.Merged, kind string) map[int]record.Gap {
	most := map[int]record.Gap{}
	for _, g := range m.Gaps() {
		if g.Kind == kind && !g.Open && g.To-g.From > most[g.Owner].To-most[g.Owner].From {
			most[g.Owner] = g
		}
	}
	return most
}

// The broker stalls from 400 to 700 ms after the start of the load, which is 200 ms before the measurement.
func TestStallIsAGapOfEveryOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, func(w *plan.Workload) {
			w.Publishers.Threads, w.Consumers.Threads, w.Publishers.Rate = 4, 4, 1000
			w.Topology.Queues = 4
		})
		s.options = `{"stalls":[{"at":"400ms","for":"300ms"}]}`
		m := s.play(t.Context())
		const begin, end, spacing = 200e6, 500e6, 4e6 // ns since T0; interval of one publisher's messages
		for _, kind := range []string{record.GapConfirm, record.GapDelivery} {
			of := longest(m, kind)
			if len(of) != 4 {
				t.Errorf("%d owners have a gap of kind %s, want 4: %v", len(of), kind, of)
			}
			for owner, g := range of {
				if g.From < begin-spacing-1 || g.From > begin || g.To != end || g.Waited > begin+spacing {
					t.Errorf("%s %d: gap %+v, want from %v at most %v ms before, to %v", kind, owner, g, begin,
						spacing/1e6, end)
				}
			}
		}
		open := 0
		for _, g := range m.Gaps() {
			if !g.Open {
				continue
			}
			open++
			if g.Kind == record.GapConfirm && g.Waited != g.To {
				t.Errorf("publisher %d still waited at the end: %+v", g.Owner, g)
			}
		}
		if open != 8 {
			t.Errorf("%d gaps are of the end, want one of each owner", open)
		}
	})
}

// A publisher with nothing in flight does not wait. A publisher with a broken link does.
func TestWhatAPublisherWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := 0.0
		s := newSubject(t, func(w *plan.Workload) {
			w.Publishers.Profile = []plan.Stage{{For: plan.Duration(300 * time.Millisecond), Rate: 1000},
				{For: plan.Duration(300 * time.Millisecond), Rate: 0, To: &to},
				{For: plan.Duration(400 * time.Millisecond), Rate: 1000}}
		})
		g := longest(s.play(t.Context()), record.GapConfirm)[0]
		if g.From > 300e6 || g.To < 600e6 || g.Waited < 599e6 {
			t.Errorf("gap of a publisher that has nothing to send: %+v, want one in which it does not wait", g)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, func(w *plan.Workload) { w.Publishers.Mode, w.Publishers.Rate = "confirm-each", 1000 })
		refused := newGate(300 * time.Millisecond)
		s.wrap = refused.wrap
		s.during = func(name string) {
			time.Sleep(200 * time.Millisecond)
			refused.shut()
			loopback.Cut(name)
		}
		g := longest(s.play(t.Context()), record.GapConfirm)[0]
		if g.Waited > 202e6 || g.To < 499e6 || g.To > 1_000e6 {
			t.Errorf("gap of a publisher without a link from 200 to 500 ms: %+v, want all of it waited", g)
		}
	})
}

// If every confirm takes longer than the first threshold of gaps, few gaps are recorded, with the longest among them.
func TestGapsOfATaskAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, func(w *plan.Workload) {
			w.Publishers.Mode, w.Publishers.Rate, w.Measure = "confirm-each", 0, plan.Duration(10*time.Minute)
		})
		s.options = `{"confirmDelay":"25ms","stalls":[{"at":"300s","for":"500ms"}]}`
		m := s.play(t.Context())
		n, least := map[string]int{}, map[string]int64{}
		for _, g := range m.Gaps() {
			n[g.Kind]++
			least[g.Kind] = max(least[g.Kind], g.Min)
		}
		for _, kind := range []string{record.GapConfirm, record.GapDelivery} {
			if n[kind] < 3 || n[kind] > 2*maxGaps || least[kind] != 40e6 {
				t.Errorf("%s: %d gaps of 24,000 times of 25 ms are kept and the least is %v; want few, and 40 ms", kind,
					n[kind], time.Duration(least[kind]))
			}
		}
		if g := longest(m, record.GapConfirm)[0]; g.To-g.From < 500e6 || g.To-g.From > 525e6 {
			t.Errorf("longest time without a confirm %+v, want the stall and what is left of a confirm", g)
		}
	})
}

// A message that fails while a confirm is recorded follows that confirm: the confirm does not end its gap.
func TestAFailureDuringAConfirmIsKept(t *testing.T) {
	var l oldestUnconfirmed
	for _, again := range []bool{false, true} {
		l.note(1000)
		seen := l.Load()
		if again {
			l.note(2000)
		}
		l.confirmed(seen)
		if kept := l.Load() != 0; kept != again {
			t.Errorf("noted again %t, kept %t", again, kept)
		}
	}
	if since := l.Load(); since < 996 || since > 1004 {
		t.Errorf("kept since %d ns, want the first, 1000", since)
	}
}

// gate rejects new publishers for some time.
type gate struct {
	lasts time.Duration
	until time.Time
	mu    sync.Mutex
}

func newGate(lasts time.Duration) *gate { return &gate{lasts: lasts} }

func (g *gate) wrap(s drivers.Session) drivers.Session {
	return publishers(s, g.publish)
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = time.Now().Add(g.lasts)
}

func (g *gate) publish(ctx context.Context, conn drivers.Conn, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Now().Before(g.until) {
		return nil, drivers.ErrClosed
	}
	return conn.Publisher(ctx, spec)
}
