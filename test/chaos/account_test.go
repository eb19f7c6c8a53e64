package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
)

// stored is one message of a run's record in JetStream.
type stored struct {
	seq           uint64 // position in the record
	after         uint64 // last message of the other stream before it
	stream, kind  string
	task, attempt string
	epoch         string // of the controller that wrote it
	data          []byte
}

// account checks the record of a run. Deviations are errors of the test, and count as lost.
type account struct {
	t        testing.TB
	run      *runs.Run
	record   []stored
	events   []wire.RunEvent
	at       []uint64                // positions of the events in the record
	outcomes map[string]plan.Outcome // first outcome of each task
	ended    map[string]uint64       // position of that outcome in the record
	lost     int
	excused  bool // the broker was killed and may lose confirmed messages
}

// lose reports a deviation and counts it.
func (a *account) lose(format string, v ...any) {
	a.t.Helper()
	a.lost++
	a.t.Errorf("lost: "+format, v...)
}

// account reads the run's record from JetStream and from the directories, and checks that they agree.
func (f *fleet) account() *account {
	f.t.Helper()
	a := &account{t: f.t, run: f.run, outcomes: map[string]plan.Outcome{}, ended: map[string]uint64{},
		record: f.stored(), excused: f.forgetful}
	a.read()
	a.ledByOne()
	a.handedOn()
	for _, t := range a.run.Plan().Tasks() {
		if _, ok := a.outcomes[t.ID]; !ok {
			a.lose("task %s has no outcome", t.ID)
			continue
		}
		a.begunOnce(t.ID)
		a.kept(t.ID)
	}
	a.sameFiles("the one that ctl runs pull made", f.run.Dir(), f.pulled())
	a.sameFiles("the controller's copy", f.run.Dir(), f.copied())
	f.line.lost, f.line.said = a.lost, a.words()
	return a
}

// stored reads all streams of the run, in the order of the record. It tries again while a restarted server does not
// answer.
func (f *fleet) stored() []stored {
	f.t.Helper()
	for end := time.Now().Add(10 * stepLimit); ; {
		all, err := f.readStored()
		if err == nil {
			return all
		}
		if time.Now().After(end) {
			f.t.Fatalf("read the record: %v", err)
		}
		f.t.Logf("read the record, and again: %v", err)
	}
}

func (f *fleet) readStored() (all []stored, err error) {
	nc, err := natsgo.Connect(f.url)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*stepLimit)
	defer cancel()
	events, err := readStream(ctx, js, "LOCKSTEP_EVENTS_"+f.run.Plan().ID)
	if err != nil {
		return nil, err
	}
	snapshots, err := readStream(ctx, js, "LOCKSTEP_SNAPSHOTS_"+f.run.Plan().ID)
	if err != nil {
		return nil, err
	}
	for _, e := range events { // after the snapshots that it refers to
		for len(snapshots) > 0 && snapshots[0].seq <= e.after {
			all, snapshots = append(all, snapshots[0]), snapshots[1:]
		}
		all = append(all, e)
	}
	all = append(all, snapshots...)
	for i := range all {
		all[i].seq = uint64(i) + 1
	}
	return all, nil
}

func readStream(ctx context.Context, js jetstream.JetStream, name string) (all []stored, err error) {
	consumer, err := js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, err
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		all = append(all, storedOf(m, meta.Sequence.Stream))
		if meta.NumPending == 0 {
			return all, nil
		}
	}
}

func storedOf(m jetstream.Msg, seq uint64) stored {
	s := stored{seq: seq, epoch: m.Headers().Get("Lockstep-Epoch"), data: m.Data()}
	s.after, _ = strconv.ParseUint(m.Headers().Get("Lockstep-After"), 10, 64)
	s.stream = strings.Split(m.Subject(), ".")[1]
	words := strings.Split(m.Subject(), ".")[3:] // lockstep.STREAM.RUN.
	for i, to := range []*string{&s.kind, &s.task, &s.attempt} {
		if i < len(words) {
			*to = words[i]
		}
	}
	return s
}

