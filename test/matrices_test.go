package test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
	records "example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/test/lab/labtest"
)

// matrixTests maps each shipped matrix to the test that runs it, in its short form unless the test differs.
var matrixTests = map[string]func(*testing.T){
	"async-vs-sync.cue": TestMatrixAsyncVersusSync,
	"bindings.cue":      TestMatrixBindings,
	"capacity.cue":      TestMatrixCapacity,
	"sidebyside.cue":    TestMatrixSideBySide,
	"faults.cue":        TestMatrixFaults,
	"full.cue":          TestMatrixFull,
	"mixed.cue":         TestMatrixMixed,
	"mqperf-2017.cue":   TestMatrixMqperf,
	"nightly.cue":       TestMatrixNightly,
	"prefetch.cue":      TestMatrixPrefetch,
	"quick.cue":         TestMatrixQuick,
	"shapes.cue":        TestMatrixShapes,
	"versions.cue":      TestMatrixVersions,
}

func TestEveryMatrixIsRun(t *testing.T) {
	files, err := filepath.Glob("../matrices/*.cue")
	if err != nil || len(files) == 0 {
		t.Fatalf("shipped matrices: got %d, %v, want at least 1", len(files), err)
	}
	for _, file := range files {
		if name := filepath.Base(file); matrixTests[name] == nil {
			t.Errorf("test of the shipped matrix %s: got none, want one", name)
		}
	}
	if len(files) != len(matrixTests) {
		t.Errorf("tests of shipped matrices: got %d, want %d", len(matrixTests), len(files))
	}
}

// runShipped runs the short form of a shipped matrix, and checks that every cell is valid.
func runShipped(t *testing.T, matrix string, args ...string) record {
	t.Helper()
	dir := t.TempDir()
	ctl := startShipped(t, dir, matrix, append([]string{"--quick"}, args...)...)
	ctl.Exits(0)
	r := readRecord(t, dir, ctl)
	r.checkAllValid()
	return r
}

