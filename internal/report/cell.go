package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/rules"
	"example.org/lockstep/lockstep/internal/sampling"
	"example.org/lockstep/lockstep/internal/stats"
)

// cell is a cell with its outcomes.
type cell struct {
	cell     plan.Cell
	place    place
	often    often
	outcomes []plan.Outcome // sorted by repetition
	metrics  plan.Metrics   // of the run
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
	return fmt.Sprint(display.AtMost(o.open), o.repeat)
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

// field returns one value of the cell: the median of the usable repetitions with its flags, and notes about errors.
func (c *cell) field(info plan.ValueInfo, n *notes) Field {
	f := Field{Value: info.Name, Unit: info.Unit}
	for _, o := range c.outcomes {
		f.Verdict = plan.Worst(f.Verdict, o.Verdict)
	}
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
	case !(stats.Median(numbers) < math.Inf(1)): // NaN without numbers
		c.absence(&f, absent, n)
	default:
		middle := median(numbers, values)
		f.Number = &middle.Number
		f.Text, f.sign, f.Bound = show(info, middle), signOf(info, middle), middle.Bound
		switch _, plain := plan.SplitGroup(info.Name); plain {
		case "throughput":
			c.throughput(&f, n)
		case "capacity":
			c.capacity(&f, n)
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
// in the order of meanings. A latency that a backlog hides is the worst number, infinity: without it, the median would
// describe only the repetitions that kept up.
func collect(outcomes []plan.Outcome, value string) (numbers []float64, missing []string, flags []plan.Flag) {
	for _, o := range outcomes {
		v, has := o.Value(value)
		switch {
		case !has:
			missing = addNew(missing, absent(o, value))
		case v.NA == judge.NABacklog:
			missing, numbers = addNew(missing, v.NA), append(numbers, math.Inf(1))
		case v.NA != "":
			missing = addNew(missing, v.NA)
		default:
			numbers = append(numbers, v.Number)
		}
		flags = append(flags, v.Flags...)
	}
	return numbers, missing, distinctFlags(flags)
}

// absent returns why an outcome does not contain a value.
func absent(o plan.Outcome, value string) string {
	if group, _ := plan.SplitGroup(value); group != "" &&
		!slices.ContainsFunc(o.Groups, func(g plan.GroupOutcome) bool { return g.Name == group }) {
		return "no group " + group + " in this cell"
	}
	return "not in the record"
}

// absence fills in a field without a number: a dash with a note or the flag backlog.
func (c *cell) absence(f *Field, absent []string, n *notes) {
	f.Text, f.Flags = "–", nil // other flags are warnings about a number
	if slices.Contains(absent, judge.NABacklog) {
		f.Flags = []plan.Flag{plan.Backlog}
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
}

func explain(why string) string { return cmp.Or(explanations[why], why) }

// blame adds notes about repetitions that are invalid, failed or not run.
func (c *cell) blame(f *Field, n *notes) {
	if invalid := c.with(plan.Invalid); len(invalid) > 0 {
		f.Notes = append(f.Notes, n.add(c.part(len(invalid))+"invalid: "+reasons(invalid))...)
	}
	if failed := c.with(plan.Unknown); len(failed) > 0 {
		f.Notes = append(f.Notes, n.add(c.part(len(failed))+"failed: "+reasons(failed))...)
	}
	if missing := c.often.repeat - len(c.outcomes); missing > 0 {
		f.Notes = append(f.Notes, n.add(fmt.Sprintf("%d of %s repetitions not run", missing, c.often.of()))...)
	}
	if c.often.missed != "" {
		f.Notes = append(f.Notes, n.add(c.often.missed)...)
	}
}

// retried returns notes about the repetitions that needed several attempts, with the reasons.
func (c *cell) retried(n *notes) (all []int) {
	for _, o := range c.outcomes {
		text := o.AttemptsText()
		if text == "" {
			continue
		}
		if c.often.repeat > 1 {
			text = fmt.Sprintf("repetition %d: %s", o.Repetition, text)
		}
		all = append(all, n.add(text)...)
	}
	return all
}

// part returns the text "n of m repetitions", or "" for a cell with one repetition.
func (c *cell) part(n int) string {
	if c.often.repeat <= 1 {
		return ""
	}
	return fmt.Sprintf("%d of %d repetitions ", n, c.often.repeat)
}

// reasons returns the distinct reasons of outcomes.
func reasons(outcomes []plan.Outcome) string {
	var all []string
	for _, o := range outcomes {
		for _, r := range o.Reasons {
			all = addNew(all, strings.TrimPrefix(r, judge.TaskFailed))
		}
	}
	if len(all) == 0 {
		return "no reason recorded"
	}
	return strings.Join(all, "; ")
}

// throughput shows one rate if the publish rate agrees with the consume rate per subscription in every repetition,
// within judge.Tolerance, and there was no backlog. Otherwise it shows publish / consume. Groups can have different
// numbers of subscriptions.
func (c *cell) throughput(f *Field, n *notes) {
	of := strings.TrimSuffix(f.Value, "throughput") // a group
	parts := []string{of}
	if groups := c.cell.Workload.Groups; of == "" && len(groups) > 0 {
		parts = nil
		for _, g := range groups {
			parts = append(parts, g.Name+"/")
		}
	}
	var consumed []float64
	agree, fanOut := true, false
	for _, o := range c.usable() {
		sum, received := 0.0, false
		for _, part := range parts {
			if rate, has := o.Value(part + "consume.rate"); has && rate.NA == "" {
				subscriptions := max(1, c.workload(strings.TrimSuffix(part, "/")).Topology.Subscriptions)
				sum, received, fanOut = sum+rate.Number/float64(subscriptions), true, fanOut || subscriptions > 1
			}
		}
		if published, _ := o.Value(of + "publish.rate"); received && published.NA == "" {
			consumed = append(consumed, sum)
			agree = agree && math.Abs(sum-published.Number) <= judge.Tolerance*published.Number
		}
	}
	if len(consumed) == 0 {
		return // no consumers: only the publish rate
	}
	if agree && !slices.Contains(f.Flags, plan.Backlog) {
		return
	}
	f.Text += " / " + Format(plan.PerSecond, stats.Median(consumed))
	if fanOut {
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
		texts[i] = Format(unit, x)
	}
	return "repetitions: " + strings.Join(texts, ", ")
}

// meanings explain the flags, in the order in which tables show them.
var meanings = []struct {
	flag         plan.Flag
	text, remedy string
}{
	{plan.Backlog, "consumers did not keep up with publishers",
		"publish at a fixed rate (publishers.rate), or add consumers"},
	{plan.ClientBound, "the load generator was the bottleneck", "use more publishers, agents or hosts"},
	{plan.SharedHost, "broker and load generator share CPUs that were fully used; the numbers describe both together",
		"run the broker on another host"},
	{plan.HostBusy, "other processes used the CPU of the load generator's host", "stop them, or use another host"},
	{plan.ClockUnsafe, "times from clocks of different hosts; the error of the clock offset exceeds the median",
		"use consumers: colocate: true, or synchronise the clocks of the hosts"},
	{plan.Skewed, "agents did not start together", "use hosts with free CPUs, or accept a larger skew"},
	{plan.NotSteady, "the load was still changing when the measurement started (warmup: \"auto\")",
		"increase steady.max, or publish at a lower rate"},
	{plan.LatencyOff, "the simulated network added more latency than configured (network.latency.p50)",
		"use hosts with free CPUs, or a larger latency"},
	{plan.Drifting, "a rate or the median latency rose or fell during the whole measurement",
		"use a longer warm-up or warmup: \"auto\", and a longer measure"},
	{plan.Degraded, "not all agents took part until the end",
		"find the cause in the log of the lost agent, and run the cell again"},
	{plan.Clipped, "samples exceeded the histogram range of one hour", "publish at a rate that the broker can serve"},
}

// States are the words for a whole row in the column of flags, with their meanings.
var States = [][2]string{
	{"failed", "there are no usable numbers: an error ended the task, or a part of its record is missing"},
	{"invalid", "the broker violated a guarantee that its driver declares"},
	{"n/a", "the broker or its driver does not support the combination"},
	{"not run", "the task has no outcome; run it with ctl run --resume"},
}

// Meaning explains a flag and returns the remedy; both are empty if it is unknown.
func Meaning(f plan.Flag) (text, remedy string) {
	if i := flagOrder(f); i < len(meanings) {
		return meanings[i].text, meanings[i].remedy
	}
	return "", ""
}

func flagOrder(f plan.Flag) int {
	for i, m := range meanings {
		if m.flag == f {
			return i
		}
	}
	return len(meanings)
}

// distinctFlags sorts flags in place, in the order of meanings, and returns each once.
func distinctFlags(flags []plan.Flag) []plan.Flag {
	slices.SortFunc(flags, func(a, b plan.Flag) int { return flagOrder(a) - flagOrder(b) })
	return slices.Compact(flags)
}

func flagText(flags []plan.Flag) string {
	all := make([]string, len(flags))
	for i, f := range flags {
		all[i] = string(f)
	}
	return strings.Join(all, " ")
}

// workload returns the workload of a group, or of the cell if no group has the name.
func (c *cell) workload(group string) plan.Workload {
	for _, g := range c.cell.Workload.Groups {
		if g.Name == group {
			return c.cell.Workload.With(g)
		}
	}
	return c.cell.Workload
}

// unsound returns the first problem of a cell or that repetitions were not run; empty: all are a success.
func (c *cell) unsound(strict bool) string {
	for _, r := range c.problems(strict) {
		return c.name() + c.repetitions(r) + ": " + r.text
	}
	if missing := c.often.repeat - len(c.outcomes); missing > 0 {
		return fmt.Sprintf("%d of %s repetitions were not run", missing, c.often.of())
	}
	return ""
}

// notHonoured is the prefix of a driver's text about a setting that the server accepts and ignores.
const notHonoured = "not honoured by this server"

// standIn returns the product in whose place the broker of the cell runs; empty: it is the product itself.
func (c *cell) standIn() string {
	for _, o := range c.outcomes {
		if o.Subject.StandIn != "" {
			return o.Subject.StandIn
		}
	}
	return ""
}

// label returns the meaning of a confirm in the cell, with the settings that the server does not honour.
func (c *cell) label() string {
	label := c.cell.Label
	if of := c.standIn(); of != "" {
		label += " (stand-in for " + of + ")"
	}
	var broken []string
	for _, o := range c.outcomes {
		for name, value := range o.Subject.Settings {
			if strings.Contains(value, notHonoured) {
				broken = addNew(broken, name+" "+value)
			}
		}
	}
	slices.Sort(broken)
	if len(broken) > 0 {
		label += " (" + strings.Join(broken, "; ") + ")"
	}
	return label
}

// noDataReason returns the reason why a cell has no data for rules; empty: it has data.
func (c *cell) noDataReason() string {
	switch {
	case len(c.outcomes) == 0:
		return "not run"
	case len(c.with(plan.Valid)) == 0:
		return reasons(c.outcomes)
	}
	return ""
}

// judge judges a condition in a cell, or in each of its groups.
func (c *cell) judge(rule string) Ruling {
	if why := c.noDataReason(); why != "" {
		return Ruling{Result: Inconclusive, Why: "no data: " + why}
	}
	valid, w := c.with(plan.Valid), c.cell.Workload
	if len(w.Groups) == 0 {
		return ruling(c.failures(rule, w, valid, func(o plan.Outcome) map[string]plan.Value { return o.Values }))
	}
	var all []rules.Failure
	for i, part := range w.Parts() {
		group := w.Groups[i].Name
		ofGroup := func(o plan.Outcome) map[string]plan.Value {
			for _, g := range o.Groups {
				if g.Name == group {
					return g.Values
				}
			}
			return nil
		}
		for _, f := range c.failures(rule, part, valid, ofGroup) {
			f.Why = group + ": " + f.Why
			all = append(all, f)
		}
	}
	return ruling(all)
}

// failures judges one workload by the values of its valid repetitions. The failures are distinct.
func (c *cell) failures(rule string, w plan.Workload, valid []plan.Outcome,
	values func(plan.Outcome) map[string]plan.Value) []rules.Failure {
	condition, err := rules.ParseCondition(rule, w, c.metrics)
	if err != nil {
		return []rules.Failure{{Why: err.Error(), Unknown: true}} // in a record of another version
	}
	middles := c.medians(valid, values)
	var all []rules.Failure
	for _, o := range valid {
		own := maps.Clone(values(o))
		for name, middle := range middles {
			if _, less := own[name].LessThan(); less || own[name].NA == "" { // else this repetition has no data
				middle.Flags = own[name].Flags
				own[name] = middle
			}
		}
		all = addNew(all, condition.Fails(own)...)
	}
	return all
}

// medians returns the medians of all values except counts, over the repetitions that have a number or an upper bound. A
// median is a lower bound if one of its values is (median).
func (c *cell) medians(valid []plan.Outcome, values func(plan.Outcome) map[string]plan.Value) map[string]plan.Value {
	numbers, every := map[string][]float64{}, map[string][]plan.Value{}
	for _, o := range valid {
		for name, v := range values(o) {
			every[name] = append(every[name], v)
			if v.NA == "" {
				numbers[name] = append(numbers[name], v.Number)
			}
		}
	}
	out := map[string]plan.Value{}
	for _, info := range c.metrics.Values() {
		if info.Unit == plan.Count {
			continue
		}
		if all, less := among(numbers[info.Name], every[info.Name]); less != "" {
			out[info.Name] = plan.Value{NA: less}
		} else if len(all) > 0 {
			out[info.Name] = median(all, every[info.Name])
		}
	}
	return out
}

// search returns the table of one search: one row per step, by rate and then by time.
func (c *cell) search(o plan.Outcome) Table {
	latency := "e2e"
	if c.cell.Workload.Consumers.Nodes == 0 {
		latency = "publish.intended"
	}
	values := []string{"publish.rate", "consume.rate", latency + ".p50", latency + ".p99", latency + ".max"}
	if latency != "e2e" {
		values = slices.Delete(values, 1, 2)
	}
	t := Table{Title: c.searchTitle(o), Split: c.place, Axes: []string{"search.rate"},
		Head: []string{"Target msg/s", "Step", "Result"}}
	for _, name := range values {
		t.Head = append(t.Head, ValueInfo(c.metrics, name).Title)
	}
	chart := &Chart{Latency: ValueInfo(c.metrics, latency+".p50").Title}
	chart.Latency = strings.TrimSuffix(chart.Latency, " p50")
	n := &notes{}
	for _, i := range byRate(o.Search.Steps) {
		s := o.Search.Steps[i]
		row := []Field{
			{Text: display.Number(s.Rate)},
			{Text: fmt.Sprintf("%d %s", i+1, s.Kind), Value: "search.step"},
			{Text: string(s.Answer), Value: "search.answer"},
		}
		if s.Why != "" {
			row[2].Notes = n.add(s.Why)
		}
		for _, name := range values {
			row = append(row, stepField(c.metrics, s, name))
		}
		t.Rows = append(t.Rows, row)
		chart.Points = append(chart.Points, pointOf(s, latency, o.Search.Sure && s.Rate == o.Search.Capacity))
	}
	t.Notes, t.Chart, t.Remarks = n.texts, chart, t.legend()
	if s := c.cell.Workload.Search; s != nil {
		t.Remarks = append(t.Remarks, "condition: "+s.While)
	}
	if o.Search.Why != "" {
		t.Remarks = append(t.Remarks, o.Search.Why)
	}
	return t
}

// byRate returns the indices of steps, by rate and then by time.
func byRate(steps []plan.Step) []int {
	order := make([]int, len(steps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(steps[a].Rate, steps[b].Rate) })
	return order
}

// stepField returns the field of a step's value. Of its flags it has only a backlog that leaves no number: the note of
// the answer has the others that matter.
func stepField(metrics plan.Metrics, s plan.Step, name string) Field {
	info := ValueInfo(metrics, name)
	f := Field{Text: "–", Value: name, Unit: info.Unit}
	switch v, has := s.Values[name]; {
	case has && v.NA == "":
		f.Number, f.Text, f.sign, f.Bound = &v.Number, show(info, v), signOf(info, v), v.Bound
	case v.NA == string(plan.Backlog):
		f.Flags = []plan.Flag{plan.Backlog}
	}
	return f
}

// searchTitle returns the title with the result: "Capacity, broker=nats: 20,050 msg/s (19,990–20,200), held 3 of 4".
func (c *cell) searchTitle(o plan.Outcome) string {
	title := "Capacity"
	if len(c.place) > 0 {
		title += ", " + c.place.String()
	}
	if c.often.repeat > 1 {
		title += fmt.Sprintf(", repetition %d", o.Repetition)
	}
	switch r := o.Search; {
	case !r.Sure:
		return title + ": not found"
	case r.Capacity == 0:
		return title + ": no rate met the condition"
	default:
		return fmt.Sprintf("%s: %s msg/s %s", title, display.Number(r.Capacity), interval(r))
	}
}

// repetitions names the repetitions of a reason in a cell with several.
func (c *cell) repetitions(r reason) string {
	switch {
	case len(r.which) > 1:
		return fmt.Sprintf(" (repetitions %s)", strings.Join(r.which, ", "))
	case len(r.which) == 1 && c.often.repeat > 1:
		return fmt.Sprintf(" (repetition %s)", r.which[0])
	}
	return ""
}

// problems returns the problems of one cell. Repetitions with the same problem are one reason.
func (c *cell) problems(strict bool) (all []reason) {
	if strict && c.often.missed != "" {
		all = append(all, reason{text: c.often.missed + ", and the matrix is strict"})
	}
	var texts []string
	in := map[string][]string{}
	for _, o := range c.outcomes {
		text := ""
		if o.Failed() {
			text = fmt.Sprintf("%s: %s", o.Verdict.Word(), reasons([]plan.Outcome{o}))
		} else if flags := allFlags(o); strict && len(flags) > 0 {
			text = "flagged, and the matrix is strict: " + flagText(flags)
		}
		if text == "" {
			continue
		}
		if in[text] == nil {
			texts = append(texts, text)
		}
		in[text] = append(in[text], fmt.Sprint(o.Repetition))
	}
	for _, text := range texts {
		all = append(all, reason{text, in[text]})
	}
	return all
}

// interval formats the interval of a capacity and its verification: "(19,990–20,200), held 3 of 4".
func interval(r *plan.SearchResult) string {
	if r.Fails == 0 {
		return fmt.Sprintf("or more, held %d of %d", r.Verified, r.Verifications)
	}
	return fmt.Sprintf("(%s–%s), held %d of %d", display.Number(r.Low), display.Number(r.Fails), r.Verified,
		r.Verifications)
}

// capacity adds the interval of the repetition whose number is shown.
func (c *cell) capacity(f *Field, n *notes) {
	for _, o := range c.usable() {
		if r := o.Search; r != nil && r.Sure && r.Capacity == *f.Number {
			if r.Capacity > 0 {
				f.Mark = interval(r)
			}
			if r.Capacity == 0 || r.Fails == 0 {
				f.Notes = append(f.Notes, n.add(r.Why)...)
			}
			return
		}
	}
}
