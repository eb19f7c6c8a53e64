package report

import (
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// factsOf returns the facts of a run as one text per name. Several lines of a name are joined.
func factsOf(run plan.Run, outcomes []plan.Outcome) map[string]string {
	all, name := map[string]string{}, ""
	for _, f := range Facts(run, outcomes) {
		if f.Name != "" {
			name = f.Name
			all[name] = f.Text
		} else {
			all[name] += " | " + f.Text
		}
	}
	return all
}

// pair is a run of two brokers, each with one cell and one outcome.
func pair(edit func(*plan.Cell, *plan.Outcome, int)) (plan.Run, []plan.Outcome) {
	run := plan.Run{ID: "r1", Name: "pair", Repeat: 1, Axes: []string{"broker"}}
	var outcomes []plan.Outcome
	for i, name := range []string{"one", "two"} {
		c := plan.Cell{ID: name, Index: i, Broker: plan.Broker{Name: name}, Workload: plan.Default(),
			Coordinates: []plan.Coordinate{{Axis: "broker", Value: raw(name)}}}
		o := plan.Outcome{Cell: name, Repetition: 1, Verdict: plan.Valid,
			Subject: plan.Subject{Product: "RabbitMQ", Version: "4.1.3"},
			Agents:  []plan.AgentPart{{Agent: "load-2", Host: "h"}, {Agent: "load-1", Host: "h"}}}
		if edit != nil {
			edit(&c, &o, i)
		}
		run.Cells, outcomes = append(run.Cells, c), append(outcomes, o)
	}
	return run, outcomes
}

// TestFacts proves that properties are listed if all cells have them, and left out if cells differ. Brokers are always
// listed.
func TestFacts(t *testing.T) {
	same := factsOf(pair(nil))
	for name, want := range map[string]string{
		"Broker":      "RabbitMQ 4.1.3 (one, two)",
		"Load":        "1 publishing and 1 consuming agent, 100 B messages, as fast as possible",
		"Measurement": "10.0 s, after a warm-up of 2.00 s",
		"Host":        "h (agents load-1, load-2)",
		"Resilience":  "",
	} {
		if same[name] != want {
			t.Errorf("%s: %q, want %q", name, same[name], want)
		}
	}
	different := factsOf(pair(func(c *plan.Cell, o *plan.Outcome, i int) {
		c.Label, c.Workload.Publishers.Mode = []string{"disk", "memory"}[i], "confirm-each"
		c.Resilience = []string{"guide", "library"}[i]
		c.Workload.Publishers.Rate = []float64{0, 100}[i]
		c.Workload.Message.Size = []int{100, 2000}[i]
		c.Workload.Warmup = plan.Duration(i) * plan.Duration(time.Second)
		o.Subject.Version, o.Subject.Members = []string{"4.1.3", "3.10.0"}[i], make([]string, 3*i)
	}))
	for name, want := range map[string]string{
		"Broker":      "RabbitMQ 3.10.0, 3 nodes (two) | RabbitMQ 4.1.3 (one)",
		"Confirm":     "disk (broker=one) | memory (broker=two)",
		"Load":        "1 publishing and 1 consuming agent",
		"Measurement": "10.0 s",
		"Resilience": "messages of a broken connection are published again (vendor guide) (one) | " +
			"the client library repeats requests, with its default settings; what it gives up is published again (two)",
	} {
		if different[name] != want {
			t.Errorf("%s: %q, want %q", name, different[name], want)
		}
	}
}

// TestReasonsAreGrouped proves that cells with the same problem share a line.
func TestReasonsAreGrouped(t *testing.T) {
	const refused = "connect to h:1: connection refused"
	run := plan.Run{Repeat: 1, Axes: []string{"broker", "threads"}}
	var outcomes []plan.Outcome
	add := func(broker string, threads int, why string) {
		id := broker + string(rune('0'+threads))
		run.Cells = append(run.Cells, plan.Cell{ID: id, Index: len(run.Cells), Workload: plan.Default(),
			Coordinates: []plan.Coordinate{{Axis: "broker", Value: raw(broker)}, {Axis: "threads", Value: raw(threads)}}})
		o := plan.Outcome{Cell: id, Repetition: 1, Verdict: plan.Valid}
		if why != "" {
			o.Verdict, o.Reasons = plan.Unknown, []string{why}
		}
		outcomes = append(outcomes, o)
	}
	for threads := range 4 {
		add("down", threads, refused)
		add("up", threads, "")
	}
	add("flaky", 1, "timeout")
	want := []string{"broker=down (4 cells): failed: " + refused, "broker=flaky threads=1: failed: timeout"}
	if got := Failures(run, outcomes); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for i := range outcomes {
		outcomes[i].Verdict, outcomes[i].Reasons = plan.Unknown, []string{refused}
	}
	if got := Failures(run, outcomes); len(got) != 1 || got[0] != "all 9 cells: failed: "+refused {
		t.Errorf("%q, want one line for all cells", got)
	}
	run.Repeat = 3
	if got := Failures(run, outcomes); len(got) != 1 || got[0] != "all 9 cells (9 of 27 repetitions): failed: "+refused {
		t.Errorf("%q, want the number of repetitions", got)
	}
	run.Repeat = 1
	outcomes[0].Verdict = plan.Valid
	if got := Failures(run, outcomes); len(got) != 1 || !strings.HasPrefix(got[0], "broker=up threads=0, ") ||
		!strings.Contains(got[0], ", and 5 more: ") {
		t.Errorf("%q, want one line with three cells and the number of others", got)
	}
}

// TestLimitationsOfAProcessShareALine proves that the causes of a flag are in one line, each with its range.
func TestLimitationsOfAProcessShareALine(t *testing.T) {
	run, outcomes := pair(func(_ *plan.Cell, o *plan.Outcome, i int) {
		l := plan.Limitation{Flag: plan.SharedHost, Cause: plan.CauseScheduling, Host: "h", Agents: []string{"a"}, Value: 0.002,
			Max: 0.001}
		o.Limitations = append(o.Limitations, l)
		l.Cause, l.Value, l.Max = plan.CauseCPU, 1.8+0.1*float64(i), 2
		o.Limitations = append(o.Limitations, l)
	})
	const want = "shared-host: the broker and agent a on host h share CPUs: goroutines waited for a CPU: p99 2ms, " +
		"1.80 to 1.90 of 2 CPUs used; use separate hosts (all 2 cells)"
	if got := Limitations(run, outcomes); len(got) != 1 || got[0] != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestNext proves that a suggestion fits the results.
func TestNext(t *testing.T) {
	backlog := func(rate float64) func(*plan.Cell, *plan.Outcome, int) {
		return func(c *plan.Cell, o *plan.Outcome, _ int) {
			c.Workload.Publishers.Rate = rate
			o.Values = map[string]plan.Value{"consume.rate": {Number: 1, Flags: []plan.Flag{plan.Backlog}}}
		}
	}
	for name, x := range map[string]struct {
		edit func(*plan.Cell, *plan.Outcome, int)
		done int
		want string
	}{
		"all is well":        {nil, 2, "compare with an earlier run"},
		"a task was not run": {nil, 1, "run the remaining tasks: ctl run --resume r1"},
		"backlog":            {backlog(0), 2, "measure latency without a backlog"},
		"backlog at a rate":  {backlog(100), 2, "compare with an earlier run"},
		"an unreachable broker": {func(_ *plan.Cell, o *plan.Outcome, _ int) {
			o.Verdict, o.Failure = plan.Unknown, plan.FailedUnreachable
		}, 2, "check the brokers: ctl doctor m.cue"},
		"all tasks have an error": {func(_ *plan.Cell, o *plan.Outcome, _ int) { o.Verdict = plan.Unknown }, 2,
			"repeat the failed cells: ctl run m.cue --quick --set 'a=[1]' --filter broker=one,two"},
		"a task is invalid": {func(_ *plan.Cell, o *plan.Outcome, i int) {
			o.Verdict = []plan.Verdict{plan.Valid, plan.Invalid}[i]
		}, 2, "repeat the failed cells: ctl run m.cue --quick --set 'a=[1]' --filter broker=two"},
	} {
		run, outcomes := pair(x.edit)
		run.Source = plan.Source{File: "m.cue", Quick: true, Set: []string{"a=[1]"}, Filter: []string{"broker=one,two"}}
		if got := Next(run, outcomes[:x.done]); !strings.HasPrefix(got, x.want) {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
	for repeat, want := range map[int]string{
		1: "compare by broker, with 5 repetitions of each cell: ctl run m.cue --set 'a=[1]' --filter broker=one,two --set repeat=5",
		6: "compare by broker: ctl compare --by broker r1",
	} {
		run, outcomes := pair(nil)
		run.Repeat, run.Tables = repeat, []plan.Table{{Rows: []string{"broker"}}}
		run.Source = plan.Source{File: "m.cue", Set: []string{"a=[1]"}, Filter: []string{"broker=one,two"}}
		var all []plan.Outcome
		for n := range repeat {
			for _, o := range outcomes {
				o.Repetition = n + 1
				all = append(all, o)
			}
		}
		if got := Next(run, all); got != want {
			t.Errorf("%d repetitions: %q, want %q", repeat, got, want)
		}
		for i := range run.Cells { // an axis that varies together with the other one: no cells differ in one only
			run.Cells[i].Coordinates = append(run.Cells[i].Coordinates, plan.Coordinate{Axis: "zipped", Value: raw(i)})
		}
		if got := Next(run, all); got != "compare with an earlier run: ctl compare EARLIER r1" {
			t.Errorf("zipped axes, %d repetitions: %q", repeat, got)
		}
	}
}

// TestFlagsInRowsOfSeveralCells proves that each flag is connected with its own values if the cells of a row have
// different ones, and that comparisons show the flag shared-host.
func TestFlagsInRowsOfSeveralCells(t *testing.T) {
	one := 1.0
	number := func(flags ...plan.Flag) Field { return Field{Text: "1", Number: &one, Unit: plan.Count, Flags: flags} }
	absent := Field{Text: "–", Flags: []plan.Flag{plan.Backlog}}
	for want, row := range map[string][]Field{
		"–* 1 backlog*":                     {absent, number()},
		"– 1 backlog":                       {absent, number(plan.Backlog)},
		"1* 1† backlog* client-bound†":      {number(plan.Backlog), number(plan.ClientBound)},
		"1 1* backlog* client-bound":        {number(plan.ClientBound), number(plan.Backlog, plan.ClientBound)},
		"1 1":                               {number(plan.SharedHost), number()},
		"1* 1 shared-host* in a comparison": {number(plan.SharedHost), number()},
		"1 1 shared-host in a comparison":   {number(plan.SharedHost), number(plan.SharedHost)},
		"1* 1 – backlog*":                   {number(plan.Backlog), number(), {Text: "–"}},
		"1 1 – backlog":                     {number(plan.Backlog), number(plan.Backlog), {Text: "–"}},
		"1* 1*† 1 backlog* host-busy†":      {number(plan.Backlog), number(plan.Backlog, plan.HostBusy), number()},
	} {
		want, whole := strings.CutSuffix(want, " in a comparison")
		table := Table{Head: make([]string, len(row)), Rows: [][]Field{row}, whole: whole}
		var got []string
		for _, s := range table.Layout().Rows[0] {
			got = append(got, s.Text+s.Tail)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q, want %q", strings.Join(got, " "), want)
		}
	}
}

// TestLayout proves that a column has one unit, that flags are in the last column, and that a number is marked if not
// all numbers of its row have its flags.
func TestLayout(t *testing.T) {
	number := func(unit plan.Unit, x float64, flags ...plan.Flag) Field {
		return Field{Text: Format(unit, x), Number: &x, Unit: unit, Flags: flags, Value: "v"}
	}
	rate, latency := plan.PerSecond, plan.Seconds
	table := Table{Axes: []string{"mode", "threads"}, Head: []string{"mode", "threads", "Rate", "p50", "p99"},
		Rows: [][]Field{
			{{Text: "each"}, {Text: "1"}, number(rate, 1000, plan.SharedHost), number(latency, 50e-6), number(latency, 0.004)},
			{{Text: "each"}, {Text: "2"}, number(rate, 2000, plan.Backlog), {Text: "–", Flags: []plan.Flag{plan.Backlog}}, number(latency, 0.002)},
			{{Text: "window"}, {Text: "2"}, {Text: "failed", Notes: []int{1}}, {Text: "failed", Notes: []int{1}}, {Text: "failed", Notes: []int{1}}},
			{{Text: "window"}, {Text: "3"}, number(rate, 3000), number(latency, 0.010), number(latency, 1.5)},
		}}
	var out strings.Builder
	if err := table.Layout().text(true).Write(&out, 0); err != nil {
		t.Fatal(err)
	}
	const want = `
mode    threads   Rate   p50 (ms)  p99 (ms)  Flags
──────  ───────  ──────  ────────  ────────  ────────
each          1  1,000     0.0500      4.00
              2  2,000*    –*          2.00  backlog*
window        2                              failed¹
              3  3,000    10.0     1,500
`
	if got := "\n" + out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestCeilingFacts(t *testing.T) {
	one := plan.LoadShape{Size: 100, Nodes: 1, Threads: 1}
	ceiling := func(load plan.LoadShape, mode string, limits *plan.Limits) plan.Ceiling {
		load.Mode = mode
		return plan.Ceiling{Load: load, Limits: limits}
	}
	window, batch, five := one, one, one
	window.MaxInFlight, batch.Batch, five.Threads = 1000, plan.Batch{Min: 10, Max: 20}, 5
	got := ceilingFacts([]plan.Ceiling{
		ceiling(one, "fire-and-forget", &plan.Limits{Rate: 2_104_000, EndToEnd: 3100}),
		ceiling(five, "confirm-each", nil),
		ceiling(window, "confirm-window", &plan.Limits{Rate: 811_200, Publish: 2100, EndToEnd: 4000}),
		ceiling(batch, "confirm-batch", &plan.Limits{Rate: 1, Publish: 2_000_000, EndToEnd: 1}),
	})
	want := []string{
		"load generator alone: msg/s, publish p50, end-to-end p50; 100 B, 1 agent, 1 thread: fire-and-forget 2,100,000, –, 3.10 µs; confirm-window (1,000) 810,000, 2.10 µs, 4.00 µs; confirm-batch (10–20) 1, 2.00 ms, 1.00 ns",
		"100 B, 1 agent, 5 threads: confirm-each not measured",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A broken connection of unconfirmed messages, or to a broker in the agent's process, has no consequence to state.
func TestResilienceFacts(t *testing.T) {
	cell := func(mode, resilience string, inProcess bool) plan.Cell {
		c := plan.Cell{Resilience: resilience, InProcess: inProcess}
		c.Workload.Publishers.Mode = mode
		return c
	}
	none := "messages of a broken connection stay unconfirmed"
	for i, test := range []struct {
		cell plan.Cell
		want []string
	}{
		{cell("confirm-each", "none", false), []string{none}},
		{cell("confirm-each", "none", true), nil},
		{cell("fire-and-forget", "none", false), nil},
	} {
		if got := resilienceFacts([]plan.Cell{test.cell}); !slices.Equal(got, test.want) {
			t.Errorf("cell %d: %q, want %q", i, got, test.want)
		}
	}
}
