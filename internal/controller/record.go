package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	past "example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/report/page"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/runview"
	"example.org/lockstep/lockstep/internal/sampling"
	"example.org/lockstep/lockstep/internal/sink"
	"example.org/lockstep/lockstep/internal/wire"
)

// Progress describes one entry of a run's record that a follower has stored. Kind determines which fields are set,
// besides N (place of the task, from 1), Of (number of tasks) and Task. Without a Kind only Entry is set.
type Progress struct {
	Kind    wire.EventKind
	At      time.Time
	N, Of   int
	Task    plan.Task // of a search: its step
	AtMost  bool      // Of is a maximum: cells are repeated until they are known well enough
	Detail  string    // TaskStarted: step of a search; events of failures and waits: reason
	Outcome plan.Outcome
	Entry   wire.Entry // its entry; empty for ReplayStarted
}

// The kinds of progress besides those of events.
const (
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
		p = Progress{Kind: wire.RunEnded, At: e.Event.At}
	case f.dir == nil:
		return errors.New("its plan is no longer in the record")
	case e.Event != nil:
		p, err = f.event(e)
	case e.Snapshot != nil:
		err = f.snapshot(e)
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
		if err := dir.Lock(); err != nil {
			return err
		}
	}
	timeline, err := dir.Timeline()
	f.resumed = len(timeline) > 0 || err != nil
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
	case wire.TaskStarted:
		p.Task = f.state.Attempt.Task
		err = f.begin(e)
	case wire.AttemptEnded:
		err = f.endAttempt(e)
	case wire.TaskInterrupted:
		err = f.giveUp(e)
	case wire.RunEnded:
		if e.End == nil {
			return Progress{}, nil
		}
		if err = f.dir.AddEvent(runs.TimelineEvent{At: e.At, Kind: runs.TimelineEnd, Text: string(e.End.Reason),
			Detail: e.End.Detail, Submission: e.End.Submission}); err == nil {
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
	m := runs.TimelineEvent{At: e.At, Kind: runs.TimelineStart, Task: e.Task, Name: e.Attempt, Agents: e.Agents,
		Attempt: f.dir.Attempt(e.Task)}
	if e.Load != nil {
		m.Rate, m.Measure = e.Load.Rate, e.Load.Measure
	}
	if err := f.dir.AddEvent(m); err != nil {
		return err
	}
	f.points.Start(startOf(t, m))
	return nil
}

func startOf(t plan.Task, m runs.TimelineEvent) sink.Start {
	if m.Rate > 0 {
		t = t.Step(m.Rate, m.Measure)
	}
	return sink.Start{Task: t, Attempt: m.Attempt, At: m.At, Agents: m.Agents}
}

func (f *recorder) giveUp(e wire.RunEvent) error {
	f.points.GiveUp(e.Task, e.At, plan.Redact(e.Detail))
	return f.dir.AddEvent(runs.TimelineEvent{At: e.At, Kind: runs.TimelineGiveUp, Task: e.Task, Name: e.Attempt,
		Text: e.Detail})
}

