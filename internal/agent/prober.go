package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
)

const (
	probeEvery       = time.Second
	probeTimeout     = 5 * time.Second // one probe; probes that are due meanwhile are skipped
	lastProbeTimeout = time.Second     // the wait for the last one before the drain
)

// errStuck is the error of a probe that did not return after it was cancelled.
var errStuck = errors.New("a probe of the driver did not return; the broker is no longer probed")

// prober requests the broker's metrics at each second of the record, from the start of the load to the end of the
// drain. It probes once more when this agent's publishers have stopped. It runs concurrently with the load, which
// neither waits for it nor fails with it. A metric without an answer is missing; the first error is an event.
type prober struct {
	session  *session
	timeline *timeline
	leave    time.Duration // after which a cancelled probe is left behind

	stopped context.Context // ends when the publishers have stopped
	stop    context.CancelFunc
	last    chan struct{} // closed when the broker was probed after that

	mu      sync.Mutex
	samples []record.ProbeSample // not yet taken
}

func newProber(s *session, t *timeline, leave time.Duration) *prober {
	p := &prober{session: s, timeline: t, leave: leave, last: make(chan struct{})}
	p.stopped, p.stop = context.WithCancel(context.Background())
	return p
}

// run probes the broker until ctx ends, if the driver supports it. The session must be open.
func (p *prober) run(ctx context.Context) {
	defer p.stop()
	last := sync.OnceFunc(func() { close(p.last) })
	defer last()
	driver, can := drivers.As[drivers.Prober](p.session.current())
	if !can {
		return
	}
	reported := false
	for ctx.Err() == nil {
		stopped := p.stopped.Err() != nil
		err := p.ask(ctx, driver)
		switch {
		case err == nil:
		case ctx.Err() != nil && !errors.Is(err, errStuck):
			return
		case !reported:
			reported = true
			p.session.event(drivers.EventNotice, "probe broker: "+p.session.clean(err.Error()))
		}
		if errors.Is(err, drivers.ErrUnsupported) || errors.Is(err, errStuck) {
			return
		}
		waiting := p.stopped
		if stopped {
			last()
			waiting = ctx
		}
		p.wait(ctx, waiting)
	}
}

// wait waits for the next second, or until either context ends.
func (p *prober) wait(ctx, other context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(other, cancel)()
	_ = clock.Until(ctx, nextSecond(p.timeline.t0(), clock.Now())) // the caller checks the contexts
}

// finish requests one more probe, for the last second, and waits up to lastProbeTimeout for its answer.
func (p *prober) finish(ctx context.Context) {
	p.stop()
	late := time.NewTimer(lastProbeTimeout)
	defer late.Stop()
	select {
	case <-p.last:
	case <-late.C:
	case <-ctx.Done():
	}
}

// nextSecond returns the start of the next second after now, in a record whose T0 is begin.
func nextSecond(begin, now int64) int64 {
	every := probeEvery.Nanoseconds()
	past := (now - begin) % every
	if past < 0 {
		past += every
	}
	return now - past + every
}

// ask probes once. It returns after the timeout even if the driver ignores it.
func (p *prober) ask(ctx context.Context, driver drivers.Prober) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	type answer struct {
		metrics []drivers.Metric
		err     error
	}
	answered, requested := make(chan answer, 1), clock.Now()
	go func() {
		metrics, err := driver.Probe(ctx)
		answered <- answer{metrics, err}
	}()
	select {
	case a := <-answered:
		p.add(a.metrics, requested, clock.Now())
		return a.err
	case <-ctx.Done():
	}
	late := time.NewTimer(p.leave)
	defer late.Stop()
	select {
	case <-answered:
		return fmt.Errorf("no response within %v", probeTimeout)
	case <-late.C:
		p.session.log.Error("a probe did not return after it was cancelled; it is abandoned", "driver",
			p.session.broker.Driver)
		return errStuck
	}
}

// add adds metrics at the middle of the request and its answer. Values that are not finite numbers are skipped.
func (p *prober) add(metrics []drivers.Metric, requested, answered int64) {
	at := requested + (answered-requested)/2 - p.timeline.t0()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range metrics {
		if !math.IsNaN(f.Value) && !math.IsInf(f.Value, 0) {
			p.samples = append(p.samples,
				record.ProbeSample{At: at, Name: f.Name, Node: p.session.clean(f.Node), Value: f.Value})
		}
	}
}

// take returns the samples since the last call.
func (p *prober) take() []record.ProbeSample {
	p.mu.Lock()
	defer p.mu.Unlock()
	samples := p.samples
	p.samples = nil
	return samples
}
