package test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/internal/compare"
	"lockstep/internal/plan"
)

// closed is a matrix of two sides that differ in nothing but the network of cells with two threads. Its cells send as fast as confirms come back. There are
// 5 ms between client and broker, as between two sites, so that what a busy machine takes away is small beside them.
const closed = `package matrix

name: "closed"
brokers: one: {driver: %q, options: {%s}}
axes: {
	mode: ["confirm-each", "confirm-window"]
	threads: [1, 2]
	side: ["a", "b"]
}
cell: {
	axis: _
	labels: side: axis.side
	publishers: {mode: axis.mode, threads: axis.threads, window: 4, persistent: false}
	network: latency: [if axis.side == "b" && axis.threads == 2 {%q}, "5ms"][0]
	warmup:  "200ms"
	measure: %q
	drain: {silence: "3s", most: "20s"}
}
repeat: 6
tables: [{rows: ["mode", "threads"], columns: ["side"], values: ["send.rate", "send.p50"]}]
`

// closedRun runs the matrix in a folder: side b has more latency in cells with two threads.
func closedRun(t *testing.T, dir, driver, options, measure string, more time.Duration) {
	t.Helper()
	file := filepath.Join(dir, "closed.cue")
	if err := os.WriteFile(file, fmt.Appendf(nil, closed, driver, options, (5*time.Millisecond+more).String(), measure), 0o600); err != nil {
		t.Fatal(err)
	}
	ctl := startPlain(t, dir, "ctl", "run", file)
	if code := ctl.Leaves(); code != 0 {
		t.Fatalf("ctl left with %d, want 0", code)
	}
	readRecord(t, dir, ctl).allValid()
}

// compared is what ctl compare finds in a folder of runs.
func compared(t *testing.T, dir string, args ...string) (c compare.Comparison) {
	t.Helper()
	args = append([]string{"compare", "--runs", filepath.Join(dir, "runs"), "--value", "send.rate", "--value", "send.p50", "--format", "json"}, args...)
	if err := json.Unmarshal(ctlSays(t, args...), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Values) != 2 || len(c.Values[0].Rows) == 0 || len(c.Values[0].Rows) != len(c.Values[1].Rows) {
		t.Fatalf("%v: %+v", args, c.Values)
	}
	return c
}

// findings calls f with every change of a comparison.
func findings(c compare.Comparison, f func(row string, x compare.Change)) {
	for _, v := range c.Values {
		for _, r := range v.Rows {
			f(v.Name+" of "+r.Name, r.Changes[0])
		}
	}
}

// Of two sides of one run against RabbitMQ, one has 2 ms more network in two of four cells: exactly these are worse. Where the machine is so slow that 2 ms are
// noise, more is planted; no difference may ever be reported that was not.
func TestStudyCompareFindsPlanted(t *testing.T) {
	url := variable(t, "LOCKSTEP_RABBITMQ_URL")
	for _, more := range []time.Duration{2 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond} {
		dir := t.TempDir()
		closedRun(t, dir, "rabbitmq", fmt.Sprintf("url: %q", url), "1s", more)
		c := compared(t, dir, "--by", "side", "latest")
		var missed []string
		findings(c, func(row string, x compare.Change) {
			said := fmt.Sprintf("%s is %s %s", row, x.Finding, x.Why)
			switch was := strings.Contains(row, "threads=2"); {
			case was && (x.Finding == compare.NoDifference || x.Finding == compare.Inconclusive):
				missed = append(missed, said)
			case was && x.Finding != compare.Worse, !was && x.Finding != compare.NoDifference && x.Finding != compare.Inconclusive:
				t.Errorf("nothing was planted there: %s", said)
			}
		})
		if !slices.ContainsFunc(c.Differences, func(d compare.Difference) bool { return d.Of == "workload" && d.What == "network.latency" }) {
			t.Errorf("differences are %+v: want the latency of the network among them", c.Differences)
		}
		if len(missed) == 0 || t.Failed() {
			t.Logf("%v were planted", more)
			return
		}
		t.Logf("of %v, not found: %s", more, strings.Join(missed, "; "))
	}
	t.Fatal("what was planted was never found")
}

// Seven runs differ in nothing, and neither do the two sides of each. The first five are compared with nothing, as the spread between runs is not known. The
// last two are compared with the first, and the sides of these two with each other: each of the four comparisons may report a difference once in twenty times.
// Two of a kind do so by chance once in 400.
func TestStudyCompareFindsNothingInItself(t *testing.T) {
	rabbitmq := variable(t, "LOCKSTEP_RABBITMQ_URL")
	t.Parallel() // what else goes on is noise, which has to be called that
	for _, b := range []struct{ driver, options string }{{"rabbitmq", fmt.Sprintf("url: %q", rabbitmq)}, {"nats", fmt.Sprintf("url: %q", broker)}} {
		t.Run(b.driver, func(t *testing.T) {
			dir := t.TempDir()
			var ids []string
			between, inside := 0, 0
			reported := func(c compare.Comparison) int {
				spread, different := 0.0, 0
				findings(c, func(row string, x compare.Change) {
					if x.Finding != compare.NoDifference && x.Finding != compare.Inconclusive {
						t.Logf("%s is %s", row, x.Finding)
						different = 1
					}
					if x.Ratio != nil {
						spread = max(spread, math.Abs(math.Log(x.Ratio.Estimate)))
					}
				})
				t.Logf("%v; changes of up to %.0f %%", c.Found(), 100*math.Expm1(spread))
				return different
			}
			for n := range 7 {
				closedRun(t, dir, b.driver, b.options, "1s", 0)
				latest, err := os.Readlink(filepath.Join(dir, "runs", "latest"))
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, filepath.Base(latest))
				if n == 0 {
					continue
				}
				c := compared(t, dir, ids[0], ids[n])
				if n >= plan.MinEarlierRuns {
					between, inside = between+reported(c), inside+reported(compared(t, dir, "--by", "side", ids[n]))
					continue
				}
				findings(c, func(row string, x compare.Change) {
					if x.Finding != compare.Inconclusive || x.Earlier > n {
						t.Errorf("with %d earlier runs %s is %s", n, row, x.Finding)
					}
				})
			}
			if between == 2 || inside == 2 {
				t.Errorf("a difference is reported in %d of 2 comparisons of runs, and in %d of 2 of sides", between, inside)
			}
		})
	}
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
