package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/runview"
	"example.org/lockstep/lockstep/internal/sampling"
	"example.org/lockstep/lockstep/internal/sink"
	"example.org/lockstep/lockstep/internal/wire"
)

// Progress describes one entry of a run's record that a follower has stored. Kind determines which fields are set,
// besides N (place of the task, from 1), Of (number of tasks) and Task. Without a Kind only Entry is set.
type Progress struct {
	Kind   wire.EventKind
	At     time.Time
	N, Of  int
	Task   plan.Task // of a search: its step
	AtMost bool      // Of is a maximum: cells are repeated until they are known well enough
	// TaskStarted and LiveMetrics: step of a search; events of failures and waits: reason
	Detail  string
	Agents  []string // TaskStarted: names of its agents
	Live    runview.Metrics
	Outcome plan.Outcome
	End     wire.End   // RunEnded
	Run     *plan.Run  // RunAccepted: the plan
	Entry   wire.Entry // its entry; empty for ReplayStarted
}

// The kinds of progress besides those of events.
const (
	LiveMetrics   wire.EventKind = "live"    // Live; about once per second
	TaskEnded     wire.EventKind = "outcome" // Outcome, which is on disk
	ReplayStarted wire.EventKind = "replay"  // the run has ended, and all its points are written to InfluxDB again
)

// Reader reads the records of runs: a wire.Client, or a controller's wire.Store.
type Reader interface {
	// Local reports whether the control plane ends with this process. Then it has one follower.
	Local() bool
	// Read passes a part of a run's record to handle.
	Read(ctx context.Context, q wire.RecordQuery, handle func(wire.Entry) error) (*wire.End, error)
}

// Record copies a run's record from the control plane to its directory below root until the run has ended. It returns
// the run's end. watch is called in order from one goroutine; it may be nil. A control plane of this process deletes
// snapshots that were copied. When ctx ends, Record returns ctx's error; the run continues. A later call completes it.
//
// Record also writes the record's points to points, which may be nil, and closes points. If points were dropped and the
// run has ended, Record replays the run once. It also does so if the directory existed before, as an earlier process
// may have dropped points. The directory stores the counts. Points that are not written are no error.
func Record(ctx context.Context, conn Reader, run, root string, watch func(Progress), points *sink.Sink) (end wire.End,
	err error) {
	if watch == nil {
		watch = func(Progress) {}
	}
	f := &recorder{root: root, watch: watch, points: points, owns: conn.Local()}
	ended, err := conn.Read(ctx, wire.RecordQuery{Run: run, Wait: true}, f.entry)
	if err == nil {
		end = *ended
	}
	delivered := points.Close(ctx)
	if f.dir != nil {
		if points != nil {
			err = errors.Join(err, f.deliver(ctx, delivered, err == nil))
		}
		err = errors.Join(err, f.dir.Close())
	}
	return end, err
}

// Limits of the replay at the end of a run: time without progress, and total time. Both are below copyWait.
const (
	replayPatience = 5 * time.Second
	replayTimeout  = 30 * time.Second
)

// deliver stores the counts of the run's points. It replays an ended run once if points may be missing, and logs both.
func (f *recorder) deliver(ctx context.Context, d plan.Delivery, ended bool) error {
	stored := f.dir.AddDelivery(d)
	if d.Dropped == 0 && !f.resumed {
		return stored
	}
	run := f.dir.Plan().ID
	log := f.points.Log().With("run", run, "command", fmt.Sprintf("ctl runs replay --runs %s %s", f.root, run))
	if d.Dropped > 0 {
		log.Warn("points for InfluxDB dropped", "dropped", d.Dropped, "points", d.Points, "why", d.Why, "last",
			d.LastError)
	}
	if !ended {
		return stored
	}
	f.watch(Progress{Kind: ReplayStarted, At: time.Now()})
	late := fmt.Errorf("replay not complete after %v", replayTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, replayTimeout, late)
	defer cancel()
	again, err := Replay(ctx, f.dir, f.points, replayPatience)
	if err != nil || again.Left > 0 || again.Incomplete {
		last := again.LastError
		if err != nil {
			last = err.Error()
		}
		log.Warn("replay to InfluxDB incomplete", "left", again.Left, "points", again.Points,
			"why", again.Why, "last", last)
		return stored
	}
	log.Info("replay to InfluxDB complete", "points", again.Written)
	return stored
}

