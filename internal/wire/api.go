package wire

import (
	"context"
	"log/slog"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/schedule"
)

// Agent is the control plane as an agent uses it.
type Agent interface {
	// Pulse sends heartbeats until ctx ends, or until the controller refuses the agent.
	Pulse(ctx context.Context, now func() Heartbeat) error
	// Epoch is the highest leadership that was heard of.
	Epoch() uint64
	// AskClock asks the reference for its time once.
	AskClock(ctx context.Context) (reference string, x clock.Exchange, err error)
	// Assignments and Releases hand over what a controller sends, until ctx ends or handle returns false.
	Assignments(ctx context.Context, agent, instance string, handle func(Assignment, Ref, error) bool) error
	Releases(ctx context.Context, ref Ref, handle func(Release, error) bool) error
	// Arrive and Snapshot store what an agent reports of a try, once for each key.
	Arrive(ctx context.Context, key string, a Arrival) error
	Snapshot(ctx context.Context, key string, ref Ref, s record.Snapshot) error
	// LocalPort is the port of the control plane if that is on this host, else 0: faults of the network spare it.
	LocalPort() int
}

// Reader is what a follower of a run needs: a Client, or the connection of a controller.
type Reader interface {
	// Local reports whether the control plane lives and dies with this process, and has one follower.
	Local() bool
	// Follow hands a run's record to handle until the run has ended.
	Follow(ctx context.Context, run string, handle func(Entry) error) (End, error)
	// Forget deletes the arrivals and snapshots of a task, once the one follower of a local run has them.
	Forget(ctx context.Context, ref Ref) error
}

// Leader is the control plane as a controller uses it, whether it leads or stands by. What only the controller that
// leads may do is a method of the Lease that Campaign returns.
type Leader interface {
	Reader
	// Prepare makes the streams.
	Prepare(ctx context.Context) error
	// Campaign waits until this controller leads.
	Campaign(ctx context.Context, who LeaderInfo, log *slog.Logger) (*Lease, error)
	// Linked reports whether there is a link, Relinked receives when a lost one is there again, and RTT measures it.
	Linked() bool
	Relinked() <-chan struct{}
	RTT() (time.Duration, error)
	// Roll asks every agent for a heartbeat; Heartbeats hears them.
	Roll() error
	Heartbeats(handle func(Heartbeat) (refuse string), refused func(h Heartbeat, why string)) (stop func(), err error)
	// AnswerClock answers agents until stop is called.
	AnswerClock() (stop func(), err error)
	// Queue hands over submissions and cancellations; Discard deletes one of them.
	Queue(ctx context.Context, handle func(Request)) error
	Queued(ctx context.Context, run string) (bool, error)
	Discard(ctx context.Context, seq uint64) error
	// Watch hands over what agents report of a run, Released what was released, and Tries what is known of former tries.
	Watch(ctx context.Context, run string, from uint64, handle func(Entry)) error
	Released(ctx context.Context, ref Ref) ([]Release, error)
	Tries(ctx context.Context, run string) (map[string][]plan.Tried, error)
	Runs(ctx context.Context) ([]RunState, error)
	RunState(ctx context.Context, run string) (RunState, error)
	// Await is Follow without snapshots.
	Await(ctx context.Context, run string, handle func(Entry) error) (End, error)
	Schedule(ctx context.Context, name string) (KeptSchedule, error)
	PutSchedule(ctx context.Context, s schedule.Schedule, revision uint64) (uint64, error)
	WatchSchedules(ctx context.Context, handle func(KeptSchedule)) error
}

// Conn serves both.
var (
	_ Agent  = (*Conn)(nil)
	_ Leader = (*Conn)(nil)
)
