package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/record"
	"lockstep/pkg/drivers"
)

const (
	probeEvery   = time.Second
	probeTimeout = 5 * time.Second // one probe; those that are due meanwhile are left out
	lastProbe    = time.Second     // the wait for the last one before the drain
)

// errStuck is a probe that did not return when it was cancelled.
var errStuck = errors.New("the driver did not let go of a probe; the broker is not asked again")

// prober asks the broker for its figures as the record's seconds begin, from the beginning of warm-up to the end of the drain, and once more
// when this agent's publishers have stopped, beside everything else: the load neither waits for it nor fails with it. A figure without an
// answer is missing; why is said once.
type prober struct {
	t       *task
	session drivers.Prober
	over    context.Context // ends when the publishers have stopped
	stop    context.CancelFunc
	last    chan struct{} // closed when the broker was asked after that
}

func newProber(t *task, session drivers.Prober) *prober {
	p := &prober{t: t, session: session, last: make(chan struct{})}
	p.over, p.stop = context.WithCancel(context.Background())
	return p
}

// startProber begins to probe, on agent 0 and where the driver can, and returns how to end that in an orderly way.
func (t *task) startProber(ctx context.Context) (finish func(context.Context)) {
	session, can := t.openSession().(drivers.Prober)
	if !can || t.a.Index != 0 {
		return func(context.Context) {}
	}
	p := newProber(t, session)
	t.reporting.Add(1)
	go func() {
		defer t.reporting.Done()
		p.run(ctx)
	}()
	return p.finish
}

func (p *prober) run(ctx context.Context) {
	defer p.stop()
	last := sync.OnceFunc(func() { close(p.last) })
	defer last()
	said := false
	for ctx.Err() == nil {
		over := p.over.Err() != nil
		err := p.ask(ctx)
		switch {
		case err == nil:
		case ctx.Err() != nil && !errors.Is(err, errStuck):
			return
		case !said:
			said = true
			p.t.event(drivers.EventNotice, "probe broker: "+p.t.clean(err.Error()))
		}
		if errors.Is(err, drivers.ErrUnsupported) || errors.Is(err, errStuck) {
			return
		}
		waiting := p.over
		if over {
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
	_ = clock.Until(ctx, nextSecond(p.t.beginning(), clock.Now())) // an early end shows in the contexts
}

// finish has the broker asked once more, for what it did in the last second, and waits a moment for the answer.
func (p *prober) finish(ctx context.Context) {
	p.stop()
	late := time.NewTimer(lastProbe)
	defer late.Stop()
	select {
	case <-p.last:
	case <-late.C:
	case <-ctx.Done():
	}
}

// nextSecond is when the next second of a record begins whose T0 is begin, after now.
func nextSecond(begin, now int64) int64 {
	every := probeEvery.Nanoseconds()
	past := (now - begin) % every
	if past < 0 {
		past += every
	}
	return now - past + every
}

// ask probes once, with a deadline that holds even if the driver does not obey it.
func (p *prober) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	type answer struct {
		figures []drivers.Figure
		err     error
	}
	answered, asked := make(chan answer, 1), clock.Now()
	go func() {
		figures, err := p.session.Probe(ctx)
		answered <- answer{figures, err}
	}()
	select {
	case a := <-answered:
		p.t.keep(a.figures, asked, clock.Now())
		return a.err
	case <-ctx.Done():
	}
	late := time.NewTimer(p.t.cfg.leave)
	defer late.Stop()
	select {
	case <-answered:
		return fmt.Errorf("no answer within %v", probeTimeout)
	case <-late.C:
		p.t.log.Error("a probe did not return when it was cancelled: left behind", "driver", p.t.a.Task.Cell.Broker.Driver)
		return errStuck
	}
}

// keep notes figures of a time between the question and the answer; what is no number is missing.
func (t *task) keep(figures []drivers.Figure, asked, answered int64) {
	at := asked + (answered-asked)/2 - t.beginning()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range figures {
		if !math.IsNaN(f.Value) && !math.IsInf(f.Value, 0) {
			t.probed = append(t.probed, record.ProbeSample{At: at, Name: string(f.Name), Node: t.clean(f.Node), Value: f.Value})
		}
	}
}

// takeProbed hands over what was probed since the last time.
func (t *task) takeProbed() []record.ProbeSample {
	t.mu.Lock()
	defer t.mu.Unlock()
	probed := t.probed
	t.probed = nil
	return probed
}
