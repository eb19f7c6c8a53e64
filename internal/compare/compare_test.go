package compare

import (
	"slices"
	"strings"
	"testing"

	"lockstep/internal/plan"
)

func mustCompare(t *testing.T, o Options, runs ...Recorded) Comparison {
	t.Helper()
	c, err := Compare(runs, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func half(plan.Cell, string) float64 { return 0.5 }

func TestTooFewRepetitionsAreSaid(t *testing.T) {
	w := newWorld(1, 3, 0.01)
	all := cells(5)
	c := mustCompare(t, Options{Values: []string{"send.rate"}}, w.run("a", all, nil), w.run("b", all, half))
	for _, r := range c.Values[0].Rows {
		if x := r.Changes[0]; x.Finding != TooFew || x.Least != 6 {
			t.Errorf("%s: got %s, at least %d: three repetitions of ten cells can tell nothing, six could", r.Name, x.Finding, x.Least)
		}
	}
	w.repeat = 5 // p of 0.008 would do for 6 tests
	c = mustCompare(t, Options{Values: []string{"send.rate"}}, w.run("a", all, nil), w.run("b", all, half))
	if n := c.Found(); n[TooFew] != 10 || c.Tests != 10 {
		t.Errorf("five repetitions of ten cells can tell nothing: %v", n)
	}
	few := cells(3)
	c = mustCompare(t, Options{Values: []string{"send.rate"}}, w.run("a", few, nil), w.run("b", few, half))
	if n := c.Found(); n[Worse] != 6 {
		t.Errorf("five repetitions of six cells tell a half: %v", n)
	}
}

// TestTheFamilyIsAllTests: what one value alone would show is not shown among many values and sides.
func TestTheFamilyIsAllTests(t *testing.T) {
	w := newWorld(2, 5, 0.01)
	all := cells(2)
	a, b := w.run("a", all, nil), w.run("b", all, half)
	if n := mustCompare(t, Options{Values: []string{"send.rate"}}, a, b).Found(); n[Worse] != 4 {
		t.Errorf("one value of four cells: %v", n)
	}
	c := mustCompare(t, Options{}, a, b, w.run("c", all, half))
	if n := c.Found(); n[TooFew] != 16 || c.Tests != 16 {
		t.Errorf("two values of four cells against two runs are 16 tests, too many for five repetitions: %v of %d", n, c.Tests)
	}
	if len(c.Values[0].Means) != 2 || c.Values[0].Means[1].Cells != 4 {
		t.Errorf("means are %+v", c.Values[0].Means)
	}
}

func TestOnlyValidRepetitionsCount(t *testing.T) {
	w := newWorld(3, 8, 0.01)
	all := cells(3)
	a, b := w.run("a", all, nil), w.run("b", all, nil)
	for i := range b.Outcomes {
		switch o := &b.Outcomes[i]; {
		case o.Cell == all[0].ID: // all of a cell
			o.Verdict, o.Reasons = plan.Invalid, []string{"broken promise"}
			o.Values["send.rate"] = plan.Value{Number: 1}
		case o.Cell == all[1].ID && o.Repetition == 2:
			o.Verdict, o.Reasons = plan.Unknown, []string{"agent lost"}
			o.Values["send.rate"] = plan.Value{Number: 1}
		}
	}
	b.Outcomes = b.Outcomes[:len(b.Outcomes)-1] // and one was not run
	c := mustCompare(t, Options{}, a, b)
	if len(c.Values[0].Rows) != 5 || len(names(c)) != 0 {
		t.Errorf("%d rows, named %v: invalid numbers were compared", len(c.Values[0].Rows), names(c))
	}
	var lines []string
	for _, l := range c.Left {
		if l.Value == "" {
			lines = append(lines, l.Cell+"|"+strings.Join(l.Sides, " ")+"|"+l.Reason)
		}
		if l.Whole != (l.Cell == "broker=nats window=100" && l.Value == "") {
			t.Errorf("%+v: is the whole cell left out?", l)
		}
	}
	want := []string{"broker=nats window=100|B|8 of 8 repetitions invalid: broken promise", "broker=nats window=101|B|1 of 8 repetitions unknown: agent lost",
		"broker=rabbit window=102|B|1 of 8 repetitions not run"}
	if !slices.Equal(lines, want) {
		t.Errorf("left out:\n%s\nwant:\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

func TestCellsOfOneSideAreListed(t *testing.T) {
	w := newWorld(4, 4, 0.01)
	c := mustCompare(t, Options{}, w.run("a", cells(2), nil), w.run("b", cells(3)[:4], nil))
	var lines []string
	for _, l := range c.Left {
		lines = append(lines, l.Cell+"|"+strings.Join(l.Sides, " ")+"|"+l.Reason)
	}
	want := []string{"broker=rabbit window=101|B|only in A", "broker=nats window=102|A|only in B"}
	if !slices.Equal(lines, want) || len(c.Values[0].Rows) != 3 {
		t.Errorf("left out %q, rows %d", lines, len(c.Values[0].Rows))
	}
}

func TestAnAxisInsideOfOneRun(t *testing.T) {
	w := newWorld(5, 8, 0.01)
	slower := func(c plan.Cell, value string) float64 {
		if c.Broker.Name == "rabbit" && value == "send.p99" {
			return 2
		}
		return 1
	}
	run := w.run("a", cells(3), slower)
	c := mustCompare(t, Options{By: "broker"}, run)
	want := []string{"worse window=100 send.p99", "worse window=101 send.p99", "worse window=102 send.p99"}
	if got := names(c); !slices.Equal(got, want) || c.Sides[0].Mark != "nats" || c.Sides[1].Mark != "rabbit" {
		t.Errorf("named %v of %+v", got, c.Sides)
	}
	c = mustCompare(t, Options{By: "broker", Base: "rabbit"}, run)
	if got := names(c); len(got) != 3 || !strings.HasPrefix(got[0], "better") {
		t.Errorf("with the other base: %v", got)
	}
	for _, bad := range []struct {
		o    Options
		want string
	}{{Options{By: "nonsense"}, "broker, window"}, {Options{By: "broker", Base: "x"}, "nats, rabbit"}, {Options{Base: "x"}, "--by"}, {Options{}, "two runs"},
		{Options{By: "broker", Match: []string{"mode"}}, `no axis "mode"`}, {Options{By: "broker", Values: []string{"send.p98", "no/send.p99"}}, `"send.p98"`}} {
		if _, err := Compare([]Recorded{run}, bad.o); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%+v: got %v, want %q in it", bad.o, err, bad.want)
		}
	}
}

// TestRunsOfOtherWorkloads are matched by the axes in common, and the parameter that differs is said.
func TestRunsOfOtherWorkloads(t *testing.T) {
	w := newWorld(6, 4, 0.01)
	changed := cells(2)
	for i := range changed {
		changed[i].Workload.Message.Size = 5000
		changed[i].ID = plan.CellID(changed[i].Broker.Name, changed[i].Workload)
	}
	c := mustCompare(t, Options{}, w.run("a", cells(2), nil), w.run("b", changed, nil))
	if !slices.Equal(c.Match, []string{"broker", "window"}) || len(c.Notes) != 1 || len(c.Values[0].Rows) != 4 {
		t.Errorf("matched by %v, %d rows, notes %q", c.Match, len(c.Values[0].Rows), c.Notes)
	}
	want := Difference{Of: "workload", What: "message.size", Values: []string{"100", "5000"}}
	if !slices.ContainsFunc(c.Differences, func(d Difference) bool {
		return d.Of == want.Of && d.What == want.What && slices.Equal(d.Values, want.Values)
	}) {
		t.Errorf("differences are %+v, want %+v among them", c.Differences, want)
	}
	_, err := Compare([]Recorded{w.run("a", cells(2), nil), w.run("b", changed, nil)}, Options{Match: []string{"broker"}})
	if err == nil || !strings.Contains(err.Error(), "several cells") || !strings.Contains(err.Error(), "window") {
		t.Errorf("cells that a match mixes up: %v", err)
	}
}

func TestSubjectsAndSurroundingsAreCompared(t *testing.T) {
	w := newWorld(7, 2, 0.01)
	a, b := w.run("a", cells(1), nil), w.run("b", cells(1), nil)
	for i := range a.Outcomes {
		subject := plan.Subject{Product: "RabbitMQ", Version: "4.1", Settings: map[string]string{"disk_free_limit": "50MB", "same": "x"}}
		a.Outcomes[i].Subject = subject
		a.Outcomes[i].Agents = []plan.AgentPart{{Agent: "a1", Host: "h1", Version: "1.0"}}
		subject.Settings = map[string]string{"disk_free_limit": "1GB", "same": "x"}
		b.Outcomes[i].Subject = subject
		b.Outcomes[i].Agents = []plan.AgentPart{{Agent: "a1", Host: "h2", Version: "1.1"}}
		b.Outcomes[i].Clocks = []plan.ClockPair{{Bound: plan.Duration(300_000)}}
		b.Outcomes[i].Events = []plan.Event{{Kind: "host-cores", Agent: "a1", Detail: "16"}}
	}
	b.Run.Source.SHA256 = "ffff"
	c := mustCompare(t, Options{}, a, b)
	var got []string
	for _, d := range c.Differences {
		got = append(got, d.Of+", "+d.What+": "+strings.Join(d.Values, " | "))
	}
	want := []string{"harness, version: 1.0 | 1.1", "agents, cores: – | 16", "agents, hosts: h1 | h2", "clocks, known to within: one clock | ± 512µs",
		"matrix, SHA-256: 0123456789ab | ffff", "broker nats, setting disk_free_limit: 50MB | 1GB", "broker rabbit, setting disk_free_limit: 50MB | 1GB"}
	if !slices.Equal(got, want) {
		t.Errorf("differences:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if same := mustCompare(t, Options{}, a, a); len(same.Differences) != 0 {
		t.Errorf("a run differs from itself: %+v", same.Differences)
	}
}

// TestClocksLimitWhatCanBeTold: a difference that the clocks of the hosts could be is none of the broker's.
func TestClocksLimitWhatCanBeTold(t *testing.T) {
	for _, c := range []struct {
		bound float64
		flags []plan.Flag
		want  Finding
	}{{0, nil, Worse}, {0.0001, nil, Worse}, {0.002, nil, Clocks}, {0, []plan.Flag{plan.ClockUnsafe}, Clocks}, {0, []plan.Flag{plan.ClientBound}, Worse}} {
		w := newWorld(8, 8, 0.01)
		all := cells(1)
		a, b := w.run("a", all, nil), w.run("b", all, func(plan.Cell, string) float64 { return 1.5 }) // 2.5 ms more
		for _, r := range []Recorded{a, b} {
			for _, o := range r.Outcomes {
				v := o.Values["send.p99"]
				v.Bound, v.Flags = c.bound, c.flags
				o.Values["send.p99"] = v
			}
		}
		got := mustCompare(t, Options{Values: []string{"send.p99"}}, a, b).Values[0].Rows[0]
		if got.Changes[0].Finding != c.want || !slices.Equal(got.Sides[1].Flags, c.flags) {
			t.Errorf("bound %v, flags %v: %s, flags %v; want %s", c.bound, c.flags, got.Changes[0].Finding, got.Sides[1].Flags, c.want)
		}
	}
}

// TestFromZero: what was none and is some now has no ratio, and is found all the same.
func TestFromZero(t *testing.T) {
	w := newWorld(9, 6, 0.01)
	all := cells(1)
	a, b := w.run("a", all, nil), w.run("b", all, nil)
	for i := range a.Outcomes {
		a.Outcomes[i].Values["lost"] = plan.Value{}
		b.Outcomes[i].Values["lost"] = plan.Value{Number: float64(3 + i)}
	}
	x := mustCompare(t, Options{Values: []string{"lost"}}, a, b).Values[0].Rows[0].Changes[0]
	if x.Finding != Worse || x.Ratio != nil || x.Shift.Estimate < 3 {
		t.Errorf("got %+v, want worse by some, without a ratio", x)
	}
}

func TestValuesWithoutANumberAreSaid(t *testing.T) {
	w := newWorld(10, 4, 0.01)
	all := cells(1)
	a, b := w.run("a", all, nil), w.run("b", all, nil)
	for i := range b.Outcomes {
		if b.Outcomes[i].Cell == all[0].ID {
			b.Outcomes[i].Values["send.p99"] = plan.Value{NA: "backlog"}
		}
	}
	c := mustCompare(t, Options{}, a, b)
	if len(c.Left) != 1 || c.Left[0].Value != "send.p99" || c.Left[0].Whole || !strings.Contains(c.Left[0].Reason, "backlog") {
		t.Errorf("left out: %+v", c.Left)
	}
	if len(c.Values) != 2 {
		t.Errorf("%d values: of the usual ones those without any number are no news", len(c.Values))
	}
}

// Along the only axis there is one place, which has a name.
func TestTheOnlyAxisLeavesOneCell(t *testing.T) {
	w := newWorld(8, 4, 0.01)
	all := cells(1)
	for i := range all {
		all[i].Coordinates = all[i].Coordinates[:1]
	}
	c := mustCompare(t, Options{By: "broker", Values: []string{"send.rate"}}, w.run("a", all, nil))
	if rows := c.Values[0].Rows; len(rows) != 1 || rows[0].Name != "the only cell" {
		t.Errorf("rows %+v", rows)
	}
}

// What differs is shown as it was written, not as JSON for web pages has it.
func TestDifferencesAreShownAsWritten(t *testing.T) {
	w := newWorld(9, 2, 0.01)
	a, b := w.run("a", cells(1), nil), w.run("b", slices.Clone(cells(1)), nil)
	b.Run.Cells[0].Broker.Options = []byte(`{"name": "<a\\\"b'c>", "list": ["<", "é"]}`)
	var got []string
	for _, d := range mustCompare(t, Options{}, a, b).Differences {
		got = append(got, d.What+": "+d.Values[1])
	}
	if want := []string{`option list: ["<","é"]`, `option name: <a\"b'c>`}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A rate of few messages takes a few values only: two of them next to each other are no two groups that anybody has to look into.
func TestGroupsNearerThanTheLeastEffectAreOne(t *testing.T) {
	info, _ := plan.ValueNamed("send.rate")
	for high, want := range map[float64]bool{502: false, 560: true} {
		var x cell
		for k := range 8 {
			number := 500.0
			if k > 4 {
				number = high
			}
			x.outcomes = append(x.outcomes, plan.Outcome{Verdict: plan.Valid, Values: map[string]plan.Value{info.Name: {Number: number}}})
		}
		if s, _ := sample(&x, info, 0.95, DefaultEffect); s.Bimodal != want {
			t.Errorf("500 and %v: two groups: %v", high, s.Bimodal)
		}
	}
}
