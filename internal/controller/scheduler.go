package controller

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/procs"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/runview"
	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/wire"
)

// schedulesEvery is the maximum interval at which the schedules are read.
const schedulesEvery = 20 * time.Second

// scheduler fires schedules while its controller leads. Every change of a schedule is stored by compare-and-set before
// it takes effect. So another scheduler can continue at any point, and two schedulers at the same time do no harm.
type scheduler struct {
	store   *wire.Store
	lease   *wire.Leader
	cfg     Config
	keepers map[string]*keeper
	wg      sync.WaitGroup
}

// run fires schedules until ctx ends, and waits for the goroutines that it started.
func (s *scheduler) run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer s.wg.Wait()
	defer stop()
	var known []wire.KeptSchedule
	for ctx.Err() == nil {
		again := time.NewTimer(schedulesEvery)
		all, err := s.store.Schedules(ctx, known)
		if err == nil {
			known = all
			s.update(ctx, all)
		} else if ctx.Err() == nil {
			s.cfg.Log.Warn("cannot read the schedules; retrying", "err", err)
			again.Reset(time.Second)
		}
		select {
		case <-s.lease.Edited():
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
	}
}

// update passes schedules to their keepers, and stops the keepers of removed schedules.
func (s *scheduler) update(ctx context.Context, all []wire.KeptSchedule) {
	for name, k := range s.keepers {
		same := func(kept wire.KeptSchedule) bool {
			return kept.Name == name && (kept.Err != nil || kept.Schedule.ID == k.id)
		}
		if !slices.ContainsFunc(all, same) {
			k.stop()
			delete(s.keepers, name)
		}
	}
	for _, kept := range all {
		k := s.keepers[kept.Name]
		if k == nil {
			ctx, stop := context.WithCancel(ctx)
			k = &keeper{store: s.store, lease: s.lease, cfg: s.cfg, name: kept.Name, id: kept.Schedule.ID, stop: stop,
				inbox: make(chan wire.KeptSchedule, 1), results: make(chan func(context.Context), 2),
				log: s.cfg.Log.With("schedule", kept.Name)}
			s.keepers[kept.Name] = k
			s.wg.Go(func() {
				for wire.Guard(k.log, "schedule", func() error { k.run(ctx); return nil }) != nil {
					k.kept = wire.KeptSchedule{} // it fires again after a change; the others fire
				}
			})
		}
		if k.handed == kept.Revision {
			continue
		}
		k.handed = kept.Revision
		select { // only the newest counts
		case <-k.inbox:
		default:
		}
		k.inbox <- kept
	}
}

// keeper fires one schedule.
type keeper struct {
	store   *wire.Store
	lease   *wire.Leader
	cfg     Config
	name    string
	id      string // of the schedule; a later schedule of the same name has another
	handed  uint64 // revision last sent to inbox; used by the scheduler only
	stop    context.CancelFunc
	inbox   chan wire.KeptSchedule
	results chan func(context.Context) // store the end of the awaited run, and the result of the called hook
	log     *slog.Logger

	kept    wire.KeptSchedule
	table   *schedule.Timetable
	awaited string // the run whose end is awaited
	calling string // the run whose hook is being called
	wg      sync.WaitGroup
}

// run handles changes of the schedule, slots, ended runs and hook results until ctx ends.
func (k *keeper) run(ctx context.Context) {
	defer k.wg.Wait()
	ctx, unwatch := k.cfg.Status.watch(ctx, "schedule "+k.name)
	defer unwatch()
	for ctx.Err() == nil {
		wire.Progress(ctx, 0)
		tick := time.NewTimer(k.act(ctx))
		select {
		case kept := <-k.inbox:
			k.take(kept)
		case store := <-k.results:
			store(ctx)
		case <-tick.C:
		case <-ctx.Done():
		}
		tick.Stop()
	}
}

// take replaces the current state by the one that was read, unless the current one is newer.
func (k *keeper) take(kept wire.KeptSchedule) {
	if kept.Revision < k.kept.Revision {
		return
	}
	before := k.kept
	k.kept = kept
	if kept.Err == nil && (k.table == nil || before.Schedule.Cron != kept.Schedule.Cron ||
		before.Schedule.Zone != kept.Schedule.Zone) {
		k.table, k.kept.Err = schedule.NewTimetable(kept.Schedule.Cron, kept.Schedule.Zone)
	}
	if k.kept.Err != nil && (before.Err == nil || before.Err.Error() != k.kept.Err.Error()) {
		k.log.Error("invalid schedule: it does not fire", "err", k.kept.Err)
	}
}

