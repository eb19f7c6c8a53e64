package rules

import (
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

func searched() plan.Workload {
	w := plan.Default()
	w.Search = &plan.Search{}
	return w
}

func parsed(t *testing.T, text string, w plan.Workload) Condition {
	t.Helper()
	c, err := ParseCondition(text, w, nil)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return c
}

// Every condition is evaluated for one outcome.
func TestConditionHolds(t *testing.T) {
	values := map[string]plan.Value{
		"e2e.p50": {Number: 0.004}, "e2e.p99": {Number: 0.0613}, "publish.intended.p99": {Number: 0.001},
		"lost":         {Number: 3},
		"consume.rate": {Number: 20_050.4}, "publish.rate": {Number: 20_060, Flags: []plan.Flag{plan.Skewed}},
		"agent.rss": {Number: 300 << 20},
		"confirmed": {NA: "fire-and-forget"}, "e2e.max": {NA: "backlog", Flags: []plan.Flag{plan.Backlog}},
		"gap.confirm":            {NA: "< 20 ms"},
		"publish.intended.p99.9": {Number: 2, Over: 5}, "publish.intended.max": {Number: 2, Over: 5},
		"e2e.p95":     {Number: 0.0499, Bound: 0.005},
		"publish.p50": {Number: 0.01, Flags: []plan.Flag{plan.ClockUnsafe}},
	}
	for _, x := range []struct{ text, why string }{
		{"p99 < 100ms", ""},
		{"p99 < 50ms", "p99 is 61.3 ms, not < 50ms"},
		{"50ms > p99", "p99 is 61.3 ms, not < 50ms"},
		{"p50 <= 4ms && lost == 3", ""},
		{"p50 < 4ms", "p50 is 4.00 ms, not < 4ms"},
		{"p99 < 50ms && lost == 0", "p99 is 61.3 ms, not < 50ms; lost is 3, not == 0"},
		{"p99 < 50ms || lost == 0", "p99 is 61.3 ms, not < 50ms, and lost is 3, not == 0"},
		{"p99 < 50ms || lost == 3", ""},
		{"rate > 20_000 && rate < 20_100/s", ""},
		{"rate > 30_000", "rate is 20,050/s, not > 30_000"},
		{"rate >= publish.rate", "rate is 20,050/s, not >= publish.rate, 20,060/s"},
		{"agent.rss < 200MiB", "agent.rss is 300 MiB, not < 200MiB"},
		{"skewed", ""},
		{"!skewed", "skewed"},
		{"degraded", "not degraded"},
		{"!degraded", ""},
		{"!backlog", backlogged},
		{"max < 1s && !backlog", backlogged},
		// An upper bound is used where it decides.
		{"gap.confirm < 500ms && 20ms >= gap.confirm && gap.confirm < 20ms && gap.confirm < p99 && gap.confirm != 1s",
			""},
		{"!(gap.confirm >= 20ms)", ""},
		{"gap.confirm < 10ms", "gap.confirm is less than 20.0 ms: whether it is < 10ms is not known"},
		{"gap.confirm > 10ms", "gap.confirm is less than 20.0 ms: whether it is > 10ms is not known"},
		{"gap.confirm > 500ms", "gap.confirm is less than 20.0 ms, not > 500ms"},
		{"500ms < gap.confirm", "gap.confirm is less than 20.0 ms, not > 500ms"},
		// The bound of clocks is used, too: the whole interval must meet or miss a limit.
		{"p95 < 55ms && p95 > 44ms && p95 != 1s && p95 < p99", ""},
		{"p95 < 50ms", "p95 is 49.9 ms ± 5.00 ms: whether it is < 50ms is not known"},
		{"50ms >= p95", "p95 is 49.9 ms ± 5.00 ms: whether it is <= 50ms is not known"},
		{"!(p95 < 50ms)", "p95 is 49.9 ms ± 5.00 ms: whether it is >= 50ms is not known"},
		{"p95 == 49.9ms", "p95 is 49.9 ms ± 5.00 ms: whether it is == 49.9ms is not known"},
		{"p95 < 44ms", "p95 is 49.9 ms ± 5.00 ms, not < 44ms"},
		{"publish.p50 < 1s", "publish.p50 is clock-unsafe: its error is not known"},
		{"p50 > p95", "p50 is 4.00 ms, not > p95, 49.9 ms ± 5.00 ms"},
		// A lower bound is used where it decides.
		{"publish.intended.p99.9 < 50ms", "publish.intended.p99.9 is more than 2.00 s, not < 50ms"},
		{"50ms > publish.intended.p99.9", "publish.intended.p99.9 is more than 2.00 s, not < 50ms"},
		{"publish.intended.p99.9 <= 2s", "publish.intended.p99.9 is more than 2.00 s, not <= 2s"},
		{"publish.intended.p99.9 >= 2s && publish.intended.p99.9 > 2s && 1s <= publish.intended.p99.9 && publish.intended.p99.9 != 1s", ""},
		{"publish.intended.p99.9 < 10s",
			"publish.intended.p99.9 is more than 2.00 s: whether it is < 10s is not known"},
		{"!(publish.intended.p99.9 < 10s)",
			"publish.intended.p99.9 is more than 2.00 s: whether it is >= 10s is not known"},
		{"publish.intended.p99.9 == 2s", "publish.intended.p99.9 is more than 2.00 s, not == 2s"},
		{"publish.intended.p99.9 > p99", ""},
		{"p99 < publish.intended.p99.9", ""},
		{"publish.intended.p99.9 <= publish.intended.max",
			"publish.intended.p99.9 is more than 2.00 s: whether it is <= publish.intended.max, more than 2.00 s is not known"},
		// Without a number, neither a comparison nor its negation holds.
		{"confirmed > 0", "confirmed has no number: fire-and-forget"},
		{"!(confirmed > 0)", "confirmed has no number: fire-and-forget"},
		{"confirmed == confirmed", "confirmed has no number: fire-and-forget"},
		{"p90 < 1s", "p90 is not in the record"},
		{"p90 < 1s || lost == 3", ""},
		// Negation applies to the whole expression.
		{"!(p99 < 50ms && lost == 0)", ""},
		{"!(p99 >= 50ms || skewed)", "p99 is 61.3 ms, not < 50ms; skewed"},
		{"!!(lost != 3)", "lost is 3, not != 3"},
		// && has precedence over ||.
		{"lost == 3 || p99 < 1ms && p50 < 1ms", ""},
		{"(lost == 3 || p99 < 1ms) && p50 < 1ms", "p50 is 4.00 ms, not < 1ms"},
	} {
		holds, why := parsed(t, x.text, searched()).Holds(values)
		if why != x.why || holds != (x.why == "") {
			t.Errorf("%s: holds %v because %q, want %q", x.text, holds, why, x.why)
		}
	}
}

func TestConditionShortNames(t *testing.T) {
	alone := searched()
	alone.Consumers.Nodes = 0
	closed := alone
	closed.Search = nil
	for _, x := range []struct {
		w    plan.Workload
		want string
	}{
		{searched(), "e2e.p99 consume.rate e2e.max"},
		{alone, "publish.intended.p99 publish.rate publish.intended.max"},
		{closed, "publish.p99 publish.rate publish.max"},
	} {
		c := parsed(t, "p99 < 50ms && rate > 1 && !(max > 1s) && p99 > 0s && !backlog", x.w)
		if got := strings.Join(c.Names(), " "); got != x.want {
			t.Errorf("the short names mean %s, want %s", got, x.want)
		}
	}
	for _, v := range plan.Values() {
		if _, err := ParseCondition(v.Name+" == "+v.Name, searched(), nil); err != nil {
			t.Errorf("%s cannot be named: %v", v.Name, err)
		}
	}
	for _, f := range plan.Flags() {
		parsed(t, "!"+string(f), searched())
	}
}

// Metrics that only a driver declares have its unit in conditions, stop rules and regressions.
func TestMetricsOfADriver(t *testing.T) {
	metrics := plan.Metrics{{Name: "segments", Unit: "count", Doc: "d"}, {Name: "arena", Unit: "bytes", Doc: "d",
		LowerIsBetter: true}}
	c, err := ParseCondition("broker.segments.max < 5 && broker.arena.mean < 1KiB", searched(), metrics)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]plan.Value{"broker.segments.max": {Number: 4}, "broker.arena.mean": {Number: 2048}}
	if holds, why := c.Holds(values); holds || !strings.Contains(why, "broker.arena.mean is 2.00 KiB") {
		t.Errorf("holds %v because %q", holds, why)
	}
	if _, err := ParseCondition("broker.segments.max < 5KiB", searched(), metrics); err == nil {
		t.Error("a count is compared with bytes")
	}
	if _, err := ParseCondition("broker.segments.max < 5", searched(), nil); err == nil {
		t.Error("an undeclared metric is a value")
	}
	if u, err := ParseStopRule("ci(broker.segments.p50) < 5%", metrics); err != nil || u.Value != "broker.segments.p50" {
		t.Errorf("%+v, %v", u, err)
	}
	for name, better := range map[string]bool{"broker.arena.p50": true, "broker.segments.p50": false} {
		if _, is, err := ParseRegression(name+" no worse than baseline by 5%", metrics); !is || (err == nil) != better {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// All errors are reported at once, each with its column and a correction.
func TestErrorsOfConditions(t *testing.T) {
	for _, x := range []struct {
		text string
		want []string
	}{
		{"", []string{"column 1: expected a comparison or a flag, found the end"}},
		{"p99 < 50", []string{"column 7: p99 is a time: write a duration, 50ms or 50s"}},
		{"50 > p99", []string{"column 1: p99 is a time: write a duration, 50ms or 50s"}},
		{"lost == 0ms", []string{"column 9: lost is a plain number: write it without a unit"}},
		{"rate > 5ms", []string{"column 8: rate is a rate: write messages per second, as 20_000"}},
		{"p98 < 50ms", []string{`column 1: unknown value or flag "p98"; did you mean "p90"?`}},
		{"e2ee.p99 < 50ms", []string{`did you mean "e2e.p99"?`}},
		{"!clientBound", []string{`column 2: unknown value or flag "clientBound"; did you mean "client-bound"?`}},
		{"p99 < 50 ms", []string{"column 10: write the unit without a blank: 50ms"}},
		{"rate > 20,000", []string{`column 10: "," is not valid here; write thousands as 20_000`}},
		{"p99 < 5q", []string{`column 7: "5q" is neither a number (20_000) nor a duration (50ms)`}},
		{"p99 = 50ms", []string{"column 5: write == instead of ="}},
		{"p99 < 50ms and lost == 0", []string{"column 12: write && instead of and"}},
		{"p99 < 50ms & lost == 0", []string{"column 12: write && instead of &"}},
		{"10ms < p99 < 50ms", []string{"column 12: comparisons cannot be chained"}},
		{"p99", []string{"column 1: p99 needs a comparison"}},
		{"backlog == 0", []string{"column 9: a flag cannot be compared: write backlog or !backlog"}},
		{"0 == backlog", []string{"column 6: backlog is a flag, not a value"}},
		{"5 < 6", []string{"column 1: 5 and 6 are both constants"}},
		{"p99 < lost", []string{"column 7: p99 is in s and lost in count"}},
		{"(p99 < 50ms", []string{"column 1: this bracket is not closed"}},
		{"p99 < 50ms)", []string{`column 11: unexpected ")"`}},
		{"p99 < 50ms lost == 0", []string{`column 12: unexpected "lost"; remove it or write && or || before it`}},
		{"p99 <", []string{"column 6: expected a number, a duration or a value, found the end"}},
		{"p99 < 50 && p98 > 1ms && lost = 0 && §", []string{"column 7: ", "column 13: ", "column 31: ", "column 38: "}},
	} {
		_, err := ParseCondition(x.text, searched(), nil)
		if err == nil {
			t.Errorf("%s: no fault", x.text)
			continue
		}
		for _, want := range x.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s:\n got %v\nwant %s", x.text, err, want)
			}
		}
	}
}

// Any text is parsed to its end, and an accepted condition can be evaluated.
func FuzzCondition(f *testing.F) {
	for _, text := range []string{"p99 < 50ms && lost == 0 && !backlog", "!((p50<1s)||rate>=20_000/s)",
		"§ µs ! ) ( 5 5", "p99<1m30s"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCondition(text, searched(), nil)
		if err == nil {
			if holds, why := c.Holds(map[string]plan.Value{}); holds != (why == "") {
				t.Errorf("%q: holds %v, why %q", text, holds, why)
			}
		}
	})
}
