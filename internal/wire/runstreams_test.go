package wire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire/lease"
	"example.org/lockstep/lockstep/internal/wire/subject"
	"example.org/lockstep/lockstep/test/wiretest"
)

// fill returns incompressible text.
func fill(n int) string {
	var b strings.Builder
	for i := uint64(1); b.Len() < n; i++ {
		fmt.Fprintf(&b, "%x", i*0x9E3779B97F4A7C15)
	}
	return b.String()[:n]
}

// bounded returns a control plane that is not local and limits runs, with a leader.
func bounded(t *testing.T, limit int64) (*Server, *Store, *Leader) {
	t.Helper()
	s := plane(t, ServerConfig{Shared: true})
	c := NewStore(link(t, s), StoreConfig{RecordLimit: limit})
	return s, c, campaign(t, c, "test")
}

func none(string) bool { return false }

// endRun creates an ended run with an outcome of this size.
func endRun(t *testing.T, l *Leader, s RunState, bytes int) {
	t.Helper()
	r, err := l.Acquire(t.Context(), s.Run)
	if err == nil {
		err = r.Plan(t.Context(), plan.Run{ID: s.Run})
	}
	if err == nil {
		err = r.Outcome(t.Context(), plan.Outcome{Task: "t", Run: s.Run, Reasons: []string{fill(bytes)}})
	}
	if err == nil {
		err = l.PutRun(t.Context(), s)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// runsWithStreams returns the runs that have streams.
func runsWithStreams(t *testing.T, c *Store, runs ...string) (have []string) {
	t.Helper()
	streams, err := c.runStreams(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range runs {
		if len(streams[run]) > 0 {
			have = append(have, run)
		}
	}
	return have
}

// Events and snapshots are written in a random order, partly concurrently. They are read meanwhile and afterwards, in
// batches of any size.
func TestTheOrderAcrossTheStreamsOfARun(t *testing.T) {
	t.Parallel()
	s, c, leader := bounded(t, 1<<30)
	serveClients(t, leader)
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			run := fmt.Sprint("r", seed)
			queueRun(t, c, plan.Run{ID: run})
			r, err := leader.Acquire(t.Context(), run)
			if err == nil {
				err = r.Plan(t.Context(), plan.Run{ID: run})
			}
			if err != nil {
				t.Fatal(err)
			}
			live := make(chan []Entry, 1)
			go func() {
				var all []Entry
				_, err := clientOf(t, s).Read(t.Context(), RecordQuery{Run: run, Wait: true},
					func(e Entry) error { all = append(all, e); return nil })
				if err != nil {
					t.Error(err)
				}
				live <- all
			}()
			written := writeAtRandom(t, leader, run, rand.New(rand.NewPCG(seed, 1)))
			inOrder(t, "a follower", <-live, written)
			var later []Entry
			if _, err := c.Read(t.Context(), RecordQuery{Run: run, Wait: true},
				func(e Entry) error { later = append(later, e); return nil }); err != nil {
				t.Fatal(err)
			}
			inOrder(t, "a later reader", later, written)
			for i := 0; i < len(later)-1; i += 7 { // from any position
				rest := later[: i+1 : i+1]
				_, err := c.Read(t.Context(), RecordQuery{Run: run, Behind: later[i].At, Wait: true},
					func(e Entry) error {
						rest = append(rest, e)
						return nil
					})
				if err != nil {
					t.Fatal(err)
				}
				inOrder(t, fmt.Sprint("a reader from ", later[i].At), rest, written)
			}
		})
	}
}

