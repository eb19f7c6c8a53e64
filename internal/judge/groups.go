package judge

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// naEachGroup is why a cell of several groups has no value that only one group can have.
const naEachGroup = "each group has its own"

// wholeTask is how reasons begin that are not of one group.
const wholeTask = "the task "

// judgeGroups judges each group of a task as a task of its own, and makes one outcome of theirs:
//
//   - Counts, rates and the ledger are sums of what the groups have; a rate is then the sum of rates that were measured at the same time, and
//     none where counts ended the groups' measurements at different times.
//   - What agents use, and the longest time without a link, are the greatest of any group.
//   - Latencies and other times are those of the only group that has them: there is none of several populations together.
//   - What the broker says of itself is said to each group alike, and counts once; what it says of queues is that of each group, and so is
//     everything that contenders, which have brokers of their own, are told.
//   - A flag of any group's value is the value's; the verdict is that of the worst group.
func judgeGroups(t plan.Task, m *record.Merge, f Facts) plan.Outcome {
	whole := &judge{task: t, w: t.Cell.Workload, m: m, f: f}
	whole.f.Agents = parts(m, f)
	var groups []*judge
	for _, part := range t.Parts() {
		g := judgeOne(part, m.Group(part.Group), f.of(part.Group), whole)
		groups = append(groups, g)
		whole.span.windows = max(whole.span.windows, g.span.windows)
		whole.span.sending = max(whole.span.sending, g.span.sending)
		whole.span.receiving = max(whole.span.receiving, g.span.receiving)
	}
	whole.out = groups[0].out
	whole.out.Values, whole.out.Ledger = map[string]plan.Value{}, plan.Ledger{}
	whole.out.Reasons, whole.out.Warnings, whole.out.Limitations, whole.out.Clocks = nil, nil, nil, nil
	whole.out.Agents, whole.out.Events = whole.f.Agents, allEvents(m, whole.f)
	for i, g := range groups {
		whole.out.Measured = max(whole.out.Measured, g.out.Measured)
		whole.join(t.Cell.Workload.Groups[i].Name, g.out)
	}
	for _, v := range plan.Values() {
		whole.combine(v, groups)
	}
	whole.known = whole.tracks()
	whole.starts() // groups start together, too
	whole.skewed()
	if !whole.w.Contends() && whole.looksAtProcesses() {
		whole.processFigures()
	}
	return whole.out
}

// of are the facts of one group.
func (f Facts) of(group string) Facts {
	all := f.Agents
	f.Agents = nil
	for _, a := range all {
		if a.Group == group {
			a.Index = len(f.Agents)
			f.Agents = append(f.Agents, a)
		}
	}
	if s, has := f.Subjects[group]; has {
		f.Subject = s
	}
	return f
}

// join adds the account, the verdict and the words of one group.
func (j *judge) join(name string, g plan.Outcome) {
	o := &j.out
	group := plan.GroupOutcome{Name: name, Verdict: g.Verdict, Values: g.Values, Ledger: g.Ledger, Reasons: g.Reasons, Warnings: g.Warnings}
	if _, own := j.f.Subjects[name]; own {
		group.Subject = &g.Subject
	}
	o.Groups = append(o.Groups, group)
	o.Ledger = sum(o.Ledger, g.Ledger)
	o.Clocks = append(o.Clocks, g.Clocks...)
	o.Cut = max(o.Cut, g.Cut)
	o.Verdict = worse(o.Verdict, g.Verdict)
	named := func(all []string) []string {
		named := slices.Clone(all)
		for i, text := range named {
			if !strings.HasPrefix(text, wholeTask) {
				named[i] = "group " + name + ": " + text
			}
		}
		return named
	}
	if reasons := named(g.Reasons); g.Verdict == plan.Invalid { // what is proven first
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
	o.Reasons = onlyOnce(o.Reasons)
}

func onlyOnce(all []string) (once []string) {
	for _, text := range all {
		if !slices.Contains(once, text) {
			once = append(once, text)
		}
	}
	return once
}

// worse is the verdict that a reader must know of.
func worse(a, b plan.Verdict) plan.Verdict {
	for _, v := range []plan.Verdict{plan.Invalid, plan.Unknown} {
		if a == v || b == v {
			return v
		}
	}
	return plan.Valid
}

// sum adds two accounts.
func sum(a, b plan.Ledger) plan.Ledger {
	return plan.Ledger{
		Sent: a.Sent + b.Sent, Uncertain: a.Uncertain + b.Uncertain, Confirmed: a.Confirmed + b.Confirmed, Rejected: a.Rejected + b.Rejected,
		Unconfirmed: a.Unconfirmed + b.Unconfirmed, Unroutable: a.Unroutable + b.Unroutable, Received: a.Received + b.Received, Lost: a.Lost + b.Lost,
		LostConfirmed: a.LostConfirmed + b.LostConfirmed, Undrained: a.Undrained + b.Undrained, Unknown: a.Unknown + b.Unknown,
		Duplicated: a.Duplicated + b.Duplicated, Reordered: a.Reordered + b.Reordered, Corrupt: a.Corrupt + b.Corrupt, Foreign: a.Foreign + b.Foreign,
	}
}

// combine makes the cell's value of those of its groups.
func (j *judge) combine(v plan.ValueInfo, groups []*judge) {
	var out plan.Value
	numbers, why := 0, ""
	for _, g := range groups {
		x, has := g.out.Values[v.Name]
		if !has {
			continue
		}
		for _, f := range x.Flags {
			if !slices.Contains(out.Flags, f) {
				out.Flags = append(out.Flags, f)
			}
		}
		switch {
		case x.NA == NAUndrained || x.NA == NABacklog: // what is not known of one group is not known of all
			out.NA = x.NA
			continue
		case x.NA != "":
			why = cmp.Or(why, x.NA)
			continue
		case v.Adds():
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
		return // a value of nobody
	case numbers == 0:
		out.NA = why
	}
	if out.NA == "" && numbers > 1 && (!v.Adds() && !v.Greatest() || v.Rate() && apart(groups)) {
		out = plan.Value{NA: naEachGroup, Flags: out.Flags}
	}
	if figure, said := strings.CutPrefix(v.Name, "broker."); said {
		flags := out.Flags
		if out = groups[0].out.Values[v.Name]; out.NA == "" && (ofQueues(figure) || j.w.Contends()) {
			out = plan.Value{NA: naEachGroup, Flags: flags}
		}
	}
	j.out.Values[v.Name] = out
}

// apart reports whether groups were measured in times of their own, as counts end them: rates in them add up to none
// that was there at any time.
func apart(groups []*judge) bool {
	least, most, byCount := groups[0].span.sending, groups[0].span.sending, false
	for _, g := range groups {
		least, most, byCount = min(least, g.span.sending), max(most, g.span.sending), byCount || g.span.byCount
	}
	return byCount && float64(most-least) > Tolerance*float64(most)
}

// ofQueues tells whether a statistic of a figure is of the queues of one topology alone.
func ofQueues(statistic string) bool {
	for _, f := range plan.Figures() {
		if f.OfTask() && strings.HasPrefix(statistic, f.Name+".") {
			return true
		}
	}
	return false
}