// change stores the schedule as edited by edit. If another writer changed it meanwhile, edit is applied again to the
// newer state. edit returns false if it changes nothing.
func (k *keeper) change(ctx context.Context, edit func(*schedule.Schedule) bool) {
	for ctx.Err() == nil && k.kept.Err == nil {
		s := k.kept.Schedule.Clone()
		if !edit(&s) {
			return
		}
		revision, err := k.store.PutSchedule(ctx, s, k.kept.Revision)
		if err == nil {
			k.kept.Schedule, k.kept.Revision = s, revision
			return
		}
		if errors.Is(err, wire.ErrChanged) {
			kept, read := k.store.Schedule(ctx, k.name)
			if errors.Is(read, wire.ErrNoSchedule) {
				k.kept = wire.KeptSchedule{} // removed; the next reading of the schedules stops this keeper
				return
			}
			if read == nil {
				k.take(kept)
				continue
			}
			err = read
		}
		if ctx.Err() == nil {
			k.log.Warn("cannot store a schedule; retrying", "err", err)
		}
		_ = wire.Wait(ctx, time.Second) // the loop checks ctx
	}
}

// act performs the actions that are due, and returns the time until it is called again. That is at most reportEvery, as
// wall clocks are set, and hosts sleep.
func (k *keeper) act(ctx context.Context) time.Duration {
	if k.kept.Revision == 0 || k.kept.Err != nil {
		return reportEvery
	}
	k.change(ctx, func(s *schedule.Schedule) bool { return s.Due(k.table, k.cfg.Clock()) })
	if e := k.kept.Schedule.Current; e != nil && e.State == schedule.Starting {
		k.fire(ctx, *e)
	}
	if e := k.kept.Schedule.Current; e != nil && e.State == schedule.Submitted && k.awaited == "" {
		run := e.Run
		k.awaited = run
		unwatched := wire.WithProgress(ctx, nil) // this goroutine's progress is not watched
		k.wg.Go(func() {
			_ = wire.Guard(k.log, "await run "+run, func() error { k.await(unwatched, run); return nil })
		})
	}
	if e := k.kept.Schedule.Uncalled(); e != nil && k.calling == "" {
		k.callHook(ctx, *e)
	}
	if k.kept.Revision == 0 {
		return reportEvery
	}
	next := k.kept.Schedule.Wake(k.table)
	if next.IsZero() {
		return reportEvery
	}
	return min(next.Sub(k.cfg.Clock()), reportEvery)
}

// awaitCopy waits for the complete copy of an entry's run and returns its directory; empty: this host has none.
func (k *keeper) awaitCopy(ctx context.Context, e schedule.Entry) string {
	if k.cfg.Copies == "" || e.Run == "" || e.State == schedule.MatrixError {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, copyWait)
	defer cancel()
	for {
		state, err := k.store.RunState(ctx, e.Run)
		if err == nil && (state.Run == "" || state.Copied && copied(k.cfg.Copies, state)) {
			return k.directory(e.Run)
		}
		if wire.Wait(ctx, copyEvery/4) != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				k.log.Warn("the run has not been copied: its hook is called without a directory", "run", e.Run, "waited",
					copyWait, "err", err)
			}
			return ""
		}
	}
}

// directory returns the directory of the controller's copy of a run, complete or not; empty: there is none with a plan.
func (k *keeper) directory(run string) string {
	if k.cfg.Copies == "" || run == "" {
		return ""
	}
	dir := filepath.Join(k.cfg.Copies, run)
	if _, err := runs.Open(k.cfg.Copies, dir); err != nil {
		return ""
	}
	return dir
}

