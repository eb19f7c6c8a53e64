package test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/test/lab/labtest"
	"example.org/lockstep/lockstep/test/process"
)

// injectFault makes the lab kill or start a broker.
func injectFault(t *testing.T, what, name string) {
	t.Helper()
	variable(t, "LOCKSTEP_LAB_CONTROL")
	labtest.Control(t, what, name)
}

// faultMatrix writes a matrix of one cell whose broker is killed during the measurement. Messages are persistent and
// confirmed, at a rate that every machine can sustain.
func faultMatrix(t *testing.T, driver, options, cell string) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	return dir, writeMatrix(t, dir, fmt.Sprintf(`package matrix
name: "killed"
grace: "5s"
brokers: killed: {driver: %q, options: %s}
axes: mode: ["confirm-window"]
cell: {
	axis: _
	publishers: {mode: axis.mode, rate: 500, maxInFlight: 200}
	%s
	connect: "3m", warmup: "500ms", measure: "%v", drain: {idle: "10s", timeout: "%v"}
}
tables: [{rows: ["mode"], values: ["publish.rate", "reconnects", "gap.longest", "lost"]}]
`, driver, options, cell, maxMeasure, maxDrain))
}

// maxMeasure is the maximum duration of the measurement, long enough for a restart of the broker on a busy machine. The
// measurement ends after the number of messages in countField, which is 20 s at the matrix's rate, or later if
// publishers must wait for the broker.
const (
	maxMeasure = 10 * time.Minute
	countField = "publishers: count: 10_000"
)

// maxDrain is the maximum duration of the drain. It is long, because a broker that restarts slowly has many messages
// to deliver.
const maxDrain = 10 * time.Minute

// fault is a cell and the broker that is killed in it.
type fault struct {
	driver, options string           // options in CUE
	cell            string           // additional fields of the cell
	exposed         bool             // resilience "none"; otherwise "vendor"
	process         string           // process of the lab that is killed during the measurement and started again
	clean           func(run string) // checks that the broker has no object of the run; nil: not checked
	watch           func()           // observes the broker after the kill; nil: not observed
}

// runWithKill runs the cell, kills the broker during it, and returns the only outcome. It checks the properties of
// every broker: the cell ends in time, its ledger adds up, and lost confirmed messages make it invalid.
func runWithKill(t *testing.T, x fault) plan.Outcome {
	t.Helper()
	options := x.options
	if x.exposed {
		options += ` & {resilience: "none"}`
	}
	dir, file := faultMatrix(t, x.driver, options, x.cell+"\n"+countField)
	f := &fleet{t: t, dir: dir}
	ctl := start(t, dir, "ctl", "run", file)
	process.Eventually(t, "the start of the measurement", f.isMeasuring)
	injectFault(t, "kill", x.process)
	killed := time.Now()
	if x.watch != nil {
		x.watch()
	}
	injectFault(t, "start", x.process)
	t.Logf("%s restarted %v after the kill", x.process, time.Since(killed).Round(100*time.Millisecond))
	// ctl ends after the measurement, the drain and the teardown.
	code := ctl.ExitCode()
	r := readRecord(t, dir, ctl)
	if len(r.outcomes) != 1 {
		t.Fatalf("outcomes: got %d, want 1", len(r.outcomes))
	}
	o := r.outcomes[0]
	l := o.Ledger
	t.Logf("%s %v; %+v; reconnects %v, longest gap %.1f s, retries %v, republished %v; warnings %v", o.Verdict,
		o.Reasons, l, o.Values["reconnects"].Number, o.Values["gap.longest"].Number, o.Values["retries"].Number,
		o.Values["republished"].Number, o.Warnings)
	if (o.Verdict == plan.Valid) != (code == 0) {
		t.Errorf("ctl run: got exit code %d with verdict %s, want 0 if valid, and not 0 otherwise", code, o.Verdict)
	}
	if x.exposed || x.driver != "kafka" { // Kafka's client library reconnects without a report
		if r.metric(o, "reconnects") < 1 {
			t.Error("reconnects after the kill of the broker: got none, want at least 1")
		}
		if gap := r.metric(o, "gap.longest"); gap > maxMeasure.Seconds() {
			t.Errorf("gap.longest: got %.1f s, want at most the maximum of the measurement, %v", gap, maxMeasure)
		}
	}
	if failed := o.Values["publish.errors"].Number; !x.exposed && (l.Unconfirmed > 0 || failed > 0) {
		t.Errorf("with resilience \"vendor\": got %d unconfirmed messages and %v publish errors, want 0 and 0",
			l.Unconfirmed, failed)
	}
	if l.Sent != l.Confirmed+l.Rejected+l.Unconfirmed {
		t.Errorf("ledger: got %d sent, %d confirmed, %d rejected, %d unconfirmed, want sent = sum of the others",
			l.Sent, l.Confirmed, l.Rejected, l.Unconfirmed)
	}
	if l.Lost > l.LostConfirmed+l.Unconfirmed {
		t.Errorf("ledger: got %d lost, %d lost although confirmed, %d unconfirmed, want lost <= sum of the others",
			l.Lost, l.LostConfirmed, l.Unconfirmed)
	}
	if l.LostConfirmed > 0 && (o.Verdict != plan.Invalid ||
		!strings.Contains(strings.Join(o.Reasons, "\n"), fmt.Sprint(l.LostConfirmed))) {
		t.Errorf("with %d lost confirmed messages: got verdict %s and reasons %v, want invalid with this number",
			l.LostConfirmed, o.Verdict, o.Reasons)
	}
	if o.Verdict == plan.Unknown || l.Undrained > 0 {
		t.Errorf("after the broker's restart: got verdict %s, %d undrained messages, reasons %v, want all drained",
			o.Verdict, l.Undrained, o.Reasons)
	}
	if x.clean != nil {
		x.clean(r.plan.ID)
	}
	return o
}

