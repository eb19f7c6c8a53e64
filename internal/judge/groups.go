package judge

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// naEachGroup is the reason for no value in a cell with several groups, if values of groups cannot be combined.
const naEachGroup = "each group has its own"

// TaskFailed precedes the error of a failed task in its reasons.
const TaskFailed = "the task failed: "

const taskCancelled = "the task was cancelled"

// judgeGroups judges each group of a task like a task, and combines the results into one outcome:
//
//   - Counts, rates and the ledger are sums over groups. There is no rate if counts ended the groups' measurements at
//     different times, or if the rate of a group is not known.
//   - Resource use of agents, and the longest time without a link, are maxima over groups.
//   - Latencies and other times are those of the only group that has them. They are not combined over groups.
//   - Metrics of the whole broker are the same for each group and count once. Metrics of queues remain with each group,
//     as do all metrics of side-by-side brokers.
//   - A value has the flags of all groups' values. The verdict is the worst of the groups.
func judgeGroups(t plan.Task, m *record.Merged, f Facts, cut time.Duration) plan.Outcome {
	cell := newInput(t, m, f, cut, nil)
	whole := *cell // its span becomes the maximum over groups
	whole.span = span{}
	var groups []plan.Outcome
	byCount := false
	for _, part := range t.Parts() {
		in := newInput(part, m.Group(part.Group), f.of(part.Group), cut, cell)
		groups, byCount = append(groups, evaluate(in)), byCount || in.span.byCount
		whole.span.windows = max(whole.span.windows, in.span.windows)
		whole.span.sending = max(whole.span.sending, in.span.sending)
		whole.span.receiving = max(whole.span.receiving, in.span.receiving)
	}
	ofCell := &measurements{in: &whole, starts: startsOf(&whole, tracksOf(&whole))} // groups start together
	starts := ofCell.starts
	ownValues := map[string]plan.Value{"start.skew": functions["start.skew"](ofCell)} // not of groups
	o := groups[0]
	o.Values, o.Ledger = map[string]plan.Value{}, plan.Ledger{}
	o.Reasons, o.Warnings, o.Limitations, o.Clocks = nil, nil, nil, nil
	o.Agents, o.Events = starts.agents, allEvents(m, whole.facts)
	for i, g := range groups {
		o.Measured = max(o.Measured, g.Measured)
		join(&o, t.Cell.Workload.Groups[i].Name, g, f)
	}
	noRates := byCount && apart(groups)
	for _, v := range t.Metrics.Values() {
		combined, has := combine(v, groups, t.Metrics, noRates, whole.workload.SideBySide())
		if starts.beyond(whole.workload) && v.Traits.Has(plan.Performance) {
			combined.Flags = addNew(combined.Flags, plan.Skewed)
		}
		if has {
			o.Values[v.Name] = combined
		}
	}
	w := sentences(o.Warnings)
	w.addSkew(whole.workload, starts)
	if !whole.workload.SideBySide() {
		processes := processMetricsOf(&whole)
		processes.addValues(ownValues)
		w.addNodes(&whole, processes)
	}
	maps.Copy(o.Values, withFlags(ofCell, ownValues))
	o.Warnings = w
	return o
}

