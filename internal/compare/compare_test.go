package compare

import (
	"math"
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/stats"
)

func mustCompare(t *testing.T, o Options, runs ...Recorded) Comparison {
	t.Helper()
	c, err := Compare(runs, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A stall late in the measurement is only in the latency from the intended send time, and is found by default.
func TestALateStallIsFound(t *testing.T) {
	run := newWorld(1, 8, 0.01).run("a", cells(1), nil)
	for i, o := range run.Outcomes {
		o.Values["publish.intended.p99"] = o.Values["publish.p99"]
		if run.Run.Cells[o.Index].Broker.Name == "rabbit" {
			o.Values["publish.intended.p99"] = plan.Value{Number: 2.97 + float64(i)/1000}
		}
	}
	if n := mustCompare(t, Options{By: "broker"}, run).Found(); n[Worse] != 1 {
		t.Errorf("found %v, want one value that is worse", n)
	}
}

func half(c plan.Cell, _ string) float64 {
	return map[string]float64{"nats": 1, "rabbit": 0.5}[c.Broker.Name]
}

func TestTooFewRepetitionsAreSaid(t *testing.T) {
	o := Options{By: "broker", Values: []string{"publish.rate"}}
	w := newWorld(1, 3, 0.01)
	for _, r := range mustCompare(t, o, w.run("a", cells(10), half)).Values[0].Rows {
		if x := r.Changes[0]; x.Finding != Inconclusive || x.Why != "too few repetitions: 3, and 6 are needed" ||
			x.Needed != 6 {
			t.Errorf("%s: %+v: three repetitions of ten cells can tell nothing, six could", r.Name, x)
		}
	}
	w.repeat = 5 // a p-value of 0.008 would be enough for 6 tests
	if c := mustCompare(t, o, w.run("a", cells(10), half)); c.Found()[Inconclusive] != 10 || c.Tests != 10 {
		t.Errorf("five repetitions of ten cells can tell nothing: %v", c.Found())
	}
	if n := mustCompare(t, o, w.run("a", cells(6), half)).Found(); n[Worse] != 6 {
		t.Errorf("five repetitions of six cells tell a half: %v", n)
	}
}

// TestTheFamilyIsAllTests proves that a difference that is significant for a single value is not reported among many
// values.
func TestTheFamilyIsAllTests(t *testing.T) {
	w := newWorld(2, 5, 0.01)
	run := w.run("a", cells(4), half)
	if n := mustCompare(t, Options{By: "broker", Values: []string{"publish.rate"}}, run).Found(); n[Worse] != 4 {
		t.Errorf("one value of four cells: %v", n)
	}
	c := mustCompare(t, Options{By: "broker"}, run)
	if n := c.Found(); n[Inconclusive] != 8 || c.Tests != 8 {
		t.Errorf("two values of four cells are 8 tests, too many for five repetitions: %v of %d", n, c.Tests)
	}
	if len(c.Values[0].Means) != 1 || c.Values[0].Means[0].Cells != 4 {
		t.Errorf("means are %+v", c.Values[0].Means)
	}
}

// TestNoRepetitionIsDropped proves that a repetition without a number makes the value of its cell inconclusive.
func TestNoRepetitionIsDropped(t *testing.T) {
	w := newWorld(3, 8, 0.01)
	a := w.run("a", cells(4), nil)
	known, b := w.earlier(a, 9), w.run("b", a.Run.Cells, nil)
	for i := range b.Outcomes {
		o := &b.Outcomes[i]
		if o.Repetition > 2 {
			continue
		}
		switch o.Index {
		case 0:
			o.Verdict, o.Reasons = plan.Unknown, []string{"agent lost"}
		case 1:
			o.Values["publish.p99"] = plan.Value{Number: 2, Over: 7}
		case 2:
			o.Values["publish.p99"] = plan.Value{NA: "< 20 ms"}
		case 3:
			delete(o.Values, "publish.p99")
		}
	}
	b.Outcomes = b.Outcomes[:len(b.Outcomes)-1]
	c := mustCompare(t, Options{Spread: known, Values: []string{"publish.p99"}}, a, b)
	for i, want := range []string{"B: 2 of 8 repetitions failed: agent lost",
		"B: 2 of 8 repetitions only a lower bound", "B: 2 of 8 repetitions no number: < 20 ms",
		"B: 2 of 8 repetitions no number: not in the record", "", "", "", "B: 1 of 8 repetitions not run"} {
		if x := c.Values[0].Rows[i].Changes[0]; x.Why != want || (x.Finding == Inconclusive) != (want != "") ||
			want != "" && x.Ratio != nil {
			t.Errorf("%s: %s because %q, want %q", c.Values[0].Rows[i].Name, x.Finding, x.Why, want)
		}
	}
	for _, d := range c.NoWorse() {
		if why := d.Row.Changes[0].Why; d.Met && why != "" || d.Violated {
			t.Errorf("the rule is met: %v, though: %q", d.Met, why)
		}
	}
}

// TestBacklogRanksWorst proves that the latency of a repetition with a backlog ranks as worse than any number. The
// remaining repetitions never make the cell better.
func TestBacklogRanksWorst(t *testing.T) {
	for _, x := range []struct {
		base, other int // repetitions with a backlog, of eight
		want        Finding
	}{{0, 3, Inconclusive}, {0, 4, Worse}, {0, 8, Worse}, {3, 0, Better}, {8, 0, Better}, {3, 3, Inconclusive},
		{8, 8, Inconclusive}, {2, 8, Worse}} {
		w := newWorld(3, 8, 0.01)
		a := w.run("a", cells(1), nil)
		known, b := w.earlier(a, 9), w.run("b", a.Run.Cells, func(plan.Cell, string) float64 { return 0.8 })
		if 2*x.base >= w.repeat { // earlier runs had the same
			known = func(string, string) plan.RunSpread { return plan.RunSpread{Backlogs: 9} }
		}
		inside := w.run("c", cells(1), func(c plan.Cell, _ string) float64 {
			return map[string]float64{"nats": 1, "rabbit": 0.8}[c.Broker.Name]
		})
		backlog := func(o plan.Outcome, n int) {
			if o.Repetition <= n {
				o.Values["publish.p99"] = plan.Value{NA: "backlog", Flags: []plan.Flag{plan.Backlog}}
			}
		}
		for i := range a.Outcomes {
			backlog(a.Outcomes[i], x.base)
			backlog(b.Outcomes[i], x.other)
			backlog(inside.Outcomes[i], map[int]int{0: x.base, 1: x.other}[inside.Outcomes[i].Index])
		}
		c := mustCompare(t, Options{Spread: known, Values: []string{"publish.p99"}}, a, b)
		if got := c.Values[0].Rows[0].Changes[0]; got.Finding != x.want {
			t.Errorf("%d and %d of 8: %s (%s), want %s", x.base, x.other, got.Finding, got.Why, x.want)
		}
		for _, s := range c.Values[0].Rows[0].Sides { // the medians are those of the tables of the runs
			ranked := append(slices.Clone(s.Numbers), slices.Repeat([]float64{math.Inf(1)}, s.Backlog)...)
			if s.Backlog < s.N && s.Median != stats.Median(ranked) {
				t.Errorf("%d and %d of 8: got median %v, want %v", x.base, x.other, s.Median, stats.Median(ranked))
			}
		}
		for _, d := range c.NoWorse() {
			if d.Met != (x.want == Better) || d.Violated != (x.want == Worse) {
				t.Errorf("%d and %d of 8: the rule is met %v, violated %v", x.base, x.other, d.Met, d.Violated)
			}
		}
		got := mustCompare(t, Options{By: "broker", Values: []string{"publish.p99"}},
			inside).Values[0].Rows[0].Changes[0]
		if got.Finding == Better && x.other > 0 || got.Finding == Worse && x.base >= x.other || x.base == 0 &&
			x.other == 8 && got.Finding != Worse {
			t.Errorf("%d and %d of 8, inside of one run: %s (%s)", x.base, x.other, got.Finding, got.Why)
		}
	}
}

// TestEarlierBacklogsCount proves that a cell that had a backlog in some earlier runs is neither worse with another one
// nor better without.
func TestEarlierBacklogsCount(t *testing.T) {
	relative := 0.01
	for _, x := range []struct {
		spread   plan.RunSpread
		fixed    bool // only the base has the backlog
		want     Finding
		p        float64
		violated bool
	}{
		{plan.RunSpread{Runs: 9}, false, Worse, 0, true},
		{plan.RunSpread{Runs: 8, Backlogs: 1}, false, Inconclusive, 0.2, false},
		{plan.RunSpread{Runs: 5, Backlogs: 4}, false, Inconclusive, 0.5, false},
		{plan.RunSpread{Runs: 78, Backlogs: 1}, false, Worse, 0.025, true},
		{plan.RunSpread{Runs: 3, Backlogs: 1}, false, Inconclusive, 0.4, false}, // four of five earlier runs
		{plan.RunSpread{Backlogs: 9}, true, Better, 0, false},
		{plan.RunSpread{Runs: 5, Backlogs: 4}, true, Inconclusive, 0.6, false},
	} {
		w := newWorld(3, 8, 0.01)
		a := w.run("a", cells(1)[:1], nil)
		b := w.run("b", a.Run.Cells, nil)
		hasBacklog := b
		if x.fixed {
			hasBacklog = a
		}
		for _, o := range hasBacklog.Outcomes {
			o.Values["publish.p99"] = plan.Value{NA: "backlog", Flags: []plan.Flag{plan.Backlog}}
		}
		x.spread.Relative, x.spread.Repetitions = &relative, 8
		c := mustCompare(t, Options{Spread: func(string, string) plan.RunSpread { return x.spread },
			Values: []string{"publish.p99"}}, a, b)
		if got := c.Values[0].Rows[0].Changes[0]; got.Finding != x.want || math.Abs(got.P-x.p) > 1e-12 ||
			(got.Why == "") != (x.want != Inconclusive) {
			t.Errorf("%+v: %s with p = %v (%s), want %s with %v", x.spread, got.Finding, got.P, got.Why, x.want, x.p)
		}
		if d := c.NoWorse()[0]; d.Violated != x.violated || d.Met != (x.want == Better) {
			t.Errorf("%+v: the rule is met %v, violated %v", x.spread, d.Met, d.Violated)
		}
	}
}

// TestFlagsAreFindings proves that a number with a disqualifying flag, on either side, makes its comparison
// inconclusive, with the flag as the reason.
func TestFlagsAreFindings(t *testing.T) {
	for _, flag := range plan.Flags() {
		for side := range 2 {
			w := newWorld(8, 8, 0.01)
			a := w.run("a", cells(1), nil)
			known, b := w.earlier(a, 9), w.run("b", a.Run.Cells, func(plan.Cell, string) float64 { return 0.5 })
			o := []Recorded{a, b}[side].Outcomes[3]
			o.Values["publish.rate"] = plan.Value{Number: o.Values["publish.rate"].Number, Flags: []plan.Flag{flag}}
			c := mustCompare(t, Options{Spread: known, Values: []string{"publish.rate"}}, a, b)
			x, want := c.Values[0].Rows[0].Changes[0], []string{"A: ", "B: "}[side]+string(flag)
			if flag == plan.Backlog { // a backlog does not affect the number of a rate
				want = ""
			}
			if x.Why != want || (x.Finding == Inconclusive) != (want != "") ||
				c.Values[0].Rows[1].Changes[0].Finding != Worse {
				t.Errorf("%s: %s because %q", flag, x.Finding, x.Why)
			}
		}
	}
}

// TestOtherHostsAreNotCompared proves that the spread of runs on other hosts is not used, nor that of a host with
// another number of cores.
func TestOtherHostsAreNotCompared(t *testing.T) {
	w := newWorld(4, 8, 0.01)
	a := w.run("a", cells(1), nil)
	known, b := w.earlier(a, 9), w.run("b", a.Run.Cells, half)
	for i := range a.Outcomes {
		a.Outcomes[i].Agents, b.Outcomes[i].Agents = []plan.AgentPart{{Host: "h1"}}, []plan.AgentPart{{Host: "h2"}}
	}
	if x := mustCompare(t, Options{Spread: known}, a, b).Values[0].Rows[1].Changes[0]; x.Finding != Inconclusive ||
		x.Why != "measured from other hosts: h1 and h2" {
		t.Errorf("%+v", x)
	}
	for i := range a.Outcomes {
		for cores, o := range map[string]*plan.Outcome{"8": &a.Outcomes[i], "4": &b.Outcomes[i]} {
			o.Agents, o.Events = []plan.AgentPart{{Agent: "a1", Host: "h1"}},
				[]plan.Event{{Kind: plan.EventCores, Agent: "a1", Detail: cores}}
		}
	}
	want := "measured from other hosts: h1 (8 cores) and h1 (4 cores)"
	if x := mustCompare(t, Options{Spread: known}, a, b).Values[0].Rows[1].Changes[0]; x.Finding != Inconclusive ||
		x.Why != want {
		t.Errorf("%+v, want %s", x, want)
	}
	for i := range b.Outcomes { // without agents, as in a run that was not executed
		b.Outcomes[i].Agents = nil
	}
	if x := mustCompare(t, Options{Spread: known}, a, b).Values[0].Rows[1].Changes[0]; strings.Contains(x.Why, "other hosts") {
		t.Errorf("got %s, want no hosts that did not measure", x.Why)
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
		if c.Broker.Name == "rabbit" && value == "publish.p99" {
			return 2
		}
		return 1
	}
	run := w.run("a", cells(3), slower)
	c := mustCompare(t, Options{By: "broker"}, run)
	want := []string{"worse publish.p99", "worse publish.p99", "worse publish.p99"}
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
	}{{Options{By: "nonsense"}, "broker, window"}, {Options{By: "broker", Base: "x"}, "nats, rabbit"},
		{Options{Base: "x"}, "--by"}, {Options{}, "two runs"},
		{Options{By: "broker", Match: []string{"mode"}}, `no axis "mode"`},
		{Options{By: "broker", Values: []string{"publish.p98", "no/publish.p99"}}, `"publish.p98"`}} {
		if _, err := Compare([]Recorded{run}, bad.o); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%+v: got %v, want %q in it", bad.o, err, bad.want)
		}
	}
}