// writeAtRandom writes attempts of a run, each with a start, snapshots, concurrent events, and an outcome, with several
// leaders of one lease. It returns the number of snapshots of each attempt.
func writeAtRandom(t *testing.T, leader *Leader, run string, random *rand.Rand) map[string]int {
	t.Helper()
	written := map[string]int{}
	var r *Recorder
	for i := range 8 {
		if i%3 == 0 { // it is taken over
			var err error
			if r, err = leader.Acquire(t.Context(), run); err != nil {
				t.Fatal(err)
			}
		}
		task := fmt.Sprint("t", i)
		ref := Ref{Run: run, Task: task, Attempt: "x"}
		must := func(err error) {
			if err != nil {
				t.Error(err)
			}
		}
		must(r.Event(t.Context(), RunEvent{Kind: TaskStarted, Task: task}))
		store := r.Snapshots(t.Context(), ref, bytesPerAgent(1<<30), func(record.Snapshot) error { return nil })
		written[task] = random.IntN(12)
		other := make(chan bool)
		events := random.IntN(6)
		go func() {
			defer close(other)
			for range events {
				must(r.Event(t.Context(), RunEvent{Kind: AgentLost, Task: task}))
			}
		}()
		for n := range written[task] {
			body := fill(1 + random.IntN(100_000))
			must(store.Store(t.Context(), record.Snapshot{Task: task, Agent: "a", Seq: uint64(n) + 1, Clock: body}))
		}
		<-other
		must(r.Outcome(t.Context(), plan.Outcome{Task: task, Run: run}))
	}
	if err := r.Event(t.Context(), RunEvent{Kind: RunEnded,
		End: &End{Reason: EndDone, Submission: 1 << 62}}); err != nil {
		t.Error(err)
	}
	return written
}

// inOrder checks that all snapshots of a task are in order, after its start and before its outcome.
func inOrder(t *testing.T, who string, all []Entry, written map[string]int) {
	t.Helper()
	current, done, got := "", map[string]bool{}, map[string]int{}
	for i, e := range all {
		switch {
		case e.Err != nil:
			t.Fatalf("%s: entry %d: %v", who, i, e.Err)
		case e.Event != nil && e.Event.Kind == TaskStarted:
			current = e.Event.Task
		case e.Snapshot != nil:
			if got[e.Ref.Task]++; e.Ref.Task != current || done[current] || e.Snapshot.Seq != uint64(got[current]) {
				t.Fatalf("%s: entry %d: snapshot %d of task %s comes in task %s (over: %v) as number %d", who, i,
					e.Snapshot.Seq, e.Ref.Task,
					current, done[current], got[e.Ref.Task])
			}
		case e.Outcome != nil:
			if done[e.Ref.Task] = true; e.Ref.Task != current || got[current] != written[current] {
				t.Fatalf("%s: entry %d: the outcome of task %s comes after %d snapshots of %d", who, i, e.Ref.Task,
					got[current], written[current])
			}
		}
	}
	if len(done) != len(written) || len(all) == 0 || all[len(all)-1].Event == nil ||
		all[len(all)-1].Event.Kind != RunEnded {
		t.Errorf("%s: %d outcomes of %d in %d entries", who, len(done), len(written), len(all))
	}
}

