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

// longestGaps returns the longest recorded gap per owner, of a kind of gap that ended.
func longestGaps(m *record.Merged, kind string) map[int]record.Gap {
	longest := map[int]record.Gap{}
	for _, g := range m.Gaps() {
		if g.Kind == kind && !g.Open && g.To-g.From > longest[g.Owner].To-longest[g.Owner].From {
			longest[g.Owner] = g
		}
	}
	return longest
}

// The broker stalls from 400 to 700 ms after the start of the load, which is 200 ms before the measurement.
func TestStallIsAGapOfEveryOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Threads, w.Consumers.Threads, w.Publishers.Rate = 4, 4, 1000
			w.Topology.Queues = 4
		})
		s.options = `{"stalls":[{"at":"400ms","for":"300ms"}]}`
		m := s.run(t.Context())
		const begin, end, spacing = 200e6, 500e6, 4e6 // ns since T0; interval of one publisher's messages
		for _, kind := range []string{record.GapConfirm, record.GapDelivery} {
			of := longestGaps(m, kind)
			if len(of) != 4 {
				t.Errorf("owners with a gap of kind %s: got %d, want 4: %v", kind, len(of), of)
			}
			for owner, g := range of {
				if g.From < begin-spacing-1 || g.From > begin || g.To != end || g.Waited > begin+spacing {
					t.Errorf("%s %d: got gap %+v, want from at most %[4]v ms before %[5]v, to %[6]v", kind, owner, g,
						spacing/1e6, begin, end)
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
				t.Errorf("open gap of publisher %d: got %+v, want waited until its end", g.Owner, g)
			}
		}
		if open != 8 {
			t.Errorf("got %d open gaps, want 8: one for each owner", open)
		}
	})
}

// A publisher with nothing in flight does not wait. A publisher with a broken link does.
func TestWaitTimeOfPublishers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := 0.0
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Profile = []plan.Stage{{For: plan.Duration(300 * time.Millisecond), Rate: 1000},
				{For: plan.Duration(300 * time.Millisecond), Rate: 0, To: &to},
				{For: plan.Duration(400 * time.Millisecond), Rate: 1000}}
		})
		g := longestGaps(s.run(t.Context()), record.GapConfirm)[0]
		if g.From > 300e6 || g.To < 600e6 || g.Waited < 599e6 {
			t.Errorf("gap of a publisher with nothing in flight: got %+v, want from 300 to 600 ms without a wait", g)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) { w.Publishers.Mode, w.Publishers.Rate = "confirm-each", 1000 })
		rejected := newGate(300 * time.Millisecond)
		s.wrapSession = rejected.wrap
		s.duringMeasurement = func(name string) {
			time.Sleep(200 * time.Millisecond)
			rejected.shut()
			loopback.Cut(name)
		}
		g := longestGaps(s.run(t.Context()), record.GapConfirm)[0]
		if g.Waited > 202e6 || g.To < 499e6 || g.To > 1_000e6 {
			t.Errorf("gap of a publisher without a link from 200 to 500 ms: got %+v, want a wait for all of it", g)
		}
	})
}

// If every confirm takes longer than the first threshold of gaps, only few gaps are recorded, including the longest.
func TestGapsOfATaskAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Mode, w.Publishers.Rate, w.Measure = "confirm-each", 0, plan.Duration(10*time.Minute)
		})
		s.options = `{"confirmDelay":"25ms","stalls":[{"at":"300s","for":"500ms"}]}`
		m := s.run(t.Context())
		n, thresholds := map[string]int{}, map[string]int64{}
		for _, g := range m.Gaps() {
			n[g.Kind]++
			thresholds[g.Kind] = max(thresholds[g.Kind], g.Min)
		}
		for _, kind := range []string{record.GapConfirm, record.GapDelivery} {
			if n[kind] < 3 || n[kind] > 2*maxGaps || thresholds[kind] != 40e6 {
				t.Errorf("%s: got %d gaps (of 24,000 waits of 25 ms), threshold %v, want few, 40 ms", kind,
					n[kind], time.Duration(thresholds[kind]))
			}
		}
		if g := longestGaps(m, record.GapConfirm)[0]; g.To-g.From < 500e6 || g.To-g.From > 525e6 {
			t.Errorf("longest gap without a confirm: got %+v, want 500 to 525 ms: the stall and a part of a confirm delay", g)
		}
	})
}

// A message that fails while a confirm is recorded counts as later than that confirm: the confirm does not end its gap.
func TestAFailureDuringAConfirmIsKept(t *testing.T) {
	var l oldestUnconfirmed
	for _, second := range []bool{false, true} {
		l.note(1000)
		seen := l.Load()
		if second {
			l.note(2000)
		}
		l.confirmed(seen)
		if kept := l.Load() != 0; kept != second {
			t.Errorf("second failure %t: got kept %t, want %[1]t", second, kept)
		}
	}
	if since := l.Load(); since < 996 || since > 1004 {
		t.Errorf("time of the oldest failure: got %d ns, want about 1000", since)
	}
}

// gate rejects new publishers for some time.
type gate struct {
	duration time.Duration
	until    time.Time
	mu       sync.Mutex
}

func newGate(lasts time.Duration) *gate { return &gate{duration: lasts} }

func (g *gate) wrap(s drivers.Session) drivers.Session {
	return withPublishers(s, g.publish)
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = time.Now().Add(g.duration)
}

func (g *gate) publish(ctx context.Context, conn drivers.Conn, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Now().Before(g.until) {
		return nil, drivers.ErrClosed
	}
	return conn.Publisher(ctx, spec)
}
