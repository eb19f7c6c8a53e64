package agent

import (
	"context"
	"fmt"

	"lockstep/internal/plan"
	"lockstep/internal/wire"
	"lockstep/pkg/drivers"
)

// contact opens and closes a session with a broker, without a simulated network, and reports whether it was opened. It
// uses no slot.
func (s *slot) contact(ctx context.Context, a plan.Assignment) {
	log := s.cfg.Log.With("broker", a.Task.Cell.Broker.Name, "agent", s.cfg.Name)
	session := &session{broker: a.Task.Cell.Broker, access: s.cfg.Access, parent: s.cfg.Dir, log: log,
		event: func(drivers.EventKind, string) {}}
	err := a.CheckProtocol()
	if err == nil {
		opening, cancel := context.WithTimeout(ctx, a.Deadline.D())
		err = session.open(opening)
		cancel()
		if closing := session.close(); closing != nil {
			log.Warn("cannot close session", "err", closing)
		}
	}
	arrival := wire.Arrival{Ref: wire.RefOf(a.Task), Step: wire.StepOpen, Phase: plan.PhasePrepare}
	if err != nil {
		arrival.Error = fmt.Sprintf("open session on agent %s: %s", s.cfg.Name, session.clean(err.Error()))
	}
	ctx, cancel := wire.WithGracePeriod(ctx, s.cfg.answer)
	defer cancel()
	_ = s.arrive(ctx, arrival, log) // the error was logged
}