// Pulled is the result of Pull.
type Pulled struct {
	Dir    string    // of the run
	End    *wire.End // nil: the run has not ended
	Done   int       // number of tasks with an outcome in the directory
	Of     int
	AtMost bool // Of is a maximum: cells are repeated until they are known well enough
}

// Complete reports whether every task has an outcome.
func (p Pulled) Complete() bool { return p.Of > 0 && p.Done == p.Of }

// Pull copies the available part of a run's record from the control plane to its directory below root. It completes an
// existing directory and keeps its contents. The error wraps wire.ErrNoRecord if the control plane has none.
func Pull(ctx context.Context, conn *wire.Client, run, root string) (Pulled, error) {
	f := &recorder{root: root, watch: func(Progress) {}}
	end, err := conn.Read(ctx, wire.RecordQuery{Run: run}, f.entry)
	if f.dir == nil {
		return Pulled{End: end}, err
	}
	p := Pulled{Dir: f.dir.Dir(), End: end, Done: len(f.dir.DoneTasks()), Of: f.rounds.Tasks(), AtMost: f.rounds.Open()}
	return p, errors.Join(err, f.dir.Close())
}

type recorder struct {
	root    string
	watch   func(Progress)
	dir     *runs.Run
	state   *runview.State // nil before the plan
	rounds  *sampling.Rounds
	skip    bool // the attempt in flight is on disk already
	points  *sink.Sink
	resumed bool // the directory existed: an earlier process may have dropped points
	owns    bool // the control plane is of this process, which is its one follower
}

func (f *recorder) entry(e wire.Entry) error {
	var p Progress
	var err error
	switch {
	case e.Err != nil:
		if errors.Is(e.Err, wire.ErrProtocol) && e.Agent == "" {
			return e.Err // from the controller: later entries cannot be read either
		}
		return nil // from an agent: the controller reports the consequence
	case e.Plan != nil:
		err = f.plan(e)
	case f.dir == nil && e.Event != nil && e.Event.End != nil: // refused before it had a plan
		p = Progress{Kind: wire.RunEnded, At: e.Event.At, End: *e.Event.End}
	case f.dir == nil:
		return errors.New("its plan is no longer in the record")
	case e.Event != nil:
		p, err = f.event(e)
	case e.Snapshot != nil:
		p, err = f.snapshot(e)
	case e.Outcome != nil:
		p, err = f.outcome(e)
	}
	if err != nil {
		return err
	}
	p.Entry = e
	f.watch(p)
	return nil
}

func (f *recorder) plan(e wire.Entry) error {
	if f.dir != nil { // the run was submitted again or continued
		return nil
	}
	run := *e.Plan
	dir, err := runs.Create(f.root, run)
	if err != nil {
		return err
	}
	f.dir, f.rounds, f.state = dir, dir.Rounds(), runview.New(run)
	if f.owns {
		if err := dir.Hold(); err != nil {
			return err
		}
	}
	marks, err := dir.Marks()
	f.resumed = len(marks) > 0 || err != nil
	f.points.Begin(run)
	return nil
}

func (f *recorder) event(entry wire.Entry) (p Progress, err error) {
	e := *entry.Event
	f.state.Apply(entry, time.Now())
	t, _ := f.state.TaskOf(e.Task)
	p = Progress{Kind: e.Kind, At: e.At, N: f.state.TaskN, Of: f.state.Of, AtMost: f.rounds.Open(), Task: t,
		Detail: e.Detail}
	switch e.Kind {
	case wire.StepEnded:
		return Progress{}, nil
	case wire.RunAccepted:
		run := f.dir.Plan()
		p.Run = &run
	case wire.TaskStarted:
		p.Task, p.Agents = f.state.Attempt.Task, e.Agents
		err = f.begin(e)
	case wire.AttemptEnded:
		err = f.endTry(e)
	case wire.TaskInterrupted:
		err = f.giveUp(e)
	case wire.RunEnded:
		if e.End == nil {
			return Progress{}, nil
		}
		p.End = *e.End
		if err = f.dir.Mark(runs.Mark{At: e.At, Kind: runs.MarkEnd, Text: string(e.End.Reason),
			Detail: e.End.Detail}); err == nil {
			f.points.End(e.At, string(e.End.Reason))
		}
	}
	return p, err
}