// The broker is killed and started again. The cell ends in time. The record has the gap, and its ledger accounts for
// each message.
func TestBrokerKilledInMidCell(t *testing.T) {
	t.Parallel()
	own := labtest.Own(t, "rabbitmq")
	address, api := own.Variable("LOCKSTEP_RABBITMQ_URL"),
		management{t, own.Variable("LOCKSTEP_RABBITMQ_MANAGEMENT") + "/api"}
	var queues *queueWatch
	o := runWithKill(t, fault{driver: "rabbitmq", options: fmt.Sprintf("{url: %q}", address), exposed: true,
		process: own.Process(1), clean: api.checkNoLeftovers, watch: func() { queues = api.watchQueues() }})
	switch unbound, last := queues.lostBinding(); {
	case o.Ledger.LostConfirmed > 0 && unbound:
		t.Logf("known fault of RabbitMQ: no binding after the restart, so %d confirmed messages were not routed",
			o.Ledger.LostConfirmed)
	case o.Ledger.LostConfirmed > 0:
		t.Errorf("lost messages that were confirmed as written to disk: got %d, want 0; queues after the restart:\n%s",
			o.Ledger.LostConfirmed, strings.Join(last, "\n"))
	case len(last) == 0:
		t.Error("observations of RabbitMQ's queues after the restart: got none, want at least 1")
	}
	if gap := o.Values["gap.longest"].Number; gap < 1 {
		t.Errorf("gap.longest: got %.1f s, want at least 1 s, because RabbitMQ starts no faster", gap)
	}
}

// The node with the leader of a quorum queue is killed, which breaks the links of publisher and consumer. They continue
// on another node while it is down. No message that a majority confirmed is lost.
func TestBrokerClusterNodeKilled(t *testing.T) {
	t.Parallel()
	own := labtest.Own(t, "rabbitmq3")
	urls := strings.Split(own.Variable("LOCKSTEP_RABBITMQ3_URLS"), ",")
	api := management{t, own.Variable("LOCKSTEP_RABBITMQ3_MANAGEMENT") + "/api"}
	// The third node is first: the first connection of each role goes there.
	options := fmt.Sprintf("{urls: [%q, %q, %q], queue: type: \"quorum\"}", urls[2], urls[0], urls[1])
	o := runWithKill(t, fault{driver: "rabbitmq", options: options, cell: "topology: queueNode: 0",
		process: own.Process(3), clean: api.checkNoLeftovers})
	if o.Ledger.LostConfirmed > 0 {
		t.Errorf("lost messages that a majority had confirmed: got %d, want 0", o.Ledger.LostConfirmed)
	}
}

// After a run that is cancelled during a cell, the broker has no object of the run. The same is true if an agent is
// killed after it declared objects.
func TestBrokerIsLeftClean(t *testing.T) {
	first, _, _ := strings.Cut(variable(t, "LOCKSTEP_RABBITMQ3_URLS"), ",")
	api := managementOf(t, "LOCKSTEP_RABBITMQ3_MANAGEMENT")
	t.Parallel()
	options := fmt.Sprintf("{url: %q}", first)
	declared := func(run string) bool {
		var queues []brokerObject
		return api.get("/queues", &queues) == nil &&
			slices.ContainsFunc(queues, func(q brokerObject) bool { return strings.HasPrefix(q.Name, "lockstep-"+run) })
	}
	t.Run("interrupt", func(t *testing.T) {
		t.Parallel()
		dir, file := faultMatrix(t, "rabbitmq", options, "")
		f := &fleet{t: t, dir: dir}
		ctl := start(t, dir, "ctl", "run", file)
		process.Eventually(t, "the start of the measurement", f.isMeasuring)
		run := f.runID()
		if !declared(run) {
			t.Fatal("the run's queues during the measurement: got none, want at least 1 for the cleanup")
		}
		ctl.Signal(os.Interrupt)
		ctl.Exits(130)
		management{t, api.base}.checkNoLeftovers(run)
	})
	t.Run("agent killed", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t, "a1", "a2")
		_, file := faultMatrix(t, "rabbitmq", options,
			`publishers: count: 2000 // so that the remaining agents need not wait for the end`)
		ctl := start(t, f.dir, "ctl", "run", "--server", f.url, file)
		process.Eventually(t, "the start of the measurement", f.isMeasuring)
		run := f.runID()
		if !declared(run) {
			t.Fatal("the run's queues during the measurement: got none, want at least 1 for the cleanup")
		}
		f.agents["a1"].Kill() // the first agent, which declared the objects
		ctl.Exits(3)
		management{t, api.base}.checkNoLeftovers(run)
	})
}

// runID returns the id of the latest run.
func (f *fleet) runID() string {
	f.t.Helper()
	r, err := runs.Open(filepath.Join(f.dir, "runs"), "latest")
	if err != nil {
		f.t.Fatal(err)
	}
	return r.Plan().ID
}