func (a *account) read() {
	a.t.Helper()
	for _, s := range a.record {
		switch s.kind {
		case "event":
			var e wire.RunEvent
			a.decode(s, &e)
			a.events, a.at = append(a.events, e), append(a.at, s.seq)
		case "outcome":
			if at, twice := a.ended[s.task]; twice {
				a.lose("task %s has two outcomes: messages %d and %d of the record", s.task, at, s.seq)
				continue
			}
			var o plan.Outcome
			a.decode(s, &o)
			a.outcomes[s.task], a.ended[s.task] = o, s.seq
		}
	}
}

// ledByOne checks that no controller wrote to a stream after a later controller had.
func (a *account) ledByOne() {
	a.t.Helper()
	last := map[string]string{}
	for _, s := range a.record {
		switch {
		case s.epoch == "":
			a.lose("message %d of the record (%s) names no epoch", s.seq, s.kind)
		case s.epoch < last[s.stream]: // strings of equal length: milliseconds since 1970
			a.lose("message %d of the record (%s) is of epoch %s, and one before it of %s: two controllers led", s.seq,
				s.kind, s.epoch, last[s.stream])
		default:
			last[s.stream] = s.epoch
		}
	}
}

func (a *account) decode(s stored, to any) {
	a.t.Helper()
	if err := json.Unmarshal(s.data, to); err != nil {
		a.lose("message %d of the record (%s) cannot be read: %v", s.seq, s.kind, err)
	}
}

// begunOnce checks that a task was not started after its outcome.
func (a *account) begunOnce(task string) {
	a.t.Helper()
	for i, e := range a.events {
		if e.Kind == wire.TaskStarted && e.Task == task && a.at[i] > a.ended[task] {
			a.lose("task %s was begun again (message %d) after its outcome (message %d)", task, a.at[i], a.ended[task])
		}
	}
}

// counted returns the attempt that belongs to the task's outcome: the last one that was started before it. Empty if
// there is none.
func (a *account) counted(task string) (attempt string) {
	for i, e := range a.events {
		if e.Kind == wire.TaskStarted && e.Task == task && a.at[i] < a.ended[task] {
			attempt = e.Attempt
		}
	}
	return attempt
}

// kept compares the snapshots in JetStream before the outcome with the run directory and with the outcome.
func (a *account) kept(task string) {
	a.t.Helper()
	attempt := a.counted(task)
	had := map[string]record.Snapshot{}
	for _, s := range a.record {
		if s.kind != "snapshot" || s.task != task || s.attempt != attempt {
			continue
		}
		var shots []record.Snapshot
		a.decode(s, &shots)
		for _, shot := range shots {
			name := fmt.Sprint(shot.Agent, " ", shot.Seq)
			if s.seq < a.ended[task] {
				had[name] = shot
			} else if _, again := had[name]; !again {
				a.late(task, s, shot)
			}
		}
	}
	copied := a.copied(task)
	for name := range had {
		if _, ok := copied[name]; !ok {
			a.lose("snapshot %s of task %s was stored before the outcome, and is not in the run directory", name, task)
		}
	}
	for name := range copied {
		if _, ok := had[name]; !ok {
			a.lose("snapshot %s of task %s is in the run directory, and was not stored before the outcome", name, task)
		}
	}
	a.unbroken(task, had)
	a.addsUp(task, had)
	a.judged(task)
}