// fire expands and submits the run of a slot whose entry is stored as the current one.
func (k *keeper) fire(ctx context.Context, e schedule.Entry) {
	k.change(ctx, func(s *schedule.Schedule) bool { return s.Begin(e.Run, k.lease.Epoch(), k.cfg.Clock()) })
	s := k.kept.Schedule
	if c := s.Current; ctx.Err() != nil || c == nil || c.Run != e.Run || c.State != schedule.Starting ||
		c.Epoch != k.lease.Epoch() {
		return
	}
	var run plan.Run
	wire.Progress(ctx, 12*time.Hour) // more than Config.Expand takes, with the calls of all other schedules before it
	err := wire.Guard(k.log, "the matrix of schedule "+s.Name,
		func() (err error) { run, err = k.cfg.Expand(ctx, s.Matrix); return err })
	run.ID, run.Started = e.Run, k.cfg.Clock().UTC()
	submission := wire.Submission{Run: run, By: s.By, Schedule: s.Name}
	if err == nil {
		err = check(&submission)
	}
	again := false // the control plane may accept it later
	if err == nil {
		err = k.lease.SubmitOnce(ctx, submission)
		again = err != nil && !errors.Is(err, wire.ErrTooLarge)
	}
	switch {
	case err == nil:
		k.log.Info("run submitted for slot", "slot", e.At, "run", e.Run)
		k.change(ctx, func(s *schedule.Schedule) bool { return s.Submit(e.Run) })
	case ctx.Err() != nil:
	case again:
		k.log.Error("cannot submit the run of a slot; retrying", "run", e.Run, "err", err)
		wait := time.Second
		if errors.Is(err, wire.ErrFull) {
			wait = 30 * time.Second // until a run has ended; each attempt expands the matrix
		}
		_ = wire.Wait(ctx, wait) // the loop checks ctx
	default:
		k.log.Error("slot without a run", "slot", e.At, "err", err)
		k.change(ctx, func(s *schedule.Schedule) bool { return s.Fail(e.Run, plan.Redact(err.Error()), k.cfg.Clock()) })
	}
}

// report passes a function that stores a result to the goroutine of run.
func (k *keeper) report(ctx context.Context, store func(context.Context)) {
	select {
	case k.results <- store:
	case <-ctx.Done():
	}
}

// await follows a run to its end, and reports the result to the keeper.
func (k *keeper) await(ctx context.Context, run string) {
	for {
		how, err := k.follow(ctx, run)
		if err == nil {
			k.report(ctx, func(ctx context.Context) {
				k.awaited = ""
				k.log.Info("scheduled run ended", "run", run, "state", how.State, "valid", how.Tasks.Valid, "invalid",
					how.Tasks.Invalid, "failed", how.Tasks.Unknown)
				k.change(ctx, func(s *schedule.Schedule) bool { return s.End(run, how) })
			})
			return
		}
		if wire.Wait(ctx, time.Second) != nil {
			return
		}
		k.log.Warn("cannot follow the run of a slot; retrying", "run", run, "err", err)
	}
}

// follow reads the record of a run to its end, and returns the result as Schedule.End records it.
func (k *keeper) follow(ctx context.Context, run string) (e schedule.Entry, err error) {
	state := runview.New(plan.Run{})
	ruled := false
	var outcomes []plan.Outcome // only for plans with rules
	end, err := k.store.Read(ctx, wire.RecordQuery{Run: run, Summary: true, Wait: true}, func(entry wire.Entry) error {
		state.Apply(entry, k.cfg.Clock())
		if entry.Plan != nil {
			ruled = slices.ContainsFunc(entry.Plan.Cells, func(c plan.Cell) bool { return len(c.Require) > 0 })
		}
		if entry.Outcome == nil {
			return nil
		}
		o := *entry.Outcome
		if ruled {
			outcomes = append(outcomes, o)
		}
		if o.Failed() {
			t, _ := state.TaskOf(o.Task)
			e.Problem(fmt.Sprintf("%s: %s: %s", cmp.Or(t.Cell.Name(), o.Cell), o.Verdict.Word(),
				plan.Redact(strings.Join(o.Reasons, "; "))))
		}
		return nil
	})
	if errors.Is(err, wire.ErrNoRun) || errors.Is(err, wire.ErrNoRecord) {
		return schedule.Entry{State: schedule.Gone, Ended: k.cfg.Clock(),
			Why: "the run is no longer on the control plane; a controller with --dir may have a copy"}, nil
	}
	if err != nil {
		return e, err
	}
	for _, rule := range report.Rulings(state.Run, outcomes) {
		if rule.Failed() {
			e.Problem(plan.Redact(rule.String()))
		}
	}
	e.State, e.Why, e.Ended = schedule.State(end.Reason), plan.Redact(end.Detail), state.Ended
	e.Tasks = schedule.Tasks{Valid: state.Count(plan.Valid), Invalid: state.Count(plan.Invalid),
		Unknown: state.Count(plan.Unknown)}
	return e, nil
}