// TestRunsOfOtherWorkloads proves that cells are matched by the given axes, and that the different parameter is listed.
func TestRunsOfOtherWorkloads(t *testing.T) {
	w := newWorld(6, 4, 0.01)
	changed := cells(2)
	for i := range changed {
		changed[i].Workload.Message.Size = 5000
		changed[i].ID = plan.CellID(changed[i].Broker.Name, changed[i].Workload)
	}
	_, err := Compare([]Recorded{w.run("a", cells(2), nil), w.run("b", changed, nil)}, Options{})
	if err == nil || !strings.Contains(err.Error(), "no cell of A is on another side") ||
		!strings.HasSuffix(err.Error(), "with --match (available: broker, window)") {
		t.Errorf("no cell in common: %v", err)
	}
	c := mustCompare(t, Options{Match: []string{"broker", "window"}}, w.run("a", cells(2), nil),
		w.run("b", changed, nil))
	if len(c.Values[0].Rows) != 4 {
		t.Errorf("%d rows", len(c.Values[0].Rows))
	}
	want := Difference{Of: "workload", What: "message.size", Values: []string{"100", "5000"}}
	if !slices.ContainsFunc(c.Differences, func(d Difference) bool {
		return d.Of == want.Of && d.What == want.What && slices.Equal(d.Values, want.Values)
	}) {
		t.Errorf("differences are %+v, want %+v among them", c.Differences, want)
	}
	_, err = Compare([]Recorded{w.run("a", cells(2), nil), w.run("b", changed, nil)},
		Options{Match: []string{"broker"}})
	if err == nil || !strings.Contains(err.Error(), "several cells") || !strings.Contains(err.Error(), "window") {
		t.Errorf("cells that a match mixes up: %v", err)
	}
}

