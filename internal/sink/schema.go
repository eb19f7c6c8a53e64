package sink

import (
	"strings"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// Measurement describes one kind of point.
type Measurement struct {
	Name   string
	Doc    string
	Time   string // meaning of a point's time
	Tags   []Column
	Fields []Column
}

// Column describes a tag or a field. A Key that ends with * stands for all keys with this prefix.
type Column struct {
	Key  string
	Type string // of a field: "int", "float" or "string"
	Unit string
	Doc  string
}

// Schema describes all points that a Stream returns. dashboards/SCHEMA.md is generated from it.
func Schema() []Measurement {
	second := "the beginning of the second"
	return []Measurement{
		{measureWindow,
			"What one agent saw in one second: once for messages that were due inside the measurement and once for the others. " +
				"A field is there if the agent's role has it, or where it is not zero; distributions where there are samples.",
			second, tags(agentTag, roleTag, groupTag, phaseTag, measuredTag), windowColumns()},
		{measureTotal, "The same over all agents of the task: counters and rates added, distributions merged.",
			second, tags(phaseTag, measuredTag), append(windowColumns(), Column{expectedKey, "int", "count",
				"deliveries that the messages sent lead to, over all subscriptions, without what the broker returned or refused: its running total less that of unique is what waits to be received. Where there are consumers"})},
		{measureOutcome, "What came of a task: the values of the tables. A value that has no number has no field.",
			"the end of the task", tags(Column{Key: "verdict", Doc: "valid, invalid or unknown"}), outcomeColumns()},
		{measureGroup,
			"What came of one workload group of a task whose cell has groups, as lockstep_outcome has it of all of them together.",
			"the end of the task", tags(groupTag, Column{Key: "verdict", Doc: "valid, invalid or unknown"}),
			groupColumns()},
		{measureAgent,
			"What an agent's process used of its host since its last sample, about once a second, and what the broker's processes did; an observer tells of these alone.",
			"the sample", tags(agentTag, roleTag, groupTag), []Column{
				{"cpu", "float", "cores", "processor time of the agent's process, user and system"},
				{"rss", "int", "bytes", "resident memory of the agent's process"},
				{"spin", "float", "cores", "of cpu, what pacing spent polling the clock, at most"},
				{"waited", "float", "cores",
					"for how much more the process could have run while its host ran something else"},
				{"broker.cpu", "float", "cores",
					"of the broker's processes, if they run on this host and the matrix names them (process) or the agent observes them"},
				{"broker.rss", "int", "bytes", "resident memory of these processes"},
				{"broker.disk.read", "float", "bytes/s",
					"what they had the kernel read from disks; not there where the host does not tell"},
				{"broker.disk.write", "float", "bytes/s",
					"what they had the kernel write to disks; not there where the host does not tell"},
				{"broker.net.in", "float", "bytes/s",
					"received by all interfaces of the network namespaces that they are in, the loopback included"},
				{"broker.net.out", "float", "bytes/s", "sent by these interfaces"},
			}},
		{measureBroker, "What the broker said of itself; which metrics there are depends on the driver.",
			"the sample", tags(Column{Key: "node", Doc: "the member of a cluster; not there: the whole broker"},
				Column{Key: "group",
					Doc: "the workload group whose agent asked, where the cell has groups: metrics of queues are of that group's"}), metricColumns()},
		{measureEvent, "What happened: for annotations.",
			"when it happened, or began", eventTags(), []Column{
				{"text", "string", "", "what happened, for people, without secrets"},
				{"seconds", "float", "s", "how long it lasted (gap)"},
				{"tasks", "int", "", "run-start: number of tasks; the maximum if cells are repeated until a value is known well enough"},
				{"reason", "string", "", "run-stop: done, interrupted, failed, no-agents"},
			}},
	}
}

// expectedKey is a field of lockstep_total only, as a publishing agent does not know the number of consumers.
const expectedKey = "expected"

var (
	agentTag = Column{Key: "agent", Doc: "name of the agent"}
	roleTag  = Column{Key: "role", Doc: "publisher, consumer or both; of lockstep_agent also observer"}
	groupTag = Column{Key: "group", Doc: "the workload group that the agent belongs to, where the cell has groups"}
	phaseTag = Column{Key: "phase",
		Doc: "where the second lies: warm-up, measure or drain (with publishers.count: drain only after the limit)"}
	measuredTag = Column{Key: "measured",
		Doc: "true: of messages that were due inside the measurement; false: of others"}
)

// runTags returns the tags of every point.
func runTags() []Column {
	return []Column{{Key: "run", Doc: "id of the run"}, {Key: "matrix", Doc: "name of the matrix"}}
}

// tags returns the tags of every task, and additional ones.
func tags(more ...Column) []Column {
	return append(append(runTags(),
		Column{Key: "cell",
			Doc: "id of the cell: the same in every run of the same workload against the broker of that name"},
		Column{Key: "repetition", Doc: "from 1"},
		Column{Key: "attempt",
			Doc: "from 1; more where a task was interrupted and run again: the outcome has that of the attempt that counts"},
		Column{Key: "broker", Doc: "name of the broker in the matrix"},
		Column{Key: "driver", Doc: "name of the driver"},
		Column{Key: "mode", Doc: "how publishers send; \"several\" of groups that differ"},
		Column{Key: "axis_*", Doc: "the cell's value of each other axis, by the axis's name"},
	), more...)
}

func eventTags() []Column {
	all := tags(
		Column{Key: "kind",
			Doc: "run-start, run-stop, task-start, task-stop; what links did: closed, gap, blocked, unblocked, rebalanced, notice, error; agent-lost, drain-cut and the like; worse, better, rule: what ctl digest found"},
		Column{Key: "agent", Doc: "the agent that it happened to"})
	for i := range all {
		if i >= len(runTags()) && all[i].Key != "kind" && all[i].Key != "agent" {
			all[i].Doc += "; not of a run's own events"
		}
	}
	return all
}

func windowColumns() []Column {
	var all []Column
	for _, c := range record.Counters() {
		f := counterFieldOf(c)
		if f.nanos {
			all = append(all, Column{f.key, "float", "s", f.doc})
		} else {
			all = append(all, Column{f.key, "int", unitOf(f.key), f.doc})
		}
	}
	for _, r := range rates {
		all = append(all, Column{r.key, "float", string(plan.PerSecond),
			counterFieldOf(r.counter).key + " by the length of the second; the last of the measurement may be shorter"})
	}
	for _, s := range record.AllSeries() {
		f := seriesFieldOf(s)
		all = append(all, Column{f.key + ".count", "int", "samples", f.doc + ": samples"})
		for _, q := range plan.Quantiles() {
			all = append(all, Column{f.key + "." + q.Name, "float", "s", f.doc})
		}
		all = append(all, Column{f.key + ".negative", "int", "samples",
			f.doc + ": samples below zero, which are in no quantile"})
	}
	return all
}

func unitOf(key string) string {
	if strings.HasSuffix(key, ".bytes") {
		return "bytes"
	}
	return "count"
}

func outcomeColumns() []Column {
	var all []Column
	for _, v := range plan.Values() {
		unit, doc := string(v.Unit), v.Doc
		if v.Unit == plan.Text {
			unit, doc = string(plan.PerSecond), "the rate of sending; whether receiving kept up is in flags"
		}
		all = append(all, Column{v.Name, "float", unit, doc})
	}
	return append(all,
		Column{"*" + boundSuffix, "float", "",
			"how far the truth may be off the value of that name, either way and in its unit, because of the clocks of the hosts or because seconds are all that was seen; not there where that does not matter"},
		Column{"measured", "float", "s", "what the rates are per"},
		Column{"agents", "int", "count", "agents of the task"},
		Column{"warnings", "int", "count", "warnings, which the record has in words"},
		Column{"name", "string", "", "the cell in words: its value on every axis, spelled as in tags"},
		Column{"flags", "string", "", "the flags of any of the values, with commas between them"},
		Column{"reasons", "string", "", "why the verdict is not valid"},
		Column{"label", "string", "", "what a confirm means"},
		Column{"product", "string", "", "what the broker calls itself"},
		Column{"version", "string", "", "the version that it names"},
		Column{"fingerprint", "string", "", "a hash of what was really tested"},
	)
}

func groupColumns() []Column {
	return []Column{{"*", "float", "",
		"the values and how sure they are, by the names that lockstep_outcome has them by"},
		{"flags", "string", "", "the flags of any of the values, with commas between them"},
		{"reasons", "string", "", "why the verdict is not valid"},
		{"label", "string", "", "what a confirm means"}}
}

func metricColumns() []Column {
	var all []Column
	for _, f := range plan.Metrics() {
		all = append(all, Column{f.Name, "float", string(f.Unit), f.Doc})
	}
	return all
}