// When the snapshots of a run have reached their limit, outcomes are still stored, also by another leader.
func TestOutcomesAreStoredWhenTheSnapshotsAreFull(t *testing.T) {
	t.Parallel()
	s, _, leader := bounded(t, 1<<20)
	agent := NewAgent(link(t, s))
	r, err := leader.Acquire(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	ref := Ref{Run: "r", Task: "t", Attempt: "y"}
	takeReports(t, r.leader, r.Snapshots(t.Context(), ref, bytesPerAgent(1<<30), func(record.Snapshot) error { return nil }))
	n := uint64(1)
	for ; err == nil; n++ {
		err = agent.Snapshot(t.Context(), ref, record.Snapshot{Task: "t", Agent: "a", Seq: n, Clock: fill(30_000)})
	}
	if n < 9 || !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "--record-limit") ||
		!strings.Contains(err.Error(), "--resume") {
		t.Fatalf("snapshot %d: %v: want ErrFull, and what to do", n-1, err)
	}
	for range 2 {
		if err := r.Outcome(t.Context(), plan.Outcome{Task: "t", Run: "r",
			Reasons: []string{fill(20_000)}}); err != nil {
			t.Fatal(err)
		}
		if r, err = leader.Acquire(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
	}
	for err = nil; err == nil; { // events have a limit, too, except the end
		err = r.Event(t.Context(), RunEvent{Kind: AgentLost, Detail: fill(20_000)})
	}
	if !errors.Is(err, ErrFull) || !Hopeless(err) {
		t.Fatalf("when the events are full: %v", err)
	}
	if err := r.Event(t.Context(), RunEvent{Kind: RunEnded,
		End: &End{Reason: EndFailed, Detail: err.Error()}}); err != nil {
		t.Errorf("the end of the run: %v", err)
	}
}

// The latest 50 runs keep their streams. For the next one, the streams of the oldest copied run are deleted.
func TestTheFiftyFirstRunDeletesTheOldestCopiedOne(t *testing.T) {
	t.Parallel()
	_, c, leader := bounded(t, 64<<20)
	for i := range maxRuns {
		endRun(t, leader, RunState{Run: fmt.Sprint("r", i), Seq: uint64(i) + 1, State: string(EndDone), Copied: i >= 2},
			100)
	}
	needed := func(run string) bool { return run == "r2" }
	if waiting, err := leader.FreeStorage(t.Context(), "", needed); err != nil || waiting != "" {
		t.Fatalf("%q, %v", waiting, err)
	}
	if have := runsWithStreams(t, c, "r3"); len(have) != 1 {
		t.Error("of 50 runs one was deleted")
	}
	if waiting, err := leader.FreeStorage(t.Context(), "new", needed); err != nil || waiting != "" {
		t.Fatalf("the 51st waits for %q, %v", waiting, err)
	}
	if have := fmt.Sprint(runsWithStreams(t, c, "r0", "r1", "r2", "r3", "r4")); have != "[r0 r1 r2 r4]" {
		t.Errorf("streams of %s are left of the oldest, want all but r3: r0 and r1 were not copied, and r2 is needed",
			have)
	}
}

// Runs without copies are never deleted. The next run waits and reports why. A run that has streams does not wait.
func TestARunWaitsForUncopiedRuns(t *testing.T) {
	t.Parallel()
	_, c, leader := bounded(t, 1<<20)
	waits := func(run string) string {
		t.Helper()
		waiting, err := leader.FreeStorage(t.Context(), run, none)
		if err != nil {
			t.Fatal(err)
		}
		return waiting
	}
	for i := range 18 { // 1,080,000 bytes
		endRun(t, leader, RunState{Run: fmt.Sprint("r", i), Seq: uint64(i) + 1, State: string(EndDone)}, 60_000)
	}
	if why := waits("new"); !strings.Contains(why, "18 runs use 1.1 MiB of at most 1.0 MiB") ||
		!strings.Contains(why, "--record-limit") || !strings.Contains(why, "--dir") {
		t.Errorf("it waits for %q", why)
	}
	if why := waits("r3"); why != "" {
		t.Errorf("a run that is submitted again waits for %q", why)
	}
	if err := leader.PutRun(t.Context(), RunState{Run: "r1", Seq: 2, State: string(EndDone),
		Copied: true}); err != nil {
		t.Fatal(err)
	}
	if why := waits("new"); why != "" {
		t.Errorf("it waits for %q, and one was copied", why)
	}
	if have := fmt.Sprint(runsWithStreams(t, c, "r0", "r1", "r2")); have != "[r0 r2]" {
		t.Errorf("%s have streams", have)
	}
	for i := range maxRuns - 17 {
		endRun(t, leader, RunState{Run: fmt.Sprint("q", i), Seq: uint64(i) + 20, State: string(EndDone)}, 10)
	}
	c.recordLimit = 64 << 20
	if why := waits("new"); !strings.Contains(why, "the streams of 50 runs") {
		t.Errorf("it waits for %q", why)
	}
}

// A run that waits for queued or executed runs is not told that a copy would help.
func TestARunWaitsForRunsThatHaveNotEnded(t *testing.T) {
	t.Parallel()
	_, c, leader := bounded(t, 64<<20)
	for i := range maxRuns {
		state := RunState{Run: fmt.Sprint("r", i), Seq: uint64(i) + 1, State: StateRunning}
		if i == 0 { // submitted again
			state.State, state.Copied = string(EndDone), true
		}
		endRun(t, leader, state, 100)
	}
	queued := func(run string) bool { return run == "r0" }
	check := func(limit string) {
		t.Helper()
		why, err := leader.FreeStorage(t.Context(), "new", queued)
		if err != nil || !strings.Contains(why, limit) || strings.Contains(why, "--dir") ||
			!strings.Contains(why, "are queued or executed") {
			t.Errorf("it waits for %q, %v", why, err)
		}
	}
	check("the streams of 50 runs, the maximum")
	for i := range maxRuns - 1 {
		if err := leader.PutRun(t.Context(), RunState{Run: fmt.Sprint("r", i+1), Seq: uint64(i) + 2,
			State: string(EndDone), Copied: true}); err != nil {
			t.Fatal(err)
		}
	}
	c.recordLimit = 1
	check("the streams of 1 runs use")
}

// The streams of an ended run reserve only the space that they use, and get their limits again when the run is resumed.
func TestEndedRunsReserveNoSpace(t *testing.T) {
	t.Parallel()
	_, c, leader := bounded(t, 16<<20)
	endRun(t, leader, RunState{Run: "r", Seq: 1, State: string(EndDone)}, 1000)
	limits := func() (all []int64) {
		for _, name := range []string{subject.RunStream(subject.EventsStream, "r"),
			subject.RunStream(subject.SnapshotsStream, "r")} {
			s, err := c.js.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s.CachedInfo().Config.MaxBytes)
		}
		return all
	}
	if got := fmt.Sprint(limits()); got != fmt.Sprint([]int64{4 << 20, 8 << 20}) {
		t.Errorf("limits %s: want a quarter and half", got)
	}
	if _, err := leader.FreeStorage(t.Context(), "", none); err != nil {
		t.Fatal(err)
	}
	if got := limits(); got[0] > 4000 || got[1] > 1000 {
		t.Errorf("an ended run reserves %d bytes", got)
	}
	if _, err := leader.Acquire(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(limits()); got != fmt.Sprint([]int64{4 << 20, 8 << 20}) {
		t.Errorf("limits %s of a resumed run", got)
	}
}

// If the list of runs is too long, only runs without streams are removed from it.
func TestRunsThatHaveStreamsAreNotForgotten(t *testing.T) {
	t.Parallel()
	_, c, leader := bounded(t, 64<<20)
	endRun(t, leader, RunState{Run: "r0", State: string(EndDone), Seq: 1}, 10)
	for i := 1; i < maxEnded+2; i++ {
		if err := leader.PutRun(t.Context(), RunState{Run: fmt.Sprint("r", i), State: string(EndDone), Copied: true,
			Seq: uint64(i) + 1}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := leader.FreeStorage(t.Context(), "", none); err != nil {
		t.Fatal(err)
	}
	for run, want := range map[string]bool{"r0": true, "r1": false, "r2": true} {
		if s, err := c.RunState(t.Context(), run); err != nil || (s.Run != "") != want {
			t.Errorf("run %s is listed: %v, want %v (%v)", run, s.Run != "", want, err)
		}
	}
}

// Streams can be created for run names of 200 bytes of any kind.
func TestRunsOfAnyNameHaveStreams(t *testing.T) {
	t.Parallel()
	_, c, leader := bounded(t, 64<<20)
	long := strings.Repeat("/", MaxName)
	for _, run := range []string{"", ".", "..", "a b*>", long, long[1:] + "x"} {
		endRun(t, leader, RunState{Run: run, State: string(EndDone)}, 10)
		if len(runsWithStreams(t, c, run)) != 1 {
			t.Errorf("run %q has no streams", run)
		}
	}
}

// A follower of a run whose streams are deleted gets an error, and continues when the run is executed again. A control
// plane that lost its data does not have the run.
func TestFollowingARunThatIsDeletedEnds(t *testing.T) {
	t.Parallel()
	t.Run("deleted", func(t *testing.T) { followDeleted(t, RunState{Run: "r", State: string(EndDone)}, ErrNoRecord) })
	t.Run("not known", func(t *testing.T) { followDeleted(t, RunState{Run: "another"}, ErrNoRun) })
}

// followDeleted follows a run until its streams are deleted, while the control plane lists this run or another one.
func followDeleted(t *testing.T, listed RunState, want error) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s, c, leader := bounded(t, 64<<20)
		follower := clientOf(t, s)
		serveClients(t, leader)
		begin := func() {
			t.Helper()
			r, err := leader.Acquire(t.Context(), "r")
			if err = errors.Join(err, r.Plan(t.Context(), plan.Run{ID: "r"}),
				r.Event(t.Context(), RunEvent{Kind: RunAccepted})); err != nil {
				t.Fatal(err)
			}
		}
		remove := func() {
			t.Helper()
			streams, err := c.runStreams(t.Context())
			if err == nil {
				err = streams["r"].remove(t.Context(), c.js)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		begin()
		queueRun(t, c, plan.Run{ID: "r"})
		begun, ended := make(chan bool, 9), make(chan error, 1)
		go func() {
			_, err := follower.Read(t.Context(), RecordQuery{Run: "r", Wait: true}, func(Entry) error { begun <- true; return nil })
			ended <- err
		}()
		<-begun
		<-begun
		remove()
		select {
		case err := <-ended:
			t.Fatalf("while the run is in the queue: %v", err)
		case <-time.After(time.Minute):
		}
		begin()
		<-begun
		<-begun
		if err := leader.PutRun(t.Context(), listed); err != nil {
			t.Fatal(err)
		}
		remove()
		if err := leader.Dequeue(t.Context(), "r", submission(t, c, "r")); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if !errors.Is(err, want) {
				t.Errorf("the follower ended with %v", err)
			}
		case <-time.After(hang):
			t.Error("the follower still waits")
		}
	})
}

// A former leader can write neither events nor snapshots.
func TestAFormerLeaderIsFencedInBothStreams(t *testing.T) {
	t.Parallel()
	s, _, leader := bounded(t, 64<<20)
	was, err := leader.Acquire(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	leader.Lease.Resign(t.Context())
	next, err := campaign(t, storeOf(t, s), "next").Acquire(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	was.leader = leaderOf(context.Background(), was.leader.store, was.leader.who.Epoch)
	snapshot := func(r *Recorder) error {
		store := r.Snapshots(t.Context(), Ref{Run: "r", Task: "t", Attempt: "x"}, bytesPerAgent(1<<20), func(record.Snapshot) error { return nil })
		return store.Store(t.Context(), record.Snapshot{Task: "t", Agent: "a", Seq: 1})
	}
	if err := was.Outcome(t.Context(), plan.Outcome{Run: "r", Task: "t"}); !errors.Is(err, lease.ErrFenced) {
		t.Errorf("an outcome of a former leader: %v", err)
	}
	if err := snapshot(was); err == nil || !strings.Contains(err.Error(), lease.ErrFenced.Error()) {
		t.Errorf("a snapshot of a former leader: %v", err)
	}
	if err := errors.Join(next.Outcome(t.Context(), plan.Outcome{Run: "r", Task: "t"}), snapshot(next)); err != nil {
		t.Errorf("the leader: %v", err)
	}
}
