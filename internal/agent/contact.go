package agent

import (
	"context"
	"fmt"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/wire"
	"lockstep/pkg/drivers"
)

// contact starts to open and close a session with a broker, without a simulated network, and reports whether it was
// opened. It uses no slot. If the agent ends meanwhile, it reports nothing.
func (s *slot) contact(ctx context.Context, a plan.Assignment) {
	s.observations.Add(1) // a stopping agent waits for it
	s.observing.Go(func() {
		defer s.observations.Add(-1)
		session := &session{broker: a.Task.Cell.Broker, access: s.cfg.Access, parent: s.cfg.Dir,
			event: func(drivers.EventKind, string) {}}
		log := scrubbingLog(s.cfg.Log.With("broker", a.Task.Cell.Broker.Name, "agent", s.cfg.Name), session.clean)
		session.log = log
		err := a.CheckProtocol()
		if err == nil {
			err = s.tryOpen(ctx, session, a.Deadline.D())
		}
		if closing := session.close(); closing != nil {
			log.Warn("cannot close session", "err", closing)
		}
		if ctx.Err() != nil {
			return
		}
		arrival := wire.Arrival{Ref: wire.RefOf(a.Task), Step: wire.StepOpen, Phase: plan.PhasePrepare}
		if err != nil {
			arrival.Error = fmt.Sprintf("open session on agent %s: %s", s.cfg.Name, session.clean(err.Error()))
		}
		ctx, cancel := wire.WithGracePeriod(ctx, s.cfg.answer)
		defer cancel()
		_ = s.arrive(ctx, arrival, log) // the error was logged
	})
}

// tryOpen opens a session. A driver that does not return after limit and the time to leave it is left behind.
func (s *slot) tryOpen(ctx context.Context, session *session, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	opened := make(chan error, 1)
	go func() { opened <- session.open(ctx) }()
	select {
	case err := <-opened:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-opened:
		return err
	case <-time.After(s.cfg.leave):
		return fmt.Errorf("driver %s does not respond: a call did not return within %v after it was cancelled, and is abandoned",
			session.broker.Driver, s.cfg.leave)
	}
}
