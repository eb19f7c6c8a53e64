package test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/plan"
)

// closedLoopMatrix is a matrix of two sides that differ only in the network of cells with two threads. Its cells are
// closed loops.
const closedLoopMatrix = `package matrix

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
	publishers: {mode: axis.mode, threads: axis.threads, maxInFlight: 4, persistent: false}
	%s
	warmup:  "200ms"
	measure: "1s"
	drain: {idle: "3s", timeout: "20s"}
}
repeat: 6
tables: [{rows: ["mode", "threads"], columns: ["side"], values: ["publish.rate", "publish.p50"]}]
`

// extraLatency returns a network latency of 20 ms. Late wake-ups of the host are less than 5 % of it, so that no cell
// has the flag latency-off, which would make its comparison inconclusive. Side b has more latency in cells with two
// threads.
func extraLatency(more time.Duration) string {
	return fmt.Sprintf(`network: latency: [if axis.side == "b" && axis.threads == 2 {%q}, "20ms"][0]`,
		(20*time.Millisecond + more).String())
}

// runClosedLoop runs the matrix in a folder, with additional fields of its cells.
func runClosedLoop(t *testing.T, dir, driver, options, cell string, args ...string) record {
	t.Helper()
	file := writeMatrix(t, dir, fmt.Sprintf(closedLoopMatrix, driver, options, cell))
	ctl := startPlain(t, dir, "ctl", append([]string{"run", file}, args...)...)
	if code := ctl.ExitCode(); code != 0 {
		t.Fatalf("ctl run: got exit code %d, want 0", code)
	}
	r := readRecord(t, dir, ctl)
	r.checkAllValid()
	return r
}

// runCompare returns the result of ctl compare for a folder of runs.
func runCompare(t *testing.T, dir string, args ...string) (c compare.Comparison) {
	t.Helper()
	args = append([]string{"compare", "--runs", filepath.Join(dir, "runs"), "--metric", "publish.rate", "--metric",
		"publish.p50", "-o", "json"}, args...)
	if err := json.Unmarshal(ctlOutput(t, args...), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Values) != 2 || len(c.Values[0].Rows) == 0 || len(c.Values[0].Rows) != len(c.Values[1].Rows) {
		t.Fatalf("ctl %v: got values %+v, want 2 with equal numbers of rows", args, c.Values)
	}
	return c
}

// eachFinding calls f for every change of a comparison.
func eachFinding(c compare.Comparison, f func(row string, x compare.Change)) {
	for _, v := range c.Values {
		for _, r := range v.Rows {
			f(v.Name+" of "+r.Name, r.Changes[0])
		}
	}
}

// In a run with RabbitMQ, one of two sides has 30 ms of network latency instead of 20 ms in two of four cells. Exactly
// these cells are reported as worse, and no other difference. With Holm's correction over 8 tests, two sides of 6
// repetitions differ if at most one of the 36 pairs has the wrong order (p = 4/924). With a normal noise of 2 ms
// between repetitions, each injected difference is found with a probability of 99.9 %, and of 2.5 ms with 98 %.
func TestStudyCompareFindsPlanted(t *testing.T) {
	url, dir := variable(t, "LOCKSTEP_RABBITMQ_URL"), t.TempDir()
	runClosedLoop(t, dir, "rabbitmq", fmt.Sprintf("url: %q", url), extraLatency(10*time.Millisecond))
	c := runCompare(t, dir, "--by", "side", "latest")
	eachFinding(c, func(row string, x compare.Change) {
		slower := strings.Contains(row, "threads=2")
		if slower && x.Finding != compare.Worse ||
			!slower && x.Finding != compare.NoDifference && x.Finding != compare.Inconclusive {
			t.Errorf("%s: got %s (%s), want worse: %v", row, x.Finding, x.Why, slower)
		}
	})
	if !slices.ContainsFunc(c.Differences, func(d compare.Difference) bool {
		return d.Of == "workload" && d.What == "network.latency"
	}) {
		t.Errorf("differences: got %+v, want network.latency of the workload among them", c.Differences)
	}
}

