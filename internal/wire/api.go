package wire

import (
	"context"
	"log/slog"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/schedule"
)

// Reader is what a follower of a run needs: a Client, or the connection of a controller.
type Reader interface {
	// Local reports whether the control plane lives and dies with this process, and has one follower.
	Local() bool
	// Follow hands a run's record to handle until the run has ended.
	Follow(ctx context.Context, run string, handle func(Entry) error) (End, error)
	// Forget deletes the snapshots of a task, once the one follower of a local run has them.
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
	// Linked reports whether there is a link, LinkedSince since when, Relinked receives when a lost one is there again,
	// and RTT measures it.
	Linked() bool
	LinkedSince() (time.Time, bool)
	Relinked() <-chan struct{}
	RTT() (time.Duration, error)
	// Queue hands over submissions and cancellations.
	Queue(ctx context.Context, handle func(Request), read func()) error
	Runs(ctx context.Context) ([]RunState, error)
	RunState(ctx context.Context, run string) (RunState, error)
	// MarkCopied notes in the state of a run that a controller has a copy.
	MarkCopied(ctx context.Context, s RunState) error
	// Await is Follow without snapshots.
	Await(ctx context.Context, run string, handle func(Entry) error) (End, error)
	Baseline(ctx context.Context, name string) (plan.BaselineRecord, error)
	Schedule(ctx context.Context, name string) (KeptSchedule, error)
	PutSchedule(ctx context.Context, s schedule.Schedule, revision uint64) (uint64, error)
	Schedules(ctx context.Context) ([]KeptSchedule, error)
	Edited() <-chan struct{}
}

var _ Leader = (*Conn)(nil)
