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

// message is one message of a run's record in JetStream.
type message struct {
	seq           uint64 // position in the record
	after         uint64 // last message of the other stream before it
	stream, kind  string
	task, attempt string
	epoch         string // of the controller that wrote it
	data          []byte
}

// recordCheck checks the record of a run. Each deviation is reported as an error of the test and counted in lost.
type recordCheck struct {
	t               testing.TB
	run             *runs.Run
	messages        []message
	events          []wire.RunEvent
	eventSeqs       []uint64                // positions of the events in the record
	outcomes        map[string]plan.Outcome // first outcome of each task
	outcomeSeq      map[string]uint64       // position of that outcome in the record
	lost            int
	mayLoseMessages bool // the broker was killed and may lose confirmed messages
}

// reportLoss reports a deviation and counts it.
func (c *recordCheck) reportLoss(format string, v ...any) {
	c.t.Helper()
	c.lost++
	c.t.Errorf("lost: "+format, v...)
}

// checkRecord reads the run's record from JetStream and from the directories, and checks that they agree.
func (f *fleet) checkRecord() *recordCheck {
	f.t.Helper()
	a := &recordCheck{t: f.t, run: f.run, outcomes: map[string]plan.Outcome{}, outcomeSeq: map[string]uint64{},
		messages: f.readMessages(), mayLoseMessages: f.mayLoseMessages}
	a.parse()
	a.checkEpochs()
	a.checkTakeovers()
	for _, t := range a.run.Plan().Tasks() {
		if _, ok := a.outcomes[t.ID]; !ok {
			a.reportLoss("task %s has no outcome", t.ID)
			continue
		}
		a.checkStartsBeforeOutcome(t.ID)
		a.checkSnapshots(t.ID)
	}
	a.compareFiles("the run directory of ctl runs pull", f.run.Dir(), f.pullRun())
	a.compareFiles("the controller's copy", f.run.Dir(), f.awaitControllerCopy())
	f.line.lost, f.line.summary = a.lost, a.summary()
	return a
}

// readMessages reads all streams of the run, in the order of the record. It retries while a restarted server does not
// respond.
func (f *fleet) readMessages() []message {
	f.t.Helper()
	for end := time.Now().Add(10 * stepLimit); ; {
		all, err := f.tryReadMessages()
		if err == nil {
			return all
		}
		if time.Now().After(end) {
			f.t.Fatalf("read the record: %v", err)
		}
		f.t.Logf("read the record: %v; retrying", err)
	}
}

func (f *fleet) tryReadMessages() (all []message, err error) {
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

func readStream(ctx context.Context, js jetstream.JetStream, name string) (all []message, err error) {
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
		all = append(all, messageOf(m, meta.Sequence.Stream))
		if meta.NumPending == 0 {
			return all, nil
		}
	}
}

