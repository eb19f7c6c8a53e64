// Package agent executes assignments on a client host. A slot registers with the controller and executes one assignment
// at a time. A lifecycle opens a driver's session, leads the engine through the steps that the controller releases, and
// reports snapshots of the measurements. After every task all its resources are released. No secret leaves the host.
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

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// Config configures an agent. It has one field per flag of the program, and timeouts that tests shorten.
type Config struct {
	Name    string // unique in the fleet
	Labels  map[string]string
	Dir     string // folder for temporary files of tasks; empty: the system's temporary folder
	Slots   int    // maximum number of concurrent tasks; 0: one
	Version string // of this program, for records
	Log     *slog.Logger
	// Access defines what matrices may read from this host. The zero value allows nothing.
	Access drivers.Access
	// Targets are the targets of faults on this host.
	Targets []plan.Target
	// Observes are the brokers whose processes this agent measures, by their name in matrices or their driver. An agent
	// with any is an observer: it gets no load.
	Observes map[string]plan.Processes
	// Drain is closed when the agent must leave as soon as it is idle. nil: never.
	Drain <-chan struct{}
	// Stop is closed when the agent must leave: at once if it is idle, else as with Drain. nil: never.
	Stop <-chan struct{}
	// Proc is the path of the proc file system; empty: /proc. With another path, which is for tests, Go's runtime is
	// not measured either.
	Proc string
	// Status receives the slots of this agent; optional.
	Status *Status

	obey, leave, answer time.Duration // for tests; 0: obeyTimeout, leaveTimeout and answerTimeout
	host                string        // set by complete
}

const defaultProc = "/proc"

// Causes of the early end of a task.
var (
	errStopping   = errors.New("the agent was stopped and aborted the task")
	errSuperseded = errors.New("controller assigned another task")
	errDeadline   = errors.New("no message from the controller until the deadline of the task")
	errFinish     = errors.New("controller ended the task")
	errUnled      = errors.New("no controller leads the attempt")
)

// Serve registers with the controller and executes assignments, one at a time per slot, until ctx ends. Then it ends
// the tasks in flight, sends leaving heartbeats and returns nil. After Config.Drain or Stop each slot does the same
// when it is idle. Serve returns an error if the controller refuses the agent, or conn was closed. The caller keeps the
// ownership of conn.
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
				stop() // a refused slot ends all slots
			}
		})
	}
	slots.Wait()
	return errors.Join(errs...)
}

// complete checks the configuration and sets the defaults.
func (cfg *Config) complete() (err error) {
	if cfg.Name == "" {
		return errors.New("start agent: no name")
	}
	if len(cfg.Observes) > 0 && cfg.Slots > 1 {
		return errors.New("start agent: an observer has no slots, because it observes all tasks")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Proc, cfg.Slots = cmp.Or(cfg.Proc, defaultProc), max(cfg.Slots, 1)
	cfg.obey, cfg.leave = cmp.Or(cfg.obey, obeyTimeout), cmp.Or(cfg.leave, leaveTimeout)
	cfg.answer = cmp.Or(cfg.answer, answerTimeout)
	if cfg.host, err = os.Hostname(); err != nil {
		return fmt.Errorf("start agent: %w", err)
	}
	return nil
}