// copied returns the snapshots of a task in the run directory.
func (a *account) copied(task string) map[string]record.Snapshot {
	a.t.Helper()
	all := map[string]record.Snapshot{}
	text, err := os.ReadFile(filepath.Join(a.run.Dir(), "tasks", task, "snapshots.jsonl"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for lines.Scan() {
		var s record.Snapshot
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			a.lose("a line of the snapshots of task %s cannot be read: %v", task, err)
			continue
		}
		name := fmt.Sprint(s.Agent, " ", s.Seq)
		if _, twice := all[name]; twice {
			a.lose("snapshot %s of task %s is in the run directory twice", name, task)
		}
		all[name] = s
	}
	return all
}

// addsUp compares the ledger with the counts of the snapshots' windows, which are counted independently.
func (a *account) addsUp(task string, had map[string]record.Snapshot) {
	a.t.Helper()
	var sent, confirmed, unique int64
	for _, s := range had {
		for _, w := range s.Windows {
			sent, confirmed, unique = sent+w.Counts[record.Sent], confirmed+w.Counts[record.Confirmed],
				unique+w.Counts[record.Unique]
		}
	}
	l := a.outcomes[task].Ledger
	if uint64(sent) != l.Sent || uint64(confirmed) != l.Confirmed || uint64(unique) != l.Received {
		a.lose("the ledger of task %s has %d sent, %d confirmed, %d received; the snapshots have %d, %d, %d", task,
			l.Sent, l.Confirmed, l.Received, sent, confirmed, unique)
	}
	// the last messages of a lost publisher are unknown
	whole := !slices.ContainsFunc(a.outcomes[task].Agents, func(p plan.AgentPart) bool { return p.Lost })
	told := l.Received + l.Lost + l.Undrained + l.Unknown + l.Unroutable + l.Rejected
	if told < l.Sent || whole && told > l.Sent+l.Uncertain {
		a.lose("the ledger of task %s does not add up: %+v", task, l)
	}
	if l.LostConfirmed == 0 {
		return
	}
	if guaranteed := a.cell(task).Guarantees.ConfirmedKept; !a.excused || guaranteed &&
		a.outcomes[task].Verdict == plan.Valid {
		a.lose("%d confirmed messages of task %s are missing, and its verdict is %s", l.LostConfirmed, task,
			a.outcomes[task].Verdict)
	}
}

func (a *account) cell(task string) plan.Cell {
	for _, t := range a.run.Plan().Tasks() {
		if t.ID == task {
			return t.Cell
		}
	}
	return plan.Cell{}
}

// judged compares an outcome in JetStream with the one in the run directory, and with a new judgement of the directory.
func (a *account) judged(task string) {
	a.t.Helper()
	text, err := os.ReadFile(filepath.Join(a.run.Dir(), "tasks", task, "outcome.json"))
	if err != nil {
		a.lose("task %s: %v", task, err)
		return
	}
	var written plan.Outcome
	if err := json.Unmarshal(text, &written); err != nil {
		a.lose("outcome of task %s cannot be read: %v", task, err)
		return
	}
	if was, is := sans(a.outcomes[task]), sans(written); was != is {
		a.lose("the outcome of task %s in the run directory is another one: %s", task, apart(was, is))
	}
	again, err := a.run.Rejudge(task)
	if err != nil {
		a.lose("%v", err)
		return
	}
	if was, is := sans(written), sans(again); was != is {
		a.lose("judging task %s again gives another outcome: %s", task, apart(was, is))
	}
}

// apart returns the part of two texts where they begin to differ.
func apart(a, b string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	from := max(0, i-200)
	return fmt.Sprintf("…%s… and …%s…", a[from:min(len(a), i+200)], b[from:min(len(b), i+200)])
}

// sans returns an outcome as JSON, without the warnings about earlier attempts, which the directory adds.
func sans(o plan.Outcome) string {
	o.Warnings = slices.DeleteFunc(slices.Clone(o.Warnings),
		func(w string) bool { return strings.HasPrefix(w, "attempt ") })
	if len(o.Warnings) == 0 {
		o.Warnings = nil
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// sameFiles compares the directory of the followed run with another copy. Tables and pages are left out: only ctl run
// writes them.
func (a *account) sameFiles(what, followed, otherwise string) {
	a.t.Helper()
	one, other := files(a.t, followed), files(a.t, otherwise)
	for name, text := range one {
		switch again, ok := other[name]; {
		case !ok:
			a.lose("%s is in the directory of the run that was followed, and not in %s", name, what)
		case !bytes.Equal(text, again):
			a.lose("%s differs between the directory of the run that was followed and %s: %s", name, what,
				apart(string(text), string(again)))
		}
	}
	for name := range other {
		if _, ok := one[name]; !ok {
			a.lose("%s is in %s, and not in the directory of the run that was followed", name, what)
		}
	}
}

func files(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path) // path is below dir
		if err != nil || d.IsDir() || strings.HasPrefix(name, "tables.") || strings.HasSuffix(name, ".html") {
			return err
		}
		all[name], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// words summarises the record: its unusual events, the verdicts, and their reasons.
func (a *account) words() (said []string) {
	for _, e := range a.events {
		switch e.Kind {
		case wire.AgentLost, wire.TaskInterrupted, wire.TakenOver:
			said = append(said, string(e.Kind)+": "+e.Detail)
		case wire.RunAccepted, wire.TaskStarted, wire.StepEnded, wire.RunEnded, wire.WaitingAgents:
		default:
			said = append(said, string(e.Kind))
		}
	}
	verdicts := map[plan.Verdict]int{}
	var reasons []string
	for _, t := range a.run.Plan().Tasks() {
		if o, ok := a.outcomes[t.ID]; ok {
			verdicts[o.Verdict]++
			reasons = append(reasons, o.Reasons...)
		}
	}
	for _, v := range []plan.Verdict{plan.Valid, plan.Invalid, plan.Unknown} {
		if verdicts[v] > 0 {
			said = append(said, fmt.Sprintf("%d %s", verdicts[v], v))
		}
	}
	return slices.Compact(append(said, reasons...))
}

// verdict checks the verdict of one task, and that all others are valid.
func (a *account) verdict(task string, want plan.Verdict) plan.Outcome {
	a.t.Helper()
	for id, o := range a.outcomes {
		if id == task && o.Verdict != want {
			a.t.Errorf("task %s is %s, want %s: %q", id, o.Verdict, want, o.Reasons)
		}
		if id != task && o.Verdict != plan.Valid {
			a.t.Errorf("task %s, which nothing was done to, is %s: %q", id, o.Verdict, o.Reasons)
		}
	}
	return a.outcomes[task]
}

// repeated checks that a task that lost an agent was repeated once, and that all tasks are valid. It returns the reason
// why the first attempt failed.
func (a *account) repeated(task string) (why string) {
	a.t.Helper()
	o := a.verdict(task, plan.Valid)
	if len(o.FailedAttempts) != 1 || o.FailedAttempts[0].Kind != plan.FailedAgentLost {
		a.t.Errorf("task %s names the attempts %+v: want one that lost an agent", task, o.FailedAttempts)
		return ""
	}
	return o.FailedAttempts[0].Reason
}

// attempted checks that each task was started once, or twice if it is listed.
func (a *account) attempted(twice ...string) {
	a.t.Helper()
	begun := map[string]int{}
	for _, e := range a.events {
		if e.Kind == wire.TaskStarted {
			begun[e.Task]++
		}
	}
	for _, t := range a.run.Plan().Tasks() {
		want := 1
		if slices.Contains(twice, t.ID) {
			want = 2
		}
		if begun[t.ID] != want {
			a.t.Errorf("task %s was begun %d times, want %d", t.ID, begun[t.ID], want)
		}
	}
}

// first returns the first event of a kind after a time.
func (a *account) first(k wire.EventKind, after time.Time) (wire.RunEvent, bool) {
	for _, e := range a.events {
		if e.Kind == k && e.At.After(after) {
			return e, true
		}
	}
	return wire.RunEvent{}, false
}

// longestHalt is longer than any fault and the recovery from it, and shorter than a task's deadline, at which agents
// end it. It is checked in make test-long only.
const longestHalt = time.Minute

// wentOn returns the time until the next task was started.
func (a *account) wentOn(after time.Time) time.Duration {
	a.t.Helper()
	e, ok := a.first(wire.TaskStarted, after)
	if !ok {
		a.t.Error("no task was begun after the fault")
		return 0
	}
	if long() && e.At.Sub(after) > longestHalt {
		a.t.Errorf("the run stood for %v", e.At.Sub(after))
	}
	return e.At.Sub(after)
}