// unexpectedResult returns why comparisons without a real difference are wrong: all of them report a difference, or all
// are inconclusive. One comparison may report a difference with a probability of 1/20, and two with 1/400.
func unexpectedResult(t *testing.T, all []compare.Comparison) string {
	t.Helper()
	different, decided := 0, false
	for _, c := range all {
		reported := 0
		eachFinding(c, func(row string, x compare.Change) {
			if x.Finding != compare.NoDifference && x.Finding != compare.Inconclusive {
				t.Logf("%s: %s, ratio %+v", row, x.Finding, x.Ratio)
				reported = 1
			}
			if x.Why != "" {
				t.Logf("%s: %s", row, x.Why)
			}
		})
		found := c.Found()
		t.Logf("findings: %v", found)
		delete(found, compare.Inconclusive)
		different, decided = different+reported, decided || len(found) > 0
	}
	switch {
	case !decided:
		return "all are inconclusive"
	case different == len(all):
		return fmt.Sprintf("a difference is reported in %d of %d comparisons", different, len(all))
	}
	return ""
}

// Seven runs and their two sides do not differ. The comparisons of the first runs are inconclusive, because the spread
// between runs is unknown. The last two runs are compared with the first one, and their sides with each other. The
// minimum effect is nearly zero, so only the statistics decide. With a spread of a thousandth of the real one, the same
// runs must be reported as different, or the test could not fail.
func TestStudyCompareFindsNothingInItself(t *testing.T) {
	const effect = 0.0001
	for _, driver := range []string{"rabbitmq", "nats"} {
		t.Run(driver, func(t *testing.T) {
			url := broker
			if driver == "rabbitmq" {
				url = variable(t, "LOCKSTEP_RABBITMQ_URL")
			}
			dir := t.TempDir()
			var recorded []compare.Recorded
			var between, inside, tooSensitive []compare.Comparison
			for n := range 7 {
				r := runClosedLoop(t, dir, driver, fmt.Sprintf("url: %q", url), "consumers: nodes: 0", "--filter",
					"threads=1")
				recorded = append(recorded, compare.Recorded{Run: r.plan, Outcomes: r.outcomes})
				if n == 0 {
					continue
				}
				first, now := recorded[0].Run.ID, recorded[n].Run.ID
				c := runCompare(t, dir, "--effect", fmt.Sprint(effect), first, now)
				if n < plan.MinEarlierRuns {
					if why := unexpectedResult(t, []compare.Comparison{c}); why != "all are inconclusive" {
						t.Errorf("comparison with %d earlier runs: got %q, want it inconclusive", n, why)
					}
					continue
				}
				between, inside = append(between, c),
					append(inside, runCompare(t, dir, "--effect", fmt.Sprint(effect), "--by", "side", now))
				pair := []compare.Recorded{recorded[0], recorded[n]}
				spread, err := history.Of(filepath.Join(dir, "runs")).SpreadsOf(pair, nil)
				if err != nil {
					t.Fatal(err)
				}
				c, err = compare.Compare(pair, compare.Options{Effect: effect,
					Spread: func(cell, value string) plan.RunSpread {
						const wrong = 1000
						s := spread(cell, value)
						s.Deviation /= wrong
						if s.Relative != nil {
							relative := *s.Relative / wrong
							s.Relative = &relative
						}
						return s
					}})
				if err != nil {
					t.Fatal(err)
				}
				tooSensitive = append(tooSensitive, c)
			}
			if why := unexpectedResult(t, between); why != "" {
				t.Errorf("comparisons of runs: got %q, want no differences and not all inconclusive", why)
			}
			if why := unexpectedResult(t, inside); why != "" {
				t.Errorf("comparisons of sides: got %q, want no differences and not all inconclusive", why)
			}
			if why := unexpectedResult(t, tooSensitive); !strings.HasPrefix(why, "a difference is reported") {
				t.Errorf("comparisons with a spread that is too small: got %q, want a difference in each", why)
			}
		})
	}
}

// ctlOutput returns the output of a successful ctl command.
func ctlOutput(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(filepath.Join(programs, "ctl"), args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ctl %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return out
}
