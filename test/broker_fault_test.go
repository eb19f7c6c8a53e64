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
`, driver, options, cell, killedFor, drainedFor))
}

// killedFor is the maximum duration of the measurement, long enough for the broker's return on a busy machine. The
// measurement ends after the count of sentUntil, which is 20 s at the matrix's rate, or later if publishers must wait
// for the broker.
const (
	killedFor = 10 * time.Minute
	sentUntil = "publishers: count: 10_000"
)

// drainedFor is the maximum duration of the drain. It is long, because a broker that returns late has many messages to
// deliver.
const drainedFor = 10 * time.Minute

// fault is a cell and the broker that is killed in it.
type fault struct {
	driver, options string           // options in CUE
	cell            string           // additional fields of the cell
	exposed         bool             // resilience "none"; otherwise "vendor"
	process         string           // process of the lab that is killed during the measurement and started again
	clean           func(run string) // checks that the run left nothing at the broker; nil: not checked
	watch           func()           // observes the broker after the kill; nil: not observed
}

// survivor runs the cell, kills the broker during it, and returns the only outcome. It checks the properties of every
// broker: the cell ends in time, its ledger adds up, and lost confirmed messages make it invalid.
func survivor(t *testing.T, x fault) plan.Outcome {
	t.Helper()
	options := x.options
	if x.exposed {
		options += ` & {resilience: "none"}`
	}
	dir, file := faultMatrix(t, x.driver, options, x.cell+"\n"+sentUntil)
	f := &fleet{t: t, dir: dir}
	ctl := start(t, dir, "ctl", "run", file)
	process.Eventually(t, "measuring", f.measuring)
	injectFault(t, "kill", x.process)
	killed := time.Now()
	if x.watch != nil {
		x.watch()
	}
	injectFault(t, "start", x.process)
	t.Logf("%s was back after %v", x.process, time.Since(killed).Round(100*time.Millisecond))
	// ctl ends after the measurement, the drain and the teardown.
	code := ctl.ExitCode()
	r := readRecord(t, dir, ctl)
	if len(r.outcomes) != 1 {
		t.Fatalf("%d outcomes, want one", len(r.outcomes))
	}
	o := r.outcomes[0]
	l := o.Ledger
	t.Logf("%s %v; %+v; reconnects %v, longest gap %.1f s, retries %v, republished %v; warnings %v", o.Verdict,
		o.Reasons, l, o.Values["reconnects"].Number, o.Values["gap.longest"].Number, o.Values["retries"].Number,
		o.Values["republished"].Number, o.Warnings)
	if (o.Verdict == plan.Valid) != (code == 0) {
		t.Errorf("ctl exited with %d after a cell that is %s", code, o.Verdict)
	}
	if x.exposed || x.driver != "kafka" { // its library connects again
		if r.metric(o, "reconnects") < 1 {
			t.Error("links to a killed broker did not break")
		}
		if gap := r.metric(o, "gap.longest"); gap > killedFor.Seconds() {
			t.Errorf("a gap of %.1f s in a measurement of %v", gap, killedFor)
		}
	}
	if failed := o.Values["publish.errors"].Number; !x.exposed && (l.Unconfirmed > 0 || failed > 0) {
		t.Errorf("%d messages are unconfirmed, and %v publish calls failed; all have to be repeated", l.Unconfirmed, failed)
	}
	if l.Sent != l.Confirmed+l.Rejected+l.Unconfirmed {
		t.Errorf("%d messages sent, but %d confirmed, %d rejected and %d unconfirmed", l.Sent, l.Confirmed, l.Rejected,
			l.Unconfirmed)
	}
	if l.Lost > l.LostConfirmed+l.Unconfirmed {
		t.Errorf("%d messages are lost, but only %d were never confirmed", l.Lost, l.Unconfirmed)
	}
	if l.LostConfirmed > 0 && (o.Verdict != plan.Invalid ||
		!strings.Contains(strings.Join(o.Reasons, "\n"), fmt.Sprint(l.LostConfirmed))) {
		t.Errorf("%d confirmed messages are lost, and the verdict is %s: %v", l.LostConfirmed, o.Verdict, o.Reasons)
	}
	if o.Verdict == plan.Unknown || l.Undrained > 0 {
		t.Errorf("the broker is back, and the outcome is %s with %d messages undrained: %v", o.Verdict, l.Undrained,
			o.Reasons)
	}
	if x.clean != nil {
		x.clean(r.plan.ID)
	}
	return o
}

// The broker is killed and started again. The cell ends in time, and the record has the gap and the fate of each
// message.
func TestBrokerKilledInMidCell(t *testing.T) {
	t.Parallel()
	own := labtest.Own(t, "rabbitmq")
	address, api := own.Variable("LOCKSTEP_RABBITMQ_URL"),
		management{t, own.Variable("LOCKSTEP_RABBITMQ_MANAGEMENT") + "/api"}
	var queues *afterKill
	o := survivor(t, fault{driver: "rabbitmq", options: fmt.Sprintf("{url: %q}", address), exposed: true, process: own.Process(1),
		clean: api.nothingLeft,
		watch: func() { queues = api.watchQueues() }})
	switch forgot, last := queues.forgotBinding(); {
	case o.Ledger.LostConfirmed > 0 && forgot:
		t.Logf("%d messages that RabbitMQ confirmed went nowhere: it came back with the queue and without its binding, and the outcome says so", o.Ledger.LostConfirmed)
	case o.Ledger.LostConfirmed > 0:
		t.Errorf("%d messages that were confirmed as written to disk are lost; RabbitMQ's queues meanwhile:\n%s",
			o.Ledger.LostConfirmed, strings.Join(last, "\n"))
	case len(last) == 0:
		t.Error("nothing was seen of RabbitMQ's queues after it was back")
	}
	if gap := o.Values["gap.longest"].Number; gap < 1 {
		t.Errorf("the longest gap is %.1f s; no RabbitMQ starts as fast", gap)
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
	o := survivor(t, fault{driver: "rabbitmq", options: options, cell: "topology: queueNode: 0",
		process: own.Process(3), clean: api.nothingLeft})
	if o.Ledger.LostConfirmed > 0 {
		t.Errorf("%d messages that a majority had written are lost", o.Ledger.LostConfirmed)
	}
}

// A run that is cancelled during a cell leaves nothing behind, and neither does an agent that is killed after it
// declared objects.
func TestBrokerIsLeftClean(t *testing.T) {
	first, _, _ := strings.Cut(variable(t, "LOCKSTEP_RABBITMQ3_URLS"), ",")
	api := managementOf(t, "LOCKSTEP_RABBITMQ3_MANAGEMENT")
	t.Parallel()
	options := fmt.Sprintf("{url: %q}", first)
	declared := func(run string) bool {
		var queues []placed
		return api.ask("/queues", &queues) == nil &&
			slices.ContainsFunc(queues, func(q placed) bool { return strings.HasPrefix(q.Name, "lockstep-"+run) })
	}
	t.Run("interrupt", func(t *testing.T) {
		t.Parallel()
		dir, file := faultMatrix(t, "rabbitmq", options, "")
		f := &fleet{t: t, dir: dir}
		ctl := start(t, dir, "ctl", "run", file)
		process.Eventually(t, "measuring", f.measuring)
		run := f.runID()
		if !declared(run) {
			t.Fatal("there is no queue to be removed: this test proves nothing")
		}
		ctl.Signal(os.Interrupt)
		ctl.Exits(130)
		management{t, api.base}.nothingLeft(run)
	})
	t.Run("agent killed", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t, "a1", "a2")
		_, file := faultMatrix(t, "rabbitmq", options,
			`publishers: count: 2000 // so that those who are left need not wait for the end`)
		ctl := start(t, f.dir, "ctl", "run", "--server", f.url, file)
		process.Eventually(t, "measuring", f.measuring)
		run := f.runID()
		if !declared(run) {
			t.Fatal("there is no queue to be removed: this test proves nothing")
		}
		f.agents["a1"].Kill() // the first agent, which declared them
		ctl.Exits(3)
		management{t, api.base}.nothingLeft(run)
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