// begin starts the record of an attempt, unless it is on disk already.
func (f *recorder) begin(e wire.RunEvent) error {
	t, known := f.state.TaskOf(e.Task)
	if !known {
		return fmt.Errorf("event of task %q, which is not in the plan of the run", e.Task)
	}
	err := f.dir.BeginAttempt(e.Task, e.Attempt)
	if f.skip = errors.Is(err, runs.ErrDone); f.skip {
		return nil
	}
	if err != nil {
		return err
	}
	m := runs.Mark{At: e.At, Kind: runs.MarkStart, Task: e.Task, Name: e.Attempt, Agents: e.Agents,
		Attempt: f.dir.Attempt(e.Task)}
	if e.Load != nil {
		m.Rate, m.Measure = e.Load.Rate, e.Load.Measure
	}
	if err := f.dir.Mark(m); err != nil {
		return err
	}
	f.points.Start(startOf(t, m))
	return nil
}

func startOf(t plan.Task, m runs.Mark) sink.Start {
	if m.Rate > 0 {
		t = t.Step(m.Rate, m.Measure)
	}
	return sink.Start{Task: t, Attempt: m.Attempt, At: m.At, Agents: m.Agents}
}

func (f *recorder) giveUp(e wire.RunEvent) error {
	f.points.GiveUp(e.Task, e.At, plan.Redact(e.Detail))
	return f.dir.Mark(runs.Mark{At: e.At, Kind: runs.MarkGiveUp, Task: e.Task, Name: e.Attempt, Text: e.Detail})
}

// endTry stores an attempt that does not count.
func (f *recorder) endTry(e wire.RunEvent) error {
	if e.Outcome == nil || f.dir.Done(e.Task) {
		return nil
	}
	if _, known := f.state.TaskOf(e.Task); !known || e.Outcome.Task != e.Task {
		return fmt.Errorf("event of task %q, which is not in the plan of the run", e.Task)
	}
	if err := f.giveUp(e); err != nil {
		return err
	}
	return f.dir.EndAttempt(e.Attempt, *e.Outcome)
}

// snapshot stores a snapshot of the attempt in flight. Others were not judged and are skipped.
func (f *recorder) snapshot(e wire.Entry) (p Progress, err error) {
	a := f.state.Attempt
	if f.skip || !a.Takes(e.Ref, e.Snapshot) {
		return p, nil
	}
	if err := f.dir.Append(e.Ref.Task, *e.Snapshot); err != nil {
		return p, err
	}
	f.points.Snapshot(*e.Snapshot)
	if f.state.Apply(e, time.Now()) {
		p = Progress{Kind: LiveMetrics, At: time.Now(), N: f.state.TaskN, Of: f.state.Of, AtMost: f.rounds.Open(),
			Task: a.Task, Detail: a.Started.Detail, Agents: a.Started.Agents, Live: *a.Newest()}
	}
	return p, nil
}

func (f *recorder) outcome(e wire.Entry) (p Progress, err error) {
	o := *e.Outcome
	task, known := f.state.TaskOf(o.Task)
	if !known {
		return p, fmt.Errorf("outcome of task %q, which is not in the plan of the run", o.Task)
	}
	if !f.dir.Done(o.Task) {
		if err := f.dir.Finish(o); err != nil {
			return p, err
		}
		kept, err := f.dir.Outcome(o.Task) // with the attempts from the record
		if err != nil {
			return p, err
		}
		f.points.Outcome(kept, sink.Start{Task: task, Attempt: f.dir.Attempt(o.Task)})
	}
	p = Progress{Kind: TaskEnded, At: o.Ended, Of: f.state.Of, AtMost: f.rounds.Open(), Task: task, Outcome: o}
	f.rounds.Add(o)
	f.state.Apply(e, time.Now())
	if f.state.Task == o.Task {
		p.N = f.state.TaskN
	}
	return p, nil
}
