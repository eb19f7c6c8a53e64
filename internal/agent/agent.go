// Package agent carries out assignments on one client host. A slot registers with the controller and takes one
// assignment at a time; a lifecycle opens a driver's session, drives the engine from step to step as the controller
// releases them, and reports snapshots of what was measured. After every task nothing is left of it, whatever
// happened, and no secret leaves the host.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/wire"
	"lockstep/pkg/drivers"
)

// Config configures an agent. It has one field for each flag of the program, and three limits of time that tests
// shorten.
type Config struct {
	Name    string // unique in the fleet
	Labels  map[string]string
	Dir     string // for what tasks keep on disk while they last; empty: the temporary folder
	Slots   int    // tasks side by side; 0: one
	Version string // of this program, for records
	Log     *slog.Logger
	// Access states what matrices may read of this host; the zero value allows nothing.
	Access drivers.Access
	// Targets are what matrices may inject faults into on this host, by name.
	Targets []plan.Target
	// Observes are the brokers whose processes this agent measures, by their names in matrices or their drivers. With
	// any, it takes no load.
	Observes map[string]plan.Processes
	// Drain is closed when the agent has to leave as soon as it is idle; nil: it stays until Serve's context ends.
	Drain <-chan struct{}
	// Stop is closed when the agent has to leave at once if it is idle, and else as with Drain; nil: never.
	Stop <-chan struct{}
	// Proc is where the host's processes are read; empty: /proc.
	Proc string
	// Status gets the slots of this agent; optional.
	Status *Status

	obey, leave, answer time.Duration // for tests; 0: obeyTimeout, leaveTimeout and answerTimeout
	host                string        // set by complete
}

// Causes for which a task ends early.
var (
	errStopping   = errors.New("the agent was asked to leave, and gave the task up")
	errSuperseded = errors.New("controller assigned another task")
	errDeadline   = errors.New("nothing from the controller until the task's deadline")
	errFinish     = errors.New("controller ended the task")
	errUnled      = errors.New("no controller leads the attempt any more")
)

// Serve registers with the controller and carries out assignments, one at a time in each slot, until ctx ends; then it
// ends the tasks in flight, says goodbye and returns nil. With Config.Drain and Stop each slot does so, too, once no
// task is in flight there any more. It returns an error when the controller refuses the agent or conn was closed,
// which stays the caller's.
func Serve(ctx context.Context, conn *wire.Agent, cfg Config) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, cfg.Slots)
	var slots sync.WaitGroup
	for i := range errs {
		slot := newSlot(conn, cfg, i)
		cfg.Status.add(slot)
		slots.Go(func() {
			if errs[i] = slot.run(ctx); errs[i] != nil {
				stop() // one that is refused ends all
			}
		})
	}
	slots.Wait()
	return errors.Join(errs...)
}

// complete checks the configuration and fills in what was left out.
func (cfg *Config) complete() (err error) {
	if cfg.Name == "" {
		return errors.New("start agent: it has no name")
	}
	if len(cfg.Observes) > 0 && cfg.Slots > 1 {
		return errors.New("start agent: an observer has no slots; it observes all tasks at once")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Proc, cfg.Slots = cmp.Or(cfg.Proc, "/proc"), max(cfg.Slots, 1)
	cfg.obey, cfg.leave = cmp.Or(cfg.obey, obeyTimeout), cmp.Or(cfg.leave, leaveTimeout)
	cfg.answer = cmp.Or(cfg.answer, answerTimeout)
	if cfg.host, err = os.Hostname(); err != nil {
		return fmt.Errorf("start agent: %w", err)
	}
	return nil
}
