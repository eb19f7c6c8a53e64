package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/internal/display"
	"lockstep/internal/judge"
	"lockstep/internal/plan"
	"lockstep/internal/sampling"
	"lockstep/internal/stats"
)

// cell is a cell with its outcomes.
type cell struct {
	cell  plan.Cell
	place place
	often
	outcomes []plan.Outcome // sorted by repetition
}

// often is the number of repetitions of a cell.
type often struct {
	repeat int    // the maximum while open
	open   bool   // the number depends on the results of repetitions to come
	missed string // why the maximum of repetitions has not reached the requested precision; empty: it has
}

func oftenOf(rounds *sampling.Rounds, id string) often {
	c := rounds.Cell(id)
	return often{repeat: c.Repeat, open: rounds.Undecided(id), missed: rounds.Missed(id)}
}

// of returns the number of repetitions as text.
func (o often) of() string {
	if o.open {
		return fmt.Sprintf("at most %d", o.repeat)
	}
	return fmt.Sprint(o.repeat)
}

// name returns the name of the cell for people.
func (c *cell) name() string {
	if len(c.place) == 0 {
		return "cell " + c.cell.ID
	}
	return c.place.String()
}

// with returns the outcomes of one verdict.
func (c *cell) with(v plan.Verdict) []plan.Outcome {
	var some []plan.Outcome
	for _, o := range c.outcomes {
		if o.Verdict == v {
			some = append(some, o)
		}
	}
	return some
}

// usable returns the outcomes whose numbers are shown: the valid ones, else the invalid ones, which are marked. If all
// repetitions failed, there are none.
func (c *cell) usable() []plan.Outcome {
	if valid := c.with(plan.Valid); len(valid) > 0 {
		return valid
	}
	return c.with(plan.Invalid)
}

// worst returns the worst verdict among the outcomes.
func (c *cell) worst() plan.Verdict {
	for _, v := range []plan.Verdict{plan.Invalid, plan.Unknown, plan.Valid} {
		if len(c.with(v)) > 0 {
			return v
		}
	}
	return ""
}

// renderers format values that have more than one number.
var renderers = map[string]func(*cell, *Field, *notes){
	"throughput": throughput,
	"capacity":   capacity,
}

// field returns one value of the cell: the median of the usable repetitions with its flags, and notes about errors.
func (c *cell) field(info plan.ValueInfo, n *notes) Field {
	f := Field{Value: info.Name, Unit: info.Unit, Verdict: c.worst()}
	usable := c.usable()
	switch {
	case len(c.outcomes) == 0:
		f.Text = "not run"
		return f
	case len(usable) == 0:
		f.Text = "failed"
		f.Notes = append(n.add("failed: "+reasons(c.outcomes)), c.retried(n)...)
		return f
	}
	numbers, absent, flags := collect(usable, info.Name)
	f.Flags = flags
	values := valuesOf(usable, info.Name)
	numbers, less := among(numbers, values)
	switch {
	case less != "":
		f.Text = less
	case len(numbers) == 0:
		c.absence(&f, absent, n)
	default:
		middle := median(numbers, values)
		f.Number = &middle.Number
		f.Text, f.Bound = show(info, middle), middle.Bound
		if _, plain := plan.SplitGroup(info.Name); renderers[plain] != nil {
			renderers[plain](c, &f, n)
		}
		if uneven := unevenCounts(info.Unit, numbers); uneven != "" {
			f.Notes = append(f.Notes, n.add(uneven)...)
		}
	}
	c.blame(&f, n)
	f.Notes = append(f.Notes, c.retried(n)...)
	slices.Sort(f.Notes)
	f.Notes = slices.Compact(f.Notes)
	return f
}

// collect returns a value over outcomes: its numbers, the distinct reasons for missing numbers, and the union of flags
// in the order of meanings.
func collect(outcomes []plan.Outcome, value string) (numbers []float64, missing []string, flags []plan.Flag) {
	for _, o := range outcomes {
		v, has := o.Value(value)
		switch {
		case !has:
			v.NA = absent(o, value)
			fallthrough
		case v.NA != "":
			if !slices.Contains(missing, v.NA) {
				missing = append(missing, v.NA)
			}
		default:
			numbers = append(numbers, v.Number)
		}
		flags = append(flags, v.Flags...)
	}
	slices.SortFunc(flags, func(a, b plan.Flag) int { return flagOrder(a) - flagOrder(b) })
	return numbers, missing, slices.Compact(flags)
}

