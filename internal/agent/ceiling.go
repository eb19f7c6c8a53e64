package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/engine"
	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/wire"
	"lockstep/pkg/drivers"
)

// Times of the measurement of a ceiling: twice warm-up and measurement, about a second together.
const (
	ceilingWarmup    = 100 * time.Millisecond
	ceilingMeasure   = 400 * time.Millisecond
	ceilingConsumers = 8 // maximum number of consumers and queues
)

// ceiling starts to measure this agent's own limits with the load of an assignment, and reports them. It uses no slot.
// If the agent ends meanwhile, it reports nothing.
func (s *slot) ceiling(ctx context.Context, a plan.Assignment) {
	s.observations.Add(1) // a stopping agent waits for it
	s.observing.Go(func() {
		defer s.observations.Add(-1)
		log := s.cfg.Log.With("agent", s.cfg.Name)
		limits, err := s.limits(ctx, a, log)
		if ctx.Err() != nil {
			return
		}
		arrival := wire.Arrival{Ref: wire.RefOf(a.Task), Step: wire.StepOpen, Phase: plan.PhasePrepare, Limits: &limits}
		if err != nil {
			arrival.Error = fmt.Sprintf("measure the load generator on agent %s: %s", s.cfg.Name, err)
		}
		ctx, cancel := wire.WithGracePeriod(ctx, s.cfg.answer)
		defer cancel()
		_ = s.arrive(ctx, arrival, log) // the error was logged
	})
}

// limits measures the maximum rate, and then the latencies at LimitsRate.
func (s *slot) limits(ctx context.Context, a plan.Assignment, log *slog.Logger) (plan.Limits, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Deadline.D())
	defer cancel()
	if err := a.CheckProtocol(); err != nil {
		return plan.Limits{}, err
	}
	w := plan.Default()
	p := a.Task.Cell.Workload.Publishers
	w.Publishers.Threads, w.Publishers.Mode, w.Publishers.MaxInFlight, w.Publishers.Batch = p.Threads, p.Mode,
		p.MaxInFlight, p.Batch
	w.Consumers.Colocate, w.Consumers.Threads = true, min(p.Threads, ceilingConsumers)
	w.Topology.Queues = w.Consumers.Threads
	w.Message.Size = a.Task.Cell.Workload.Message.Size
	w.Warmup, w.Measure = plan.Duration(ceilingWarmup), plan.Duration(ceilingMeasure)
	w.Drain = plan.Drain{Idle: w.Warmup, Timeout: w.Measure}
	fastest, err := s.measureAlone(ctx, a.Task, w, log)
	if err != nil {
		return plan.Limits{}, err
	}
	w.Publishers.Rate = plan.LimitsRate
	paced, err := s.measureAlone(ctx, a.Task, w, log)
	if err != nil {
		return plan.Limits{}, err
	}
	median := func(of record.Series) plan.Duration { return plan.Duration(paced.Hist(of).Quantile(0.5)) }
	return plan.Limits{Rate: float64(fastest.Sum(record.Sent, 0, 1)) / ceilingMeasure.Seconds(),
		Publish: median(record.Publish), EndToEnd: median(record.EndToEnd)}, nil
}

// measureAlone runs a workload of this agent alone on a loopback broker of its own.
func (s *slot) measureAlone(ctx context.Context, t plan.Task, w plan.Workload, log *slog.Logger) (m *record.Merged,
	err error) {
	driver, err := drivers.Lookup("loopback")
	if err != nil {
		return nil, err
	}
	options, err := json.Marshal(map[string]any{"name": "ceiling-" + s.self.Instance + t.Attempt,
		"capacity": 100_000, "capacityBytes": 16 << 20}) // per queue
	if err != nil {
		return nil, err
	}
	session, err := driver.Open(ctx, options, drivers.Env{Log: log})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	t.Cell = plan.Cell{Workload: w, CopiesBody: true}
	a := plan.Assign(t, []string{s.cfg.Name})[0]
	if err := a.Check(); err != nil {
		return nil, err
	}
	topology := engine.Topology(t)
	if err := session.Setup(ctx, topology); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, session.Teardown(context.WithoutCancel(ctx), topology)) }()
	e, err := engine.New(engine.Config{Assignment: a, Session: session, Log: log, CopiesBody: true})
	if err != nil {
		return nil, err
	}
	run := func() error {
		if err := e.ConnectConsumers(ctx); err != nil {
			return err
		}
		if err := e.ConnectPublishers(ctx); err != nil {
			return err
		}
		return e.Run(ctx, clock.Now())
	}
	if err := errors.Join(run(), e.Close(context.WithoutCancel(ctx))); err != nil {
		return nil, err
	}
	part := e.Take(true)
	m = record.NewMerged()
	m.Add(record.Snapshot{Task: t.ID, Agent: s.cfg.Name, Seq: 1, Final: true, Windows: part.Windows})
	return m, nil
}