// join adds the ledger, the verdict and the warnings of one group to the outcome of the cell.
func join(o *plan.Outcome, name string, g plan.Outcome, f Facts) {
	group := plan.GroupOutcome{Name: name, Verdict: g.Verdict, Values: g.Values, Ledger: g.Ledger, Reasons: g.Reasons,
		Warnings: g.Warnings}
	if _, own := f.Subjects[name]; own {
		group.Subject = &g.Subject
	}
	o.Groups = append(o.Groups, group)
	o.Ledger = sum(o.Ledger, g.Ledger)
	o.Clocks = append(o.Clocks, g.Clocks...)
	o.Cut = max(o.Cut, g.Cut)
	o.Verdict = plan.Worst(o.Verdict, g.Verdict)
	ofTask := []string{TaskFailed + f.Failure, taskCancelled} // these do not belong to one group
	named := func(all []string) []string {
		named := slices.Clone(all)
		for i, text := range named {
			if !slices.Contains(ofTask, text) {
				named[i] = "group " + name + ": " + text
			}
		}
		return named
	}
	if reasons := named(g.Reasons); g.Verdict == plan.Invalid { // proven reasons come first
		o.Reasons = append(reasons, o.Reasons...)
	} else {
		o.Reasons = append(o.Reasons, reasons...)
	}
	o.Warnings = append(o.Warnings, named(g.Warnings)...)
	for _, l := range g.Limitations {
		if !slices.ContainsFunc(o.Limitations, func(x plan.Limitation) bool { return reflect.DeepEqual(x, l) }) {
			o.Limitations = append(o.Limitations, l)
		}
	}
	o.Reasons = addNew(nil, o.Reasons...)
}

// addNew adds the elements that are not in the list.
func addNew[T comparable](list []T, elements ...T) []T {
	for _, e := range elements {
		if !slices.Contains(list, e) {
			list = append(list, e)
		}
	}
	return list
}

// sum adds two ledgers. Every field is a count.
func sum(a, b plan.Ledger) plan.Ledger {
	x, y := reflect.ValueOf(&a).Elem(), reflect.ValueOf(b)
	for i := range x.NumField() {
		x.Field(i).SetUint(x.Field(i).Uint() + y.Field(i).Uint())
	}
	return a
}

// combine returns the cell's value from the values of its groups. noRates is true if their rates cannot be added. has
// is false if no group has the value.
func combine(v plan.ValueInfo, groups []plan.Outcome, metrics plan.Metrics, noRates, sideBySide bool) (out plan.Value,
	has bool) {
	numbers, why := 0, ""
	for _, g := range groups {
		x, has := g.Values[v.Name]
		if !has {
			continue
		}
		out.Flags = addNew(out.Flags, x.Flags...)
		switch {
		case x.NA == NAUndrained, x.NA == NABacklog,
			v.Rate() && v.Traits.Has(plan.Sums) && (x.NA == NANotMeasured || x.NA == NAApart):
			out.NA = x.NA // unknown for one group: unknown for all
			continue
		case x.NA != "":
			why = cmp.Or(why, x.NA)
			continue
		case v.Traits.Has(plan.Sums):
			out.Number += x.Number
		default:
			out.Number = max(out.Number, x.Number)
		}
		numbers++
		out.Bound, out.Over, out.Sample = max(out.Bound, x.Bound), out.Over+x.Over, x.Sample
	}
	switch {
	case out.NA != "":
		out = plan.Value{NA: out.NA, Flags: out.Flags}
	case numbers == 0 && why == "":
		return out, false
	case numbers == 0:
		out.NA = why
	}
	if out.NA == "" && numbers > 1 && (!v.Traits.Has(plan.Sums) && !v.Traits.Has(plan.Maxima) || v.Rate() && noRates) {
		out = plan.Value{NA: naEachGroup, Flags: out.Flags}
	}
	if metric, is := plan.MetricOf(v.Name); is {
		flags := out.Flags
		if out = groups[0].Values[v.Name]; out.NA == "" && (sideBySide ||
			slices.ContainsFunc(metrics.All(), func(f drivers.MetricInfo) bool { return f.OfTask && f.Name == metric })) {
			out = plan.Value{NA: naEachGroup, Flags: flags}
		}
	}
	return out, true
}

// apart reports whether the rates of groups cover different times. Their sum was then never reached.
func apart(groups []plan.Outcome) bool {
	shortest, longest := groups[0].Measured, groups[0].Measured
	for _, g := range groups {
		shortest, longest = min(shortest, g.Measured), max(longest, g.Measured)
	}
	return float64(longest-shortest) > Tolerance*float64(longest)
}