// absent returns why an outcome does not contain a value.
func absent(o plan.Outcome, value string) string {
	if group, _ := plan.SplitGroup(value); group != "" &&
		!slices.ContainsFunc(o.Groups, func(g plan.GroupOutcome) bool { return g.Name == group }) {
		return "no group " + group + " in this cell"
	}
	return "not in the record"
}

// absence fills in a field without a number. The text is an upper bound, or a dash with a note or the flag backlog.
func (c *cell) absence(f *Field, absent []string, n *notes) {
	f.Text, f.Flags = "–", nil // other flags are warnings about a number
	if slices.Contains(absent, judge.NABacklog) {
		f.Flags = []plan.Flag{plan.Backlog}
		return
	}
	if _, bounded := (plan.Value{NA: absent[0]}).LessThan(); bounded && len(absent) == 1 {
		f.Text = absent[0] // an upper bound is nearly a number
		return
	}
	for _, why := range absent {
		f.Notes = append(f.Notes, n.add(explain(why))...)
	}
}

// explanations of the reasons for missing numbers.
var explanations = map[string]string{
	judge.NAFireAndForget: "fire-and-forget: no confirms",
	judge.NANoConfirms:    "no confirms in this mode",
	judge.NAClosedLoop:    "closed loop: no intended send times",
	judge.NANoConsumers:   "no consumers",
}

func explain(why string) string {
	if text, ok := explanations[why]; ok {
		return text
	}
	return why
}

// blame adds notes about repetitions that are invalid, failed or not run.
func (c *cell) blame(f *Field, n *notes) {
	if invalid := c.with(plan.Invalid); len(invalid) > 0 {
		f.Notes = append(f.Notes, n.add(c.part(len(invalid))+"invalid: "+reasons(invalid))...)
	}
	if failed := c.with(plan.Unknown); len(failed) > 0 {
		f.Notes = append(f.Notes, n.add(c.part(len(failed))+"failed: "+reasons(failed))...)
	}
	if missing := c.repeat - len(c.outcomes); missing > 0 {
		f.Notes = append(f.Notes, n.add(fmt.Sprintf("%d of %s repetitions not run", missing, c.of()))...)
	}
	if c.missed != "" {
		f.Notes = append(f.Notes, n.add(c.missed)...)
	}
}

// retried returns notes about the repetitions that needed several attempts, with the reasons.
func (c *cell) retried(n *notes) (all []int) {
	for _, o := range c.outcomes {
		text := o.AttemptsText()
		if text == "" {
			continue
		}
		if c.repeat > 1 {
			text = fmt.Sprintf("repetition %d: %s", o.Repetition, text)
		}
		all = append(all, n.add(text)...)
	}
	return all
}

// part returns the text "n of m repetitions", or "" for a cell with one repetition.
func (c *cell) part(n int) string {
	if c.repeat <= 1 {
		return ""
	}
	return fmt.Sprintf("%d of %d repetitions ", n, c.repeat)
}

// reasons returns the distinct reasons of outcomes.
func reasons(outcomes []plan.Outcome) string {
	var all []string
	for _, o := range outcomes {
		for _, r := range o.Reasons {
			r = strings.TrimPrefix(r, judge.TaskFailed)
			if !slices.Contains(all, r) {
				all = append(all, r)
			}
		}
	}
	if len(all) == 0 {
		return "no reason recorded"
	}
	return strings.Join(all, "; ")
}