// Each fault of the matrix is injected once, at its time, into the test's own NATS server. Its row shows the gap.
func TestMatrixFaults(t *testing.T) {
	parallel(t)
	port, files := freePort(t), t.TempDir()
	startNATSAt(t, port, files)
	injectFault := filepath.Join(t.TempDir(), "faults-file.cue")
	pid := filepath.Join(files, "pid") // of the server that the agent starts after the kill
	text := fmt.Sprintf(`targets: broker: {process: port: %s, start: ["sh", "-c", %q]}`, port,
		fmt.Sprintf("echo $$ >%s; %s='%s %s' exec %s >/dev/null 2>&1", pid, natsProcess, port, files, os.Args[0]))
	t.Cleanup(func() {
		text, err := os.ReadFile(pid)
		if err != nil {
			t.Errorf("pid file of the server after the kill: %v", err)
			return
		}
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil ||
			syscall.Kill(n, syscall.SIGKILL) != nil {
			t.Errorf("kill the server with pid %q: %v", text, err)
		}
	})
	if err := os.WriteFile(injectFault, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := runShipped(t, "faults.cue", append(reduced(longDrain...), "--faults", injectFault, "--set",
		fmt.Sprintf("brokers.nats.options.url=%q", "nats://127.0.0.1:"+port))...)
	seen := map[string]bool{}
	for _, o := range r.outcomes {
		fault, _ := r.plan.Cells[o.Index].Coordinate("fault")
		seen[fault] = true
		injected := slices.ContainsFunc(o.Events, func(e plan.Event) bool { return e.Kind == records.EventFault })
		if injected != (fault != "none") {
			t.Errorf("%s: got fault event %v, want %v; events %+v", r.name(o), injected, fault != "none", o.Events)
		}
		if broken := o.Values["reconnects"].Number > 0; broken != (fault == "cut" || fault == "kill") {
			t.Errorf("%s: reconnects: got %v, want some only for the faults cut and kill", r.name(o),
				o.Values["reconnects"].Number)
		}
		// A process that is not scheduled may read earlier confirms only during the fault, so the gap can be shorter.
		minimum := 1e-3
		if long() {
			minimum = 0.9
		}
		if gap := o.Values["gap.confirm"]; (fault == "stall" || fault == "pause") && gap.Number < minimum {
			t.Errorf("%s: gap.confirm: got %+v, want at least %v s, because the fault lasts 1 s", r.name(o), gap,
				minimum)
		}
	}
	if len(seen) != 6 {
		t.Errorf("faults: got %v, want 6", seen)
	}
}

// Each group has its own ledger, and the table shows both side by side.
func TestMatrixMixed(t *testing.T) {
	parallel(t)
	r := runShipped(t, "mixed.cue", reduced(fewMessages...)...)
	for _, o := range r.outcomes {
		groups := 2
		if strings.Contains(r.name(o), "bulk=0") {
			groups = 1
		}
		if len(o.Groups) != groups {
			t.Errorf("%s: groups: got %d, want %d", r.name(o), len(o.Groups), groups)
		}
		for _, g := range o.Groups {
			if l := g.Ledger; l.Sent == 0 || l.Received != l.Sent {
				t.Errorf("%s, %s: got ledger %+v, want all messages received", r.name(o), g.Name, l)
			}
		}
	}
	if !regexp.MustCompile(`(?m)^ *400 .*[0-9]`).MatchString(r.text) {
		t.Errorf("table: got no row for 400 large messages per second:\n%s", r.text)
	}
}

func TestMatrixNightly(t *testing.T) {
	parallel(t)
	// on a busy machine, publishers or consumers may be inactive for half a second
	r := runShipped(t, "nightly.cue", reduced(append(longDrain, `cell.measure="5s"`)...)...)
	for _, o := range r.outcomes {
		// with a load of 0, a backlog is possible
		for _, value := range []string{"publish.rate", "consume.rate", "publish.p50", "publish.p99"} {
			r.metric(o, value)
		}
	}
	if !regexp.MustCompile(`(?m)^(confirm-window)? +1000 .*[0-9]`).MatchString(r.text) {
		t.Errorf("table: got no row for 1,000 messages per second:\n%s", r.text)
	}
}

// One search of the matrix prints its steps. Whether it finds the capacity depends on the machine. TestStudyCapacity
// requires that, on three brokers.
func TestMatrixCapacity(t *testing.T) {
	parallel(t)
	dir := t.TempDir()
	ctl := startShipped(t, dir, "capacity.cue", append(labFlags(t, "nats"), "--quick", "--filter", "broker=nats")...)
	code := ctl.ExitCode()
	r := readRecord(t, dir, ctl)
	if len(r.outcomes) != 1 || r.outcomes[0].Search == nil {
		t.Fatalf("ctl run: got exit code %d and outcomes %+v, want one search", code, r.outcomes)
	}
	s := r.outcomes[0].Search
	if s.Sure != (code == 0) || !s.Sure && s.Why == "" || len(s.Steps) == 0 {
		t.Errorf("search: got exit code %d, %d steps, sure %v, reason %q, want code 0 if sure, a reason otherwise",
			code, len(s.Steps), s.Sure, s.Why)
	}
	r.checkChart(r.outcomes[0], "nats")
}

// chartRow is a row of the chart of a search. The legend below the chart has the same signs, without rates.
var chartRow = regexp.MustCompile(`(?m)^ *(▶)? *[0-9][0-9.,]* ([✓✗?])(?: |$)`)

// checkChart requires that the chart of a broker's only search has each step with the sign of its answer, and marks the
// steps at the capacity.
func (r record) checkChart(o plan.Outcome, broker string) {
	r.t.Helper()
	var got, want []string
	_, chart, _ := strings.Cut(r.text, "Capacity, broker="+broker+" ")
	chart, _, _ = strings.Cut(chart, "\nCapacity, ")
	for _, row := range chartRow.FindAllStringSubmatch(chart, -1) {
		got = append(got, row[1]+row[2])
	}
	for _, s := range slices.SortedStableFunc(slices.Values(o.Search.Steps),
		func(a, b plan.Step) int { return cmp.Compare(a.Rate, b.Rate) }) {
		sign, known := map[plan.Answer]string{plan.AnswerHeld: "✓", plan.AnswerFailed: "✗"}[s.Answer]
		if !known {
			sign = "?"
		}
		if o.Search.Sure && s.Rate == o.Search.Capacity {
			sign = "▶" + sign
		}
		want = append(want, sign)
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("steps in the chart of %s: got %q, want %q:\n%s", broker, got, want, r.text)
	}
}

// faultRuns is the number of runs of faults.cue per broker in TestStudyFaultsReportNoFalseLoss.
var faultRuns = flag.Int("faults.runs", 2, "number of `runs` of faults.cue per broker")

// Connections that are cut or stalled, and a paused broker, lose nothing and break no guarantee. No run reports
// otherwise. The cells have the settings of the matrix, not those of its short form.
func TestStudyFaultsReportNoFalseLoss(t *testing.T) {
	for _, b := range []struct{ part, variable, driver, options string }{
		{"rabbitmq", "LOCKSTEP_RABBITMQ_URL", "rabbitmq", "url: %q"},
		{"kafka", "LOCKSTEP_KAFKA_BROKERS", "kafka", "brokers: [%q]"},
		{"nats", "LOCKSTEP_NATS_URL", "nats", "url: %q"},
	} {
		t.Run(b.part, func(t *testing.T) {
			address := labtest.Own(t, b.part).Variable(b.variable)
			port := regexp.MustCompile(`:(\d+)/?$`).FindStringSubmatch(address)
			if port == nil {
				t.Fatalf("address of %s: got %q, want one with a port", b.part, address)
			}
			dir := t.TempDir()
			file := filepath.Join(dir, "faults-file.cue")
			if err := os.WriteFile(file, []byte("targets: broker: process: port: "+port[1]), 0o600); err != nil {
				t.Fatal(err)
			}
			ctl := startShipped(t, dir, "faults.cue", "--faults", file, "--filter", "fault=cut,stall,pause",
				"--set", fmt.Sprintf("repeat=%d", *faultRuns), "--set", `cell.broker="lab"`,
				"--set", fmt.Sprintf("brokers.lab={driver: %q, options: {%s}}", b.driver, fmt.Sprintf(b.options, address)))
			ctl.Exits(0)
			r := readRecord(t, dir, ctl)
			r.checkAllValid()
			for _, o := range r.outcomes {
				injected := slices.ContainsFunc(o.Events, func(e plan.Event) bool { return e.Kind == records.EventFault })
				if l := o.Ledger; !injected || l.Sent == 0 || l.Lost+l.Dropped+l.Undrained > 0 {
					t.Errorf("%s: got fault event %v, ledger %+v, want a fault event and nothing lost", r.name(o),
						injected, l)
				}
			}
		})
	}
}