func messageOf(m jetstream.Msg, seq uint64) message {
	s := message{seq: seq, epoch: m.Headers().Get("Lockstep-Epoch"), data: m.Data()}
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

func (c *recordCheck) parse() {
	c.t.Helper()
	for _, s := range c.messages {
		switch s.kind {
		case "event":
			var e wire.RunEvent
			c.decode(s, &e)
			c.events, c.eventSeqs = append(c.events, e), append(c.eventSeqs, s.seq)
		case "outcome":
			if seq, repeated := c.outcomeSeq[s.task]; repeated {
				c.reportLoss("task %s has two outcomes: messages %d and %d of the record", s.task, seq, s.seq)
				continue
			}
			var o plan.Outcome
			c.decode(s, &o)
			c.outcomes[s.task], c.outcomeSeq[s.task] = o, s.seq
		}
	}
}

// checkEpochs checks that no controller wrote to a stream after a later controller had.
func (c *recordCheck) checkEpochs() {
	c.t.Helper()
	last := map[string]string{}
	for _, s := range c.messages {
		switch {
		case s.epoch == "":
			c.reportLoss("message %d of the record (%s) has no epoch", s.seq, s.kind)
		case s.epoch < last[s.stream]: // strings of equal length: milliseconds since 1970
			c.reportLoss("message %d of the record (%s) has epoch %s, after a message of epoch %s: two controllers led",
				s.seq,
				s.kind, s.epoch, last[s.stream])
		default:
			last[s.stream] = s.epoch
		}
	}
}

func (c *recordCheck) decode(s message, to any) {
	c.t.Helper()
	if err := json.Unmarshal(s.data, to); err != nil {
		c.reportLoss("decode message %d of the record (%s): %v", s.seq, s.kind, err)
	}
}

// checkStartsBeforeOutcome checks that a task was not started after its outcome.
func (c *recordCheck) checkStartsBeforeOutcome(task string) {
	c.t.Helper()
	for i, e := range c.events {
		if e.Kind == wire.TaskStarted && e.Task == task && c.eventSeqs[i] > c.outcomeSeq[task] {
			c.reportLoss("task %s was started (message %d) after its outcome (message %d)", task, c.eventSeqs[i],
				c.outcomeSeq[task])
		}
	}
}

// countedAttempt returns the attempt that belongs to the task's outcome: the last one that was started before it. Empty
// if there is none.
func (c *recordCheck) countedAttempt(task string) (attempt string) {
	for i, e := range c.events {
		if e.Kind == wire.TaskStarted && e.Task == task && c.eventSeqs[i] < c.outcomeSeq[task] {
			attempt = e.Attempt
		}
	}
	return attempt
}

// checkSnapshots compares the snapshots in JetStream before the outcome with the run directory and with the outcome.
func (c *recordCheck) checkSnapshots(task string) {
	c.t.Helper()
	attempt := c.countedAttempt(task)
	inStream := map[string]record.Snapshot{}
	for _, s := range c.messages {
		if s.kind != "snapshot" || s.task != task || s.attempt != attempt {
			continue
		}
		var snapshots []record.Snapshot
		c.decode(s, &snapshots)
		for _, snapshot := range snapshots {
			name := fmt.Sprint(snapshot.Agent, " ", snapshot.Seq)
			if s.seq < c.outcomeSeq[task] {
				inStream[name] = snapshot
			} else if _, known := inStream[name]; !known {
				c.checkLateSnapshot(task, s, snapshot)
			}
		}
	}
	inRunDir := c.snapshotsInRunDir(task)
	for name := range inStream {
		if _, ok := inRunDir[name]; !ok {
			c.reportLoss("snapshot %s of task %s was stored before the outcome, but is not in the run directory", name,
				task)
		}
	}
	for name := range inRunDir {
		if _, ok := inStream[name]; !ok {
			c.reportLoss("snapshot %s of task %s is in the run directory, but was not stored before the outcome", name,
				task)
		}
	}
	c.checkSnapshotNumbers(task, inStream)
	c.checkLedger(task, inStream)
	c.checkOutcome(task)
}

// snapshotsInRunDir returns the snapshots of a task in the run directory.
func (c *recordCheck) snapshotsInRunDir(task string) map[string]record.Snapshot {
	c.t.Helper()
	all := map[string]record.Snapshot{}
	text, err := os.ReadFile(filepath.Join(c.run.Dir(), "tasks", task, "snapshots.jsonl"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for lines.Scan() {
		var s record.Snapshot
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			c.reportLoss("decode a line in snapshots.jsonl of task %s: %v", task, err)
			continue
		}
		name := fmt.Sprint(s.Agent, " ", s.Seq)
		if _, repeated := all[name]; repeated {
			c.reportLoss("snapshot %s of task %s is in the run directory twice", name, task)
		}
		all[name] = s
	}
	return all
}

// checkLedger compares the ledger with the counts of the snapshots' windows, which are counted independently.
func (c *recordCheck) checkLedger(task string, snapshots map[string]record.Snapshot) {
	c.t.Helper()
	var sent, confirmed, unique int64
	for _, s := range snapshots {
		for _, w := range s.Windows {
			sent, confirmed, unique = sent+w.Counts[record.Sent], confirmed+w.Counts[record.Confirmed],
				unique+w.Counts[record.Unique]
		}
	}
	ledger := c.outcomes[task].Ledger
	if uint64(sent) != ledger.Sent || uint64(confirmed) != ledger.Confirmed || uint64(unique) != ledger.Received {
		c.reportLoss("ledger of task %s: got %d sent, %d confirmed, %d received, want %d, %d, %d as in the snapshots",
			task,
			ledger.Sent, ledger.Confirmed, ledger.Received, sent, confirmed, unique)
	}
	// the last messages of a lost publisher are unknown
	noAgentLost := !slices.ContainsFunc(c.outcomes[task].Agents, func(p plan.AgentPart) bool { return p.Lost })
	accounted := ledger.Received + ledger.Lost + ledger.Undrained + ledger.Unknown + ledger.Unroutable + ledger.Rejected
	if accounted < ledger.Sent || noAgentLost && accounted > ledger.Sent+ledger.Uncertain {
		c.reportLoss("ledger of task %s: the results of its messages do not add up to the number sent: %+v", task,
			ledger)
	}
	if ledger.LostConfirmed == 0 {
		return
	}
	if keepsConfirmed := c.cell(task).Guarantees.ConfirmedKept; !c.mayLoseMessages || keepsConfirmed &&
		c.outcomes[task].Verdict == plan.Valid {
		c.reportLoss("%d confirmed messages of task %s were lost, and its verdict is %s", ledger.LostConfirmed, task,
			c.outcomes[task].Verdict)
	}
}

func (c *recordCheck) cell(task string) plan.Cell {
	for _, t := range c.run.Plan().Tasks() {
		if t.ID == task {
			return t.Cell
		}
	}
	return plan.Cell{}
}

// checkOutcome compares an outcome in JetStream with the one in the run directory, and with a new judgement of the
// directory.
func (c *recordCheck) checkOutcome(task string) {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.run.Dir(), "tasks", task, "outcome.json"))
	if err != nil {
		c.reportLoss("read the outcome of task %s: %v", task, err)
		return
	}
	var inRunDir plan.Outcome
	if err := json.Unmarshal(text, &inRunDir); err != nil {
		c.reportLoss("decode the outcome of task %s: %v", task, err)
		return
	}
	if want, got := outcomeText(c.outcomes[task]), outcomeText(inRunDir); want != got {
		c.reportLoss("the outcome of task %s differs between JetStream and the run directory: %s", task,
			firstDifference(want, got))
	}
	rejudged, err := c.run.Rejudge(task)
	if err != nil {
		c.reportLoss("judge task %s again: %v", task, err)
		return
	}
	if want, got := outcomeText(inRunDir), outcomeText(rejudged); want != got {
		c.reportLoss("the stored outcome of task %s differs from a new judgement: %s", task, firstDifference(want, got))
	}
}