// callHook calls the next pending hook of an entry. Hooks that compare come first.
func (k *keeper) callHook(ctx context.Context, e schedule.Entry) {
	var name string
	var hook plan.Hook
	var err error // this controller has no such hook
	for _, c := range e.Hooks {
		h, missing := k.cfg.Hooks.find(c.Hook)
		if c.State == schedule.CallPending && (name == "" || h.Compare && !hook.Compare) {
			name, hook, err = c.Hook, h, missing
		}
	}
	k.calling = e.Run
	n := k.kept.Schedule.Notice(e, name)
	ctx = wire.WithProgress(ctx, nil) // this goroutine's progress is not watched
	k.wg.Go(func() {
		call := schedule.Call{Hook: name, State: schedule.CallDone}
		var printed []byte
		if err == nil {
			err = wire.Guard(k.log, "hook "+name, func() (err error) {
				n.Directory, n.PreviousDirectory = k.awaitCopy(ctx, e), k.directory(e.Previous)
				if hook.Compare && e.Tasks.Total() == 0 {
					call.State, call.Why = schedule.CallNone, "nothing to compare: no task has an outcome"
					return nil
				}
				printed, call.Attempts, err = k.cfg.Hooks.call(ctx, hook, n)
				return err
			})
		}
		if ctx.Err() != nil {
			return // the next leader calls it
		}
		if err != nil {
			call.State, call.Why = schedule.CallFailed, err.Error()
			k.log.Error("hook failed", "hook", name, "run", e.Run, "attempts", call.Attempts, "err", err)
		}
		if !hook.Compare || err != nil {
			printed = nil
		}
		call.At = k.cfg.Clock()
		k.report(ctx, func(ctx context.Context) {
			k.calling = ""
			k.change(ctx, func(s *schedule.Schedule) bool { return s.Called(e.Run, call, printed) })
		})
	})
}

// Expand expands the matrix of a schedule to a run, in this process. It ignores ctx while CUE evaluates the matrix,
// which may take any time and memory: see Config.Expand.
func Expand(ctx context.Context, from schedule.Matrix) (run plan.Run, err error) {
	m, err := matrix.Load(from.File, []byte(from.Text),
		matrix.Narrow{Quick: from.Quick, Set: from.Set, Filter: from.Filter})
	if err != nil {
		return run, err
	}
	if run, err = m.Run(ctx); err != nil {
		return run, err
	}
	if literals := m.Literals(); len(literals) > 0 {
		return run,
			fmt.Errorf("the matrix of a schedule must not contain secrets, because the control plane stores it; use references such as ${env:NAME}:\n%s", strings.Join(literals, "\n"))
	}
	run.Version, run.Source.Path, run.Source.Server = plan.RecordFormat, from.Path, from.Server
	return run, nil
}

// Limits of the output of a hook, in bytes.
const (
	maxPrinted = schedule.MaxCompared
	maxExcerpt = 500
)

const maxBackoff = 5 * time.Minute

// Hooks are the hooks that a controller calls after runs of schedules. Safe for concurrent use.
type Hooks struct {
	all    []plan.Hook
	client http.RoundTripper
	host   plan.Host
}

// NewHooks returns the hooks that matrix.Hooks has read. References to secrets are resolved with host at each call. The
// error lists references that cannot be resolved now, and missing commands. The hooks are valid all the same.
func NewHooks(all []plan.Hook, host plan.Host) (*Hooks, error) {
	h := &Hooks{all: all, client: http.DefaultTransport, host: host}
	var errs []error
	for _, hook := range all {
		if _, _, err := h.address(hook); err != nil {
			errs = append(errs, fmt.Errorf("hook %s: %w", hook.Name, err))
		}
		if len(hook.Command) == 0 {
			continue
		}
		if _, err := exec.LookPath(hook.Command[0]); err != nil {
			errs = append(errs, fmt.Errorf("hook %s: cannot run its command on this host: %w", hook.Name, err))
		}
	}
	return h, errors.Join(errs...)
}

func (h *Hooks) names() []string {
	names := []string{}
	for _, hook := range h.all {
		names = append(names, hook.Name)
	}
	return names
}

func (h *Hooks) find(name string) (plan.Hook, error) {
	if i := slices.IndexFunc(h.all, func(hook plan.Hook) bool { return hook.Name == name }); i >= 0 {
		return h.all[i], nil
	}
	return plan.Hook{}, fmt.Errorf("unknown hook %q; add it to the --hooks file of the controller", name)
}

