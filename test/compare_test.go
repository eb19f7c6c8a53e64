package test

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/internal/compare"
	"lockstep/test/rig"
)

// closed is a matrix of six cells that send as fast as confirms come back. There are 5 ms between client and broker, as between two sites, so that what
// a busy machine takes away is small beside them.
const closed = `package matrix

name: "closed"
brokers: one: {driver: %q, options: {%s}}
axes: {
	mode: ["confirm-each", "confirm-window"]
	threads: [1, 2, 3]
}
cell: {
	axis: _
	publishers: {mode: axis.mode, threads: axis.threads, window: 4, persistent: false}
	network: latency: "5ms"
	warmup:  "200ms"
	measure: %q
	drain: {silence: "3s", most: "20s"}
}
repeat: %d
tables: [{rows: ["mode", "threads"], values: ["send.rate", "send.p50"]}]
`

// closedRun starts a run of the matrix in a folder of its own.
func closedRun(t *testing.T, driver, options, measure string, repeat int, args ...string) (dir string, ctl *rig.Process) {
	t.Helper()
	dir = t.TempDir()
	file := filepath.Join(dir, "closed.cue")
	if err := os.WriteFile(file, fmt.Appendf(nil, closed, driver, options, measure, repeat), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, startPlain(t, dir, "ctl", append([]string{"run", file}, args...)...)
}

// Of two runs against RabbitMQ, the second has 2 ms more network in two of six cells: exactly these are worse, and the others are noise. The runs go on
// side by side, so that a slow moment of the machine concerns both. Where it is so slow that 2 ms are noise, more is planted; nothing may ever be
// named that was not.
func TestStudyCompareFindsPlanted(t *testing.T) {
	url := variable(t, "LOCKSTEP_RABBITMQ_URL")
	for _, more := range []time.Duration{2 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond} {
		missed, wrong, text := plantedPair(t, fmt.Sprintf("url: %q", url), more)
		t.Logf("%s", text)
		for _, w := range wrong {
			t.Errorf("nothing was planted there: %s", w)
		}
		if len(missed) == 0 || t.Failed() {
			t.Logf("%v were planted", more)
			return
		}
		t.Logf("of %v, not found: %s", more, strings.Join(missed, "; "))
	}
	t.Fatal("what was planted was never found")
}

// plantedPair runs both and compares them: what was planted and is not called worse, and what was not planted and is not called noise.
func plantedPair(t *testing.T, options string, more time.Duration) (missed, wrong []string, text string) {
	t.Helper()
	before, first := closedRun(t, "rabbitmq", options, "1s", 8)
	after, second := closedRun(t, "rabbitmq", options, "1s", 8, "--set", fmt.Sprintf(`cell.network.latency=[if axis.threads == 2 {"%v"}, "5ms"][0]`, 5*time.Millisecond+more))
	for dir, ctl := range map[string]*rig.Process{before: first, after: second} {
		if code := ctl.Leaves(); code != 0 {
			t.Fatalf("ctl left with %d, want 0", code)
		}
		readRecord(t, dir, ctl).allValid()
	}
	args := []string{"compare", "--match", "mode,threads", "--value", "send.rate", "--value", "send.p50"}
	runs := []string{filepath.Join(before, "runs", "latest"), filepath.Join(after, "runs", "latest")}
	var c compare.Comparison
	if err := json.Unmarshal(ctlSays(t, append(append(args, "--format", "json"), runs...)...), &c); err != nil {
		t.Fatal(err)
	}
	for _, v := range c.Values {
		if len(v.Rows) != 6 {
			t.Errorf("%s is compared in %d cells, want 6", v.Name, len(v.Rows))
		}
		for _, r := range v.Rows {
			was, found := strings.Contains(r.Name, "threads=2"), r.Changes[0].Finding
			said := fmt.Sprintf("%s of %s is %s", v.Name, r.Name, found)
			switch {
			case was && found == compare.Same:
				missed = append(missed, said)
			case was && found != compare.Worse, !was && found != compare.Same:
				wrong = append(wrong, said)
			}
		}
	}
	if !slices.ContainsFunc(c.Differences, func(d compare.Difference) bool { return d.Of == "workload" && d.What == "network.latency" }) {
		t.Errorf("differences are %+v: want the latency of the network among them", c.Differences)
	}
	return missed, wrong, string(ctlSays(t, append(args, runs...)...))
}

// ctlSays is what ctl writes when it succeeds.
func ctlSays(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(filepath.Join(programs, "ctl"), args...)
	var faults strings.Builder
	cmd.Stderr = &faults
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ctl %s: %v\n%s", strings.Join(args, " "), err, faults.String())
	}
	return out
}

// The repetitions of one run, parted in two, are two runs that differ in nothing: hardly ever is anything named.
func TestStudyCompareFindsNothingInItself(t *testing.T) {
	rabbitmq := variable(t, "LOCKSTEP_RABBITMQ_URL")
	t.Parallel() // what else goes on is noise, which has to be called that
	for _, b := range []struct{ driver, options string }{
		{"rabbitmq", fmt.Sprintf("url: %q", rabbitmq)},
		{"nats", fmt.Sprintf("url: %q", broker)},
	} {
		t.Run(b.driver, func(t *testing.T) {
			dir, ctl := closedRun(t, b.driver, b.options, "500ms", 12, "--set", `cell.network.latency="0s"`)
			if code := ctl.Leaves(); code != 0 {
				t.Fatalf("ctl left with %d, want 0", code)
			}
			r := readRecord(t, dir, ctl)
			r.allValid()
			r.parted()
		})
	}
}

// parted compares the halves of the run's repetitions, parted in every way that there is: of all cells alike, for a slow repetition is slow in all. It is what
// drawing ways by chance would tell, without the luck.
func (r record) parted() {
	r.t.Helper()
	const promised = 0.95
	ways, quiet, spread := 0, 0, 0.0
	for first := range 1 << r.plan.Repeat { // which repetitions are in the first half, a bit for each
		if bits.OnesCount(uint(first)) != r.plan.Repeat/2 {
			continue
		}
		a, b := r.halves(first)
		c, err := compare.Compare([]compare.Recorded{a, b}, compare.Options{Values: []string{"send.rate", "send.p99"}})
		if err != nil {
			r.t.Fatal(err)
		}
		ways++
		if c.Found()[compare.Same] == 2*len(r.plan.Cells) {
			quiet++
		}
		for _, row := range c.Values[0].Rows {
			spread = max(spread, row.Changes[0].Ratio.Estimate-1)
		}
	}
	r.t.Logf("%d cells, 2 values, %d repetitions: ~ throughout in %d of all %d partings (%.1f %%); rates of halves differ by up to %.0f %%",
		len(r.plan.Cells), r.plan.Repeat, quiet, ways, 100*float64(quiet)/float64(ways), 100*spread)
	if float64(quiet) < promised*float64(ways) {
		r.t.Errorf("~ throughout in %d of %d partings, want %.0f %%", quiet, ways, 100*promised)
	}
}

// halves parts the repetitions of each cell into two runs.
func (r record) halves(first int) (a, b compare.Recorded) {
	a.Run, b.Run = r.plan, r.plan
	a.Run.Repeat, b.Run.Repeat = r.plan.Repeat/2, r.plan.Repeat/2
	for _, o := range r.outcomes {
		if first>>(o.Repetition-1)&1 == 1 {
			a.Outcomes = append(a.Outcomes, o)
		} else {
			b.Outcomes = append(b.Outcomes, o)
		}
	}
	return a, b
}
