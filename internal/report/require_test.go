package report

import (
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// ruled returns a run of one cell with these rules, and the outcomes of its repetitions.
func ruled(texts []string, outcomes ...plan.Outcome) (plan.Run, []plan.Outcome) {
	var rules []plan.Rule
	for _, text := range texts {
		rules = append(rules, plan.Rule{Text: text})
	}
	c := plan.Cell{ID: "c", Coordinates: []plan.Coordinate{{Axis: "threads", Value: []byte("1")}},
		Workload: plan.Default(), Require: rules}
	for i := range outcomes {
		outcomes[i].Cell, outcomes[i].Repetition = "c", i+1
		outcomes[i].Started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		outcomes[i].Ended = outcomes[i].Started.Add(2 * time.Second)
	}
	return plan.Run{ID: "r", Name: "rules <&>", Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Repeat: len(outcomes), Cells: []plan.Cell{c}}, outcomes
}

func measured(p99, rate, lost float64, flags ...plan.Flag) plan.Outcome {
	return plan.Outcome{Verdict: plan.Valid, Values: map[string]plan.Value{"e2e.p99": {Number: p99, Flags: flags},
		"consume.rate": {Number: rate}, "lost": {Number: lost}}}
}

func TestRulings(t *testing.T) {
	failed := plan.Outcome{Verdict: plan.Unknown, Reasons: []string{"agent a1 was lost"}}
	backlogged := measured(0, 100, 0)
	backlogged.Values["e2e.p99"] = plan.Value{NA: string(plan.Backlog)}
	gap := func(v plan.Value) plan.Outcome {
		return plan.Outcome{Verdict: plan.Valid, Values: map[string]plan.Value{"gap.confirm": v}}
	}
	atLeast := func(p99 float64) plan.Outcome {
		o := measured(p99, 1, 0)
		o.Values["e2e.p99"] = plan.Value{Number: p99, Over: 7}
		return o
	}
	clocks := func(p99 float64) plan.Outcome {
		o := measured(p99, 1, 0)
		o.Values["e2e.p99"] = plan.Value{Number: p99, Bound: 0.005}
		return o
	}
	short, long := gap(plan.Value{NA: "< 20 ms"}), gap(plan.Value{Number: 0.3})
	for name, x := range map[string]struct {
		rule     string
		outcomes []plan.Outcome
		why      string
		result   Result // "": met if there is no why, otherwise violated
	}{
		"the median counts": {"p99 < 20ms",
			[]plan.Outcome{measured(0.010, 1, 0), measured(0.5, 1, 0), measured(0.011, 1, 0)}, "", ""},
		"of four the mean of the middle": {"p99 < 20ms",
			[]plan.Outcome{measured(0.010, 1, 0), measured(0.5, 1, 0), measured(0.011, 1, 0), measured(0.5, 1, 0)},
			"p99 is 256 ms, not < 20ms", ""},
		"the median is too high": {"p99 < 20ms",
			[]plan.Outcome{measured(0.010, 1, 0), measured(0.5, 1, 0), measured(0.025, 1, 0)},
			"p99 is 25.0 ms, not < 20ms", ""},
		"one loss in three is a loss": {"lost == 0",
			[]plan.Outcome{measured(0, 1, 0), measured(0, 1, 2), measured(0, 1, 0)}, "lost is 2, not == 0", ""},
		"a lower bound alone": {"p99 < 10s", []plan.Outcome{atLeast(8)},
			"p99 is more than 8.00 s: whether it is < 10s is not known", Inconclusive},
		"a bound below the median": {"p99 < 10s",
			[]plan.Outcome{atLeast(1), measured(1.9, 1, 0), measured(2, 1, 0)},
			"p99 is more than 1.90 s: whether it is < 10s is not known", Inconclusive},
		"a bound above the median": {"p99 < 10s",
			[]plan.Outcome{atLeast(8), measured(1.9, 1, 0), measured(2, 1, 0)}, "", ""},
		"a bound above the limit": {"p99 < 50ms", []plan.Outcome{atLeast(2), atLeast(2), measured(0.01, 1, 0)},
			"p99 is more than 2.00 s, not < 50ms", ""},
		"within the bound of clocks": {"p99 < 50ms", []plan.Outcome{clocks(0.0499), clocks(0.0499), clocks(0.2)},
			"p99 is 49.9 ms ± 5.00 ms: whether it is < 50ms is not known", Inconclusive},
		"below the bound of clocks": {"p99 < 50ms", []plan.Outcome{clocks(0.0449)}, "", ""},
		"above the bound of clocks": {"p99 < 50ms", []plan.Outcome{clocks(0.0551)},
			"p99 is 55.1 ms ± 5.00 ms, not < 50ms", ""},
		"shorter than the rule asks": {"gap.confirm > 1s", []plan.Outcome{short},
			"gap.confirm is less than 20.0 ms, not > 1s", ""},
		"violated besides not known": {"lost == 0 && p95 < 1s", []plan.Outcome{measured(0.01, 1, 2)},
			"lost is 2, not == 0", ""},
		"either may still hold": {"lost == 0 || p95 < 1s", []plan.Outcome{measured(0.01, 1, 2)},
			"lost is 2, not == 0, and p95 is not in the record", Inconclusive},
		"neither can hold": {"lost == 0 || p95 < 1s && p99 < 1ms", []plan.Outcome{measured(0.01, 1, 2)},
			"lost is 2, not == 0, and p95 is not in the record; p99 is 10.0 ms, not < 1ms", ""},
		"two losses are two reasons": {"lost == 0", []plan.Outcome{measured(0, 1, 1), measured(0, 1, 2)},
			"lost is 1, not == 0; lost is 2, not == 0", ""},
		"a flag of one": {"!backlog",
			[]plan.Outcome{measured(0, 1, 0), measured(0, 1, 0, plan.Backlog)},
			"backlog: receiving did not keep up with sending", ""},
		"no number in one of three": {"p99 < 20ms",
			[]plan.Outcome{measured(0.01, 1, 0), backlogged, measured(0.01, 1, 0)},
			"backlog: receiving did not keep up with sending", ""},
		"a reason is told once": {"p99 < 1ms && lost == 0",
			[]plan.Outcome{measured(0.01, 1, 0), measured(0.01, 1, 3), measured(0.01, 1, 0)},
			"p99 is 10.0 ms, not < 1ms; lost is 3, not == 0", ""},
		"a gap in one of three": {"gap.confirm < 100ms", []plan.Outcome{short, long, short}, "", ""},
		"a gap in two of three": {"gap.confirm < 100ms", []plan.Outcome{long, short, long},
			"gap.confirm is 300 ms, not < 100ms", ""},
		"a failed repetition has no part": {"rate >= 100/s", []plan.Outcome{failed, measured(0, 100, 0)}, "", ""},
		"none is valid": {"rate >= 100/s", []plan.Outcome{failed, failed},
			"no data: agent a1 was lost", Inconclusive},
		"not in the record": {"publish.rate >= 100/s", []plan.Outcome{measured(0, 100, 0)},
			"publish.rate is not in the record", Inconclusive},
		"not run":        {"rate > 1", nil, "no data: not run", Inconclusive},
		"not to be read": {"rate >", []plan.Outcome{measured(0, 100, 0)}, "column 7: ", Inconclusive},
	} {
		run, outcomes := ruled([]string{x.rule}, x.outcomes...)
		got := Rulings(run, outcomes)
		if len(got) != 1 || got[0].Rule != x.rule || got[0].Cell != "threads=1" {
			t.Fatalf("%s: %+v", name, got)
		}
		if why := got[0].Why; why != x.why && (x.why == "" || !strings.HasSuffix(x.why, ": ") ||
			!strings.HasPrefix(why, x.why)) {
			t.Errorf("%s: %q, want %q", name, why, x.why)
		}
		want := x.result
		if want == "" {
			want = map[bool]Result{true: Met, false: Violated}[x.why == ""]
		}
		if got[0].Result != want || got[0].Failed() != (want != Met) {
			t.Errorf("%s: %s, want %s", name, got[0].Result, want)
		}
	}
}

// An inconclusive rule fails unless it accepts that. A violated one always fails.
func TestInconclusiveMayPass(t *testing.T) {
	run, outcomes := ruled([]string{"p95 < 1s", "p95 < 2s", "lost == 0"}, measured(0, 1, 3))
	for i := range run.Cells[0].Require {
		if i > 0 {
			run.Cells[0].Require[i].Inconclusive = "pass"
		}
	}
	got := Rulings(run, outcomes)
	if n := Failed(got); n[Violated] != 1 || n[Inconclusive] != 1 || !got[1].Accepted {
		t.Errorf("%v of %v", n, got)
	}
	text, err := writeJUnit(run, outcomes)
	if err != nil || !strings.Contains(string(text), `tests="4" failures="1" errors="1" skipped="1"`) {
		t.Errorf("%v\n%s", err, text)
	}
}

// A rule is evaluated for every group of a cell.
func TestRulingsOfGroups(t *testing.T) {
	of := func(p99 float64) map[string]plan.Value { return map[string]plan.Value{"e2e.p99": {Number: p99}} }
	run, outcomes := ruled([]string{"p99 < 20ms", "p99 < 2s"},
		plan.Outcome{Verdict: plan.Valid, Groups: []plan.GroupOutcome{{Name: "bulk", Values: of(1)},
			{Name: "light", Values: of(0.001)}}})
	work := plan.Default()
	run.Cells[0].Workload.Groups = []plan.Group{{Name: "bulk", Publishers: work.Publishers, Consumers: work.Consumers},
		{Name: "light", Publishers: work.Publishers, Consumers: work.Consumers}}
	got := Rulings(run, outcomes)
	if len(got) != 2 || got[0].Why != "bulk: p99 is 1.00 s, not < 20ms" || got[1].Why != "" {
		t.Errorf("%+v", got)
	}
}

func TestJUnit(t *testing.T) {
	run, outcomes := ruled([]string{"p99 < 20ms", "lost == 0"}, measured(0.5, 1, 0),
		plan.Outcome{Verdict: plan.Invalid, Reasons: []string{"3 \"confirmed\" <lost>"}})
	text, err := writeJUnit(run, outcomes)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "junit-rules.xml", text)
	var got junitSuite
	if err := xml.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Name != run.Name || got.Tests != 3 || got.Errors != 1 || got.Failures != 1 {
		t.Errorf("%+v", got)
	}
	run, outcomes = ruled(nil, measured(0.5, 1, 0))
	run.Repeat = 2
	if text, _ = writeJUnit(run, outcomes); !strings.Contains(string(text), "1 of 2 repetitions were not run") {
		t.Errorf("a repetition that was not run is no error:\n%s", text)
	}
}