// call calls a hook, and retries with a doubling pause, up to hook.Retries times. It returns what a command printed,
// and the number of attempts. The error contains no secret. When ctx ends, call returns at once.
func (h *Hooks) call(ctx context.Context, hook plan.Hook, n schedule.Notice) (printed []byte, attempts int, err error) {
	body, err := json.Marshal(n)
	if err != nil {
		return nil, 0, fmt.Errorf("write notice: %w", err)
	}
	backoff := hook.Backoff.D()
	for {
		attempts++
		final := false // a retry would fail in the same way
		one, cancel := context.WithTimeout(ctx, hook.Timeout.D())
		if hook.Webhook != "" {
			final, err = h.post(one, hook, n.Key, body)
		} else {
			printed, err = runHook(one, hook.Command, n, body)
		}
		if err != nil && errors.Is(one.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no response within its timeout of %v", hook.Timeout)
		}
		cancel()
		if err == nil || final || attempts > hook.Retries || ctx.Err() != nil {
			return printed, attempts, err
		}
		if err := wire.Wait(ctx, backoff); err != nil {
			return nil, attempts, err
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// address resolves the secrets in the address and the headers of a webhook. The scrubber removes them from text.
func (h *Hooks) address(hook plan.Hook) (plan.Hook, *plan.Scrubber, error) {
	if hook.Webhook == "" {
		return hook, nil, nil
	}
	text, _ := json.Marshal(map[string]any{"webhook": hook.Webhook, "headers": hook.Headers}) // always marshals
	text, scrub, err := plan.Resolve(text, []string{"headers"}, h.host)
	if err != nil {
		return hook, nil, err
	}
	hook.Headers = nil
	if err := json.Unmarshal(text, &hook); err != nil {
		return hook, nil, err
	}
	if u, err := url.Parse(hook.Webhook); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return hook, nil, errors.New("the webhook is not an http or https URL") // it may be a secret
	}
	return hook, scrub, nil
}

func (h *Hooks) post(ctx context.Context, hook plan.Hook, key string, body []byte) (final bool, err error) {
	to, scrub, err := h.address(hook)
	if err != nil {
		return true, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.Webhook, bytes.NewReader(body))
	if err != nil {
		return true, errors.New("the webhook is not an http or https URL")
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "lockstep")
	r.Header.Set("Idempotency-Key", key)
	for name, value := range to.Headers {
		r.Header.Set(name, value)
	}
	answer, err := h.client.RoundTrip(r) // redirects are not followed: a redirected POST becomes a GET
	if err != nil {
		return false, fmt.Errorf("post to %s: %s", r.URL.Host, scrub.Scrub(err.Error()))
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxExcerpt))
	if answer.StatusCode/100 == 2 {
		return false, nil
	}
	passing := answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests ||
		answer.StatusCode == http.StatusRequestTimeout || answer.StatusCode == http.StatusTooEarly
	return !passing, fmt.Errorf("post to %s: %s %s", r.URL.Host, answer.Status, scrub.Scrub(oneLine(text)))
}

// runHook runs a command with the notice on its standard input. The rest of its process group is killed.
func runHook(ctx context.Context, argv []string, n schedule.Notice, body []byte) ([]byte, error) {
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	out, stderr := &procs.Output{Limit: maxPrinted}, &procs.Output{Limit: maxExcerpt}
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(body), out, stderr
	// the controller's credentials are not passed on
	c.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LOCKSTEP_") }),
		"LOCKSTEP_RUN="+n.Run, "LOCKSTEP_SCHEDULE="+n.Schedule, "LOCKSTEP_STATE="+string(n.State),
		"LOCKSTEP_KEY="+n.Key, "LOCKSTEP_RUN_DIR="+n.Directory, "LOCKSTEP_PREVIOUS="+n.Previous,
		"LOCKSTEP_PREVIOUS_DIR="+n.PreviousDirectory)
	procs.NewGroup(c, false)
	// kills the whole group; the process is not reaped yet, so no other process has its pid
	c.Cancel = func() error { return procs.KillGroup(c.Process.Pid) }
	c.WaitDelay = time.Second
	err := procs.Start(c)
	if err == nil {
		if procs.Groups {
			procs.AwaitExit(c.Process.Pid)
			_ = procs.KillGroup(c.Process.Pid) // remaining processes of the group may keep standard output open
		}
		err = c.Wait()
	}
	if errors.Is(err, exec.ErrWaitDelay) && c.ProcessState.Success() { // a process left the group
		err = nil
	}
	if text := plan.Redact(oneLine(stderr.Text)); err != nil && text == "" {
		return nil, fmt.Errorf("run command: %w (no output on standard error)", err)
	} else if err != nil {
		return nil, fmt.Errorf("run command: %w: %s", err, text)
	}
	if out.Over {
		return nil, fmt.Errorf("run command: output of more than %d bytes", maxPrinted)
	}
	return out.Text, nil
}

func oneLine(text []byte) string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(text), "\uFFFD")), " ")
}