// throughput shows one rate if the publish rate agrees with the consume rate per subscription in every repetition,
// within judge.Tolerance, and there was no backlog. Otherwise it shows publish / consume.
func throughput(c *cell, f *Field, n *notes) {
	of := strings.TrimSuffix(f.Value, "throughput") // a group
	subscriptions := float64(max(1, c.workload(strings.TrimSuffix(of, "/")).Topology.Subscriptions))
	var consumed []float64
	agree := true
	for _, o := range c.usable() {
		published, _ := o.Value(of + "publish.rate")
		if rate, has := o.Value(of + "consume.rate"); has && rate.NA == "" {
			consumed = append(consumed, rate.Number/subscriptions)
			agree = agree && math.Abs(rate.Number/subscriptions-published.Number) <= judge.Tolerance*published.Number
		}
	}
	if len(consumed) == 0 {
		return // no consumers: only the publish rate
	}
	if agree && !slices.Contains(f.Flags, plan.Backlog) {
		return
	}
	f.Text += " / " + format(plan.PerSecond, stats.Median(consumed))
	if subscriptions > 1 {
		f.Notes = append(f.Notes, n.add("publish rate / consume rate of one subscription")...)
	}
}

// unevenCounts lists the counts of the repetitions if some are zero and others are not. The median could hide a loss in
// one repetition of three.
func unevenCounts(unit plan.Unit, numbers []float64) string {
	if unit != plan.Count || slices.Min(numbers) > 0 || slices.Max(numbers) == 0 {
		return ""
	}
	texts := make([]string, len(numbers))
	for i, x := range numbers {
		texts[i] = format(unit, x)
	}
	return "repetitions: " + strings.Join(texts, ", ")
}

// meanings explain the flags, in the order in which tables show them.
var meanings = []struct {
	flag plan.Flag
	text string
}{
	{plan.Backlog, "consumers did not keep up with publishers"},
	{plan.ClientBound, "the load generator was the bottleneck"},
	{plan.SharedHost, "broker and load generator share CPUs that were fully used; the numbers describe both together"},
	{plan.HostBusy, "other processes used the CPU of the load generator's host"},
	{plan.ClockUnsafe, "times from clocks of different hosts; the error of the clock offset exceeds the median"},
	{plan.Skewed, "agents did not start together"},
	{plan.NotSteady,
		"the load was still changing when the measurement started (warmup: \"auto\")"},
	{plan.LatencyOff, "the simulated network added more latency than configured (network.latency.p50)"},
	{plan.Drifting, "a rate or the median latency rose or fell during the whole measurement"},
	{plan.Degraded, "not all agents took part until the end"},
	{plan.Clipped, "samples exceeded the histogram range of one hour"},
}

// Meaning explains a flag; empty: it is unknown.
func Meaning(f plan.Flag) string {
	for _, m := range meanings {
		if m.flag == f {
			return m.text
		}
	}
	return ""
}

func flagOrder(f plan.Flag) int {
	for i, m := range meanings {
		if m.flag == f {
			return i
		}
	}
	return len(meanings)
}

func without(flags []plan.Flag, f plan.Flag) []plan.Flag {
	return slices.DeleteFunc(slices.Clone(flags), func(x plan.Flag) bool { return x == f })
}

func words(flags []plan.Flag) string {
	all := make([]string, len(flags))
	for i, f := range flags {
		all[i] = string(f)
	}
	return strings.Join(all, " ")
}

// legend explains the flags in a table, and the signs that it uses.
func (t Table) legend() []string {
	var lines []string
	for _, m := range meanings {
		shown, text := 0, m.text
		for _, row := range t.Rows {
			if slices.ContainsFunc(row, func(f Field) bool { return slices.Contains(t.shownFlags(f.Flags), m.flag) }) {
				shown++
			}
			if _, signOf := t.rowFlags(row[min(len(t.Axes), len(row)):]); signOf[m.flag] != "" {
				text = m.text + " (values with the same sign)"
			}
		}
		if shown > 0 {
			lines = append(lines, fmt.Sprintf("%s (%s): %s", m.flag, display.Count(shown, "row"), text))
		}
	}
	bounded := func(row []Field) bool { return slices.ContainsFunc(row, func(f Field) bool { return f.Bound > 0 }) }
	if slices.ContainsFunc(t.Rows, bounded) {
		lines = append(lines, "±: error bound (clock offsets between hosts, backlogs sampled once per second)")
	}
	return lines
}