func TestSubjectsAndSurroundingsAreCompared(t *testing.T) {
	w := newWorld(7, 2, 0.01)
	a, b := w.run("a", cells(1), nil), w.run("b", cells(1), nil)
	for i := range a.Outcomes {
		subject := plan.Subject{Product: "RabbitMQ", Version: "4.1",
			Settings: map[string]string{"disk_free_limit": "50MB", "same": "x"}}
		a.Outcomes[i].Subject = subject
		a.Outcomes[i].Agents = []plan.AgentPart{{Agent: "a1", Host: "h1", Version: "1.0"}}
		subject.Settings = map[string]string{"disk_free_limit": "1GB", "same": "x"}
		b.Outcomes[i].Subject = subject
		b.Outcomes[i].Agents = []plan.AgentPart{{Agent: "a1", Host: "h2", Version: "1.1"}}
		b.Outcomes[i].Clocks = []plan.ClockPair{{Bound: plan.Duration(300_000)}}
		b.Outcomes[i].Events = []plan.Event{{Kind: "host-cores", Agent: "a1", Detail: "16"}}
	}
	b.Run.Source.SHA256 = "ffff"
	for i := range b.Run.Cells {
		b.Run.Cells[i].Simulated = true
	}
	c := mustCompare(t, Options{}, a, b)
	var got []string
	for _, d := range c.Differences {
		got = append(got, d.Of+", "+d.What+": "+strings.Join(d.Values, " | "))
	}
	want := []string{"agents, hosts: h1 | h2 (16 cores)", "broker nats, settings.disk_free_limit: 50MB | 1GB",
		"broker rabbit, settings.disk_free_limit: 50MB | 1GB",
		"clocks, known to within: one clock | ± 512µs", "harness, version: 1.0 | 1.1",
		"matrix, sha256: 0123456789ab | ffff", "workload, simulated connections: false | true"}
	if !slices.Equal(got, want) {
		t.Errorf("differences:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if same := mustCompare(t, Options{}, a, a); len(same.Differences) != 0 {
		t.Errorf("a run differs from itself: %+v", same.Differences)
	}
}

// TestBoundsLimitWhatCanBeTold proves that a difference within the bounds of the values is not reported.
func TestBoundsLimitWhatCanBeTold(t *testing.T) {
	for bound, want := range map[float64]Finding{0: Worse, 0.0001: Worse, 0.002: Inconclusive} {
		w := newWorld(8, 8, 0.01)
		run := w.run("a", cells(1), func(c plan.Cell, _ string) float64 {
			return map[string]float64{"nats": 1, "rabbit": 1.5}[c.Broker.Name]
		}) // a difference of 2.5 ms
		for _, o := range run.Outcomes {
			v := o.Values["publish.p99"]
			v.Bound = bound
			o.Values["publish.p99"] = v
		}
		if x := mustCompare(t, Options{By: "broker", Values: []string{"publish.p99"}},
			run).Values[0].Rows[0].Changes[0]; x.Finding != want {
			t.Errorf("bound %v: %s (%s), want %s", bound, x.Finding, x.Why, want)
		} else if why := "the change is within the error bounds of the values (±)"; want == Inconclusive && x.Why != why {
			t.Errorf("bound %v: because %q, want %q", bound, x.Why, why)
		}
	}
}

// Metrics that only a driver declares are compared in its unit, and not if the runs have different units.
func TestMetricsOfADriver(t *testing.T) {
	w := newWorld(3, 5, 0.01)
	var all []Recorded
	for _, unit := range []string{"pages", "pages", "count"} {
		r := w.run("r", cells(1), nil)
		r.Run.ID += unit
		r.Run.Metrics = plan.Metrics{{Name: "segments", Unit: unit, Doc: "d"}}
		for i := range r.Outcomes {
			r.Outcomes[i].Values["broker.segments.max"] = plan.Value{Number: float64(10 + i%5)}
		}
		all = append(all, r)
	}
	c, err := Compare(all[:2], Options{Values: []string{"broker.segments.max"}})
	if err != nil || len(c.Values) != 1 || c.Values[0].Unit != "pages" || len(c.Values[0].Rows) != 2 {
		t.Errorf("%+v, %v", c.Values, err)
	}
	_, err = Compare(all[1:], Options{Values: []string{"broker.segments.max"}})
	if err == nil || !strings.Contains(err.Error(), `another unit than "pages" in B`) {
		t.Errorf("different units: %v", err)
	}
}

// TestFromZero proves that an increase from zero, which has no ratio, is reported.
func TestFromZero(t *testing.T) {
	w := newWorld(9, 6, 0.01)
	a, b := w.run("a", cells(1), nil), w.run("b", cells(1), nil)
	for i := range a.Outcomes {
		a.Outcomes[i].Values["lost"] = plan.Value{}
		b.Outcomes[i].Values["lost"] = plan.Value{Number: float64((3 + i) * b.Outcomes[i].Index)}
	}
	c := mustCompare(t, Options{Values: []string{"lost"},
		Spread: func(string, string) plan.RunSpread { return plan.RunSpread{Runs: 6, Repetitions: 6} }}, a, b)
	if x := c.Values[0].Rows[1].Changes[0]; x.Finding != Worse || x.Ratio != nil || x.Shift.Estimate < 3 {
		t.Errorf("got %+v, want worse by some, without a ratio", x)
	}
	if all := c.NoWorse(); !all[0].Met || all[0].Violated || all[1].Met || !all[1].Violated {
		t.Errorf("none is met, some is violated: %+v", all)
	}
}

// A value that a cell cannot have has no row. A value that only one side has is inconclusive.
func TestValuesWithoutANumberAreSaid(t *testing.T) {
	w := newWorld(10, 4, 0.01)
	a, b := w.run("a", cells(1), nil), w.run("b", cells(1), nil)
	for i := range b.Outcomes {
		if b.Outcomes[i].Index == 0 {
			b.Outcomes[i].Values["publish.p99"] = plan.Value{NA: "no samples"}
		} else {
			a.Outcomes[i].Values["publish.p99"],
				b.Outcomes[i].Values["publish.p99"] = plan.Value{NA: "fire-and-forget"},
				plan.Value{NA: "fire-and-forget"}
		}
	}
	c := mustCompare(t, Options{}, a, b)
	if len(c.Values) != 2 || len(c.Values[1].Rows) != 1 ||
		!strings.HasPrefix(c.Values[1].Rows[0].Changes[0].Why, "B: 4 of 4 repetitions no number: no samples") {
		t.Errorf("%+v", c.Values)
	}
}

// A comparison by the only axis has a single cell, which has a name.
func TestTheOnlyAxisLeavesOneCell(t *testing.T) {
	w := newWorld(8, 4, 0.01)
	all := cells(1)
	for i := range all {
		all[i].Coordinates = all[i].Coordinates[:1]
	}
	c := mustCompare(t, Options{By: "broker", Values: []string{"publish.rate"}}, w.run("a", all, nil))
	if rows := c.Values[0].Rows; len(rows) != 1 || rows[0].Name != "the only cell" {
		t.Errorf("rows %+v", rows)
	}
}

// Differences are shown as written, without JSON's escapes for web pages.
func TestDifferencesAreShownAsWritten(t *testing.T) {
	w := newWorld(9, 2, 0.01)
	a, b := w.run("a", cells(1), nil), w.run("b", slices.Clone(cells(1)), nil)
	b.Run.Cells[0].Broker.Options = []byte(`{"name": "<a\\\"b'c>", "list": ["<", "é"]}`)
	var got []string
	for _, d := range mustCompare(t, Options{}, a, b).Differences {
		got = append(got, d.What+": "+d.Values[1])
	}
	if want := []string{"options.list.0: <", "options.list.1: é", `options.name: <a\"b'c>`}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The error bounds of both values are part of the largest possible change: 100 µs ± 30 µs to 100 µs ± 10 µs can be
// 70 µs to 110 µs, which is 57 % more.
func TestBoundsOfBothValuesCount(t *testing.T) {
	for margin, want := range map[float64]bool{0.5: false, 0.75: true} {
		side := func(bound float64) Sample {
			return Sample{Summary: stats.Summary{Median: 100e-6, N: 3}, Bound: bound}
		}
		d := Decision{Value: &Value{Better: plan.LowerIsBetter}, Row: &Row{Sides: []Sample{side(30e-6), side(10e-6)},
			Changes: []Change{{Ratio: &stats.Change{Estimate: 1}, Error: 0.02, Earlier: 10}}}}
		if _, decided := d.decide(margin, 0.05); !decided || d.Met != want || d.Worst < 0.571 || d.Worst > 0.65 {
			t.Errorf("margin %v: got met %v, at worst %+.3f, want met %v, +0.571 to +0.65", margin, d.Met, d.Worst, want)
		}
	}
}