// firstDifference returns the part of two texts where they begin to differ.
func firstDifference(a, b string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	from := max(0, i-200)
	return fmt.Sprintf("…%s… and …%s…", a[from:min(len(a), i+200)], b[from:min(len(b), i+200)])
}

// outcomeText returns an outcome as JSON, without the warnings about earlier attempts, which the directory adds.
func outcomeText(o plan.Outcome) string {
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

// compareFiles compares the directory that ctl run wrote with another copy. Tables and pages are ignored: only ctl run
// writes them.
func (c *recordCheck) compareFiles(otherName, followed, otherDir string) {
	c.t.Helper()
	want, got := files(c.t, followed), files(c.t, otherDir)
	for name, text := range want {
		switch gotText, ok := got[name]; {
		case !ok:
			c.reportLoss("%s is in the run directory of ctl run, but not in %s", name, otherName)
		case !bytes.Equal(text, gotText):
			c.reportLoss("%s differs between the run directory of ctl run and %s: %s", name, otherName,
				firstDifference(string(text), string(gotText)))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			c.reportLoss("%s is in %s, but not in the run directory of ctl run", name, otherName)
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

// summary summarises the record: its unusual events, the verdicts, and their reasons.
func (c *recordCheck) summary() (parts []string) {
	for _, e := range c.events {
		switch e.Kind {
		case wire.AgentLost, wire.TaskInterrupted, wire.TakenOver:
			parts = append(parts, string(e.Kind)+": "+e.Detail)
		case wire.RunAccepted, wire.TaskStarted, wire.StepEnded, wire.RunEnded, wire.WaitingAgents:
		default:
			parts = append(parts, string(e.Kind))
		}
	}
	verdicts := map[plan.Verdict]int{}
	var reasons []string
	for _, t := range c.run.Plan().Tasks() {
		if o, ok := c.outcomes[t.ID]; ok {
			verdicts[o.Verdict]++
			reasons = append(reasons, o.Reasons...)
		}
	}
	for _, v := range []plan.Verdict{plan.Valid, plan.Invalid, plan.Unknown} {
		if verdicts[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", verdicts[v], v))
		}
	}
	return slices.Compact(append(parts, reasons...))
}

// checkVerdicts checks the verdict of one task, and that all others are valid.
func (c *recordCheck) checkVerdicts(task string, want plan.Verdict) plan.Outcome {
	c.t.Helper()
	for id, o := range c.outcomes {
		if id == task && o.Verdict != want {
			c.t.Errorf("task %s: got verdict %s, want %s: %q", id, o.Verdict, want, o.Reasons)
		}
		if id != task && o.Verdict != plan.Valid {
			c.t.Errorf("task %s, without a fault: got verdict %s, want valid: %q", id, o.Verdict, o.Reasons)
		}
	}
	return c.outcomes[task]
}

// checkRepeated checks that a task that lost an agent was repeated once, and that all tasks are valid. It returns the
// reason why the first attempt failed.
func (c *recordCheck) checkRepeated(task string) (why string) {
	c.t.Helper()
	o := c.checkVerdicts(task, plan.Valid)
	if len(o.FailedAttempts) != 1 || o.FailedAttempts[0].Kind != plan.FailedAgentLost {
		c.t.Errorf("task %s: got failed attempts %+v, want one with kind %s", task, o.FailedAttempts,
			plan.FailedAgentLost)
		return ""
	}
	return o.FailedAttempts[0].Reason
}

// checkStarts checks that each task was started once, or twice if it is listed.
func (c *recordCheck) checkStarts(startedTwice ...string) {
	c.t.Helper()
	starts := map[string]int{}
	for _, e := range c.events {
		if e.Kind == wire.TaskStarted {
			starts[e.Task]++
		}
	}
	for _, t := range c.run.Plan().Tasks() {
		want := 1
		if slices.Contains(startedTwice, t.ID) {
			want = 2
		}
		if starts[t.ID] != want {
			c.t.Errorf("task %s was started %d times, want %d", t.ID, starts[t.ID], want)
		}
	}
}

// firstEvent returns the first event of a kind after a time.
func (c *recordCheck) firstEvent(k wire.EventKind, after time.Time) (wire.RunEvent, bool) {
	for _, e := range c.events {
		if e.Kind == k && e.At.After(after) {
			return e, true
		}
	}
	return wire.RunEvent{}, false
}

// maxPause is longer than any fault and the recovery from it, and shorter than a task's deadline, at which agents
// end it. It is checked in make test-long only.
const maxPause = time.Minute

// timeToNextStart returns the time until the next task was started.
func (c *recordCheck) timeToNextStart(after time.Time) time.Duration {
	c.t.Helper()
	start, ok := c.firstEvent(wire.TaskStarted, after)
	if !ok {
		c.t.Error("no task was started after the fault")
		return 0
	}
	if long() && start.At.Sub(after) > maxPause {
		c.t.Errorf("got %v from the fault to the next start of a task, want at most %v", start.At.Sub(after), maxPause)
	}
	return start.At.Sub(after)
}