// endAttempt stores an attempt that does not count.
func (f *recorder) endAttempt(e wire.RunEvent) error {
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
func (f *recorder) snapshot(e wire.Entry) error {
	if f.skip || !f.state.Attempt.Takes(e.Ref, e.Snapshot) {
		return nil
	}
	err := f.dir.Append(e.Ref.Task, *e.Snapshot)
	if err == nil {
		f.points.Snapshot(*e.Snapshot)
	}
	return err
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

// Replay writes all points of a run again, from its directory alone, to the InfluxDB of to. The caller keeps the
// ownership of to. The points have the same tags, times and fields as during the run, so each is stored once.
//
// Replay waits until all points are written. It gives up when InfluxDB accepts no point for the duration of patience.
// It stores the counts in the directory and returns them. Points that InfluxDB does not accept are no error.
func Replay(ctx context.Context, dir *runs.Run, to *sink.Sink, patience time.Duration) (plan.Delivery, error) {
	points := to.ForReplay(patience)
	failed := replayAll(ctx, dir, points)
	incomplete := failed != nil
	if failed == nil {
		failed = points.Drain(ctx)
	}
	closing, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if failed != nil {
		cancel(failed) // Close does not wait again
	}
	d := points.Close(closing)
	d.Incomplete = incomplete
	// all points are written, or Left and LastError describe the rest
	if !incomplete && d.Left == 0 || errors.Is(failed, sink.ErrAway) {
		failed = nil
	}
	if failed != nil {
		d.Cause = cmp.Or(context.Cause(ctx), failed).Error()
		if errors.Is(context.Cause(ctx), context.Canceled) {
			d.Cause = "interrupted"
		}
	}
	return d, errors.Join(failed, dir.AddDelivery(d))
}

// replayAll passes all points of a run to a sink. It does not wait until they are written.
func replayAll(ctx context.Context, dir *runs.Run, points *sink.Sink) error {
	timeline, err := dir.Timeline()
	if err != nil {
		return err
	}
	byTask := map[string][]runs.TimelineEvent{} // "": of the run itself
	for _, m := range timeline {
		byTask[m.Task] = append(byTask[m.Task], m)
	}
	points.Begin(dir.Plan())
	for _, t := range dir.Plan().Tasks() {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := replayTask(ctx, dir, t, byTask[t.ID], points); err != nil {
			return fmt.Errorf("write points of task %s again: %w", t.ID, err)
		}
	}
	for _, m := range byTask[""] {
		if m.Kind == runs.TimelineEnd {
			points.End(m.At, m.Text)
		}
	}
	return nil
}

// replayTask passes the points of all attempts and of the outcome of a task to a sink.
func replayTask(ctx context.Context, dir *runs.Run, t plan.Task, events []runs.TimelineEvent, points *sink.Sink) error {
	for _, m := range events {
		switch m.Kind {
		case runs.TimelineStart:
			points.Start(startOf(t, m))
			err := dir.Snapshots(t.ID, m.Name, func(s record.Snapshot) error {
				err := points.AwaitSpace(ctx)
				if err == nil {
					points.Snapshot(s)
				}
				return err
			})
			if err != nil {
				return err
			}
		case runs.TimelineGiveUp:
			points.GiveUp(t.ID, m.At, m.Text)
		}
	}
	if o, err := dir.Outcome(t.ID); err == nil {
		points.Outcome(o, sink.Start{Task: t, Attempt: dir.Attempt(t.ID)})
	}
	return points.AwaitSpace(ctx)
}

// copyEvery is the interval at which a controller looks for runs to copy.
const copyEvery = 2 * time.Second

// maxCopies is the number of ended runs copied at the same time. Executed runs are copied in addition. copyAgain is
// the maximum pause between attempts to copy a run; the pause doubles from copyEvery.
const (
	maxCopies = 2
	copyAgain = 5 * time.Minute
)

// copies manages a controller's copies of runs. Every controller copies runs that have ended. The leader also follows
// executed runs, copies them first, and writes their points.
type copies struct {
	store   *wire.Store
	cfg     Config
	leads   atomic.Bool
	mu      sync.Mutex
	of      map[string]*copying // by run
	backlog int                 // number of ended runs that are being copied
	reports sync.Mutex
}

type copying struct {
	seq   uint64 // of the submission
	now   bool   // a goroutine copies it
	whole bool
	wait  time.Duration
	next  time.Time // of the next attempt
}

// run copies runs until ctx ends, and marks ended runs that have a complete copy.
func (k *copies) run(ctx context.Context) {
	var under sync.WaitGroup
	defer under.Wait()
	for wire.Wait(ctx, copyEvery) == nil {
		all, err := k.store.Runs(ctx)
		if err != nil && ctx.Err() == nil {
			k.cfg.Log.Warn("cannot list runs to copy", "err", err)
		}
		if err == nil {
			k.mu.Lock()
			maps.DeleteFunc(k.of, func(run string, c *copying) bool { // copies that are being made keep their state
				return !c.now && !slices.ContainsFunc(all, func(r wire.RunState) bool { return r.Run == run })
			})
			k.mu.Unlock()
		}
		for _, r := range all {
			begin, whole := k.begin(r)
			if whole && r.Over() && !r.Copied {
				if err := k.store.MarkCopied(ctx, r); err != nil && ctx.Err() == nil {
					k.cfg.Log.Warn("cannot store that a run was copied", "run", r.Run, "err", err)
				}
			}
			if !begin {
				continue
			}
			under.Go(func() {
				k.end(ctx, r, wire.Guard(k.cfg.Log, "copy run "+r.Run, func() error {
					var points *sink.Sink
					if k.cfg.Points != nil && k.leads.Load() {
						points = k.cfg.Points()
					}
					_, err := Record(ctx, k.store, r.Run, k.cfg.Copies, nil, points)
					if err == nil {
						k.reports.Lock() // one at a time, because of their memory
						defer k.reports.Unlock()
						k.writeReport(ctx, r.Run)
					}
					return err
				}))
			})
		}
	}
}

// begin reports whether a run must be copied now, and whether its copy is complete.
func (k *copies) begin(r wire.RunState) (begin, whole bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.of[r.Run]
	if c != nil && c.now { // an earlier copy of the run is running: it continues to the end of this submission
		return false, false
	}
	if c == nil || c.seq != r.Seq {
		c = &copying{seq: r.Seq, whole: r.Over() && copied(k.cfg.Copies, r)}
		k.of[r.Run] = c
	}
	leads := k.leads.Load()
	if c.whole || time.Now().Before(c.next) || r.State == wire.StateQueued ||
		!leads && (!r.Over() || time.Since(r.Ended) < copyWait) {
		return false, c.whole
	}
	if r.Over() {
		if k.backlog == maxCopies {
			return false, false
		}
		k.backlog++
	}
	c.now = true
	return true, false
}

// copied reports whether the folder has a complete copy of the last submission of a run that has ended.
func copied(root string, r wire.RunState) bool {
	run, err := runs.Open(root, filepath.Join(root, r.Run))
	if err != nil {
		return false
	}
	timeline, err := run.Timeline()
	return err == nil && slices.ContainsFunc(timeline,
		func(m runs.TimelineEvent) bool { return m.Kind == runs.TimelineEnd && m.Submission >= r.Seq })
}

// end stores the result of a copy: complete, or to be retried later.
func (k *copies) end(ctx context.Context, r wire.RunState, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.Over() {
		k.backlog--
	}
	c := k.of[r.Run]
	gone := r.Copied && (errors.Is(err, wire.ErrNoRun) || errors.Is(err, wire.ErrNoRecord)) // others have copies
	c.now, c.whole = false, err == nil || gone
	if c.whole || ctx.Err() != nil {
		return
	}
	c.wait = min(max(2*c.wait, copyEvery), copyAgain)
	c.next = time.Now().Add(c.wait)
	k.cfg.Log.Error("cannot copy run: it stays on the control plane and is copied later", "run", r.Run, "in", c.wait, "err",
		err)
}

// writeReport writes tables and a report beside a copy, and adds its values to the history. A failure does not make the
// copy incomplete: ctl show -o html and ctl history reindex repeat both. A panic is caught, as agents may report
// anything.
func (k *copies) writeReport(ctx context.Context, id string) {
	run, err := runs.Open(k.cfg.Copies, filepath.Join(k.cfg.Copies, id))
	if errors.Is(err, fs.ErrNotExist) {
		return // refused before it had a plan
	}
	if err == nil {
		err = wire.Guard(k.cfg.Log, "report of run "+id, func() error { return page.Keep(run) })
	}
	if err != nil {
		k.cfg.Log.Warn("cannot write tables and report of a run; write them with ctl show -o html", "run", id, "err", err)
	}
	if err := wire.Guard(k.cfg.Log, "history of run "+id,
		func() error { return past.Of(k.cfg.Copies).Add(ctx, id) }); err != nil {
		k.cfg.Log.Warn("cannot add a run to the history; add it with ctl history reindex", "run", id, "err", err)
	}
}

// copyWait is how long a hook waits for the leader's copy of its run. A standby controller waits that long before it
// copies the run. The leader follows the run, so its copy is complete soon after the end, or never.
const copyWait = time.Minute
