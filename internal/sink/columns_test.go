package sink

import (
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// Measurement describes one kind of point.
type measurement struct {
	Name   string
	Doc    string
	Time   string // meaning of a point's time
	Tags   []column
	Fields []column
}

// Column describes a tag or a field. A Key that ends with * stands for all keys with this prefix.
type column struct {
	Key  string
	Type string // of a field: "int", "float" or "string"
	Unit string
	Doc  string
}

// schema describes all points that a Stream returns. dashboards/SCHEMA.md is generated from it.
func schema() []measurement {
	second := "the start of the second"
	return []measurement{
		{measureWindow,
			"Metrics of one agent in one second: one point for messages that were due inside the measurement and one for the others. " +
				"A field exists if it belongs to the agent's role or is not zero; a distribution exists if it has samples.",
			second, tags(agentTag, roleTag, groupTag, phaseTag, measuredTag), windowColumns()},
		{measureTotal, "Sum over all agents of the task: counters and rates are added, distributions are merged.",
			second, tags(phaseTag, measuredTag), append(windowColumns(), column{expectedKey, "int", "count",
				"expected deliveries of the sent messages, over all subscriptions, without returned and rejected messages; its running total minus that of unique is the backlog. Only with consumers; without publishers it equals unique"})},
		{measureOutcome, "Result of a task: the values of the tables. A value without a number has no field.",
			"the end of the task", tags(column{Key: "verdict", Doc: "valid, invalid or unknown"}), outcomeColumns()},
		{measureGroup,
			"Result of one workload group of a task whose cell has groups; lockstep_outcome has the result of all groups together.",
			"the end of the task", tags(groupTag, column{Key: "verdict", Doc: "valid, invalid or unknown"}),
			groupColumns()},
		{measureAgent,
			"Resources used since the last sample, about once per second, by the agent's process and by the broker's processes. An observer reports only the latter.",
			"the sample", tags(agentTag, roleTag, groupTag), []column{
				{"cpu", "float", "cores", "processor time of the agent's process, user and system"},
				{"rss", "int", "bytes", "resident memory of the agent's process"},
				{"spin", "float", "cores", "upper bound of the part of cpu that pacing spent polling the clock"},
				{"waited", "float", "ratio",
					"CPU wait: share of their runnable time for which threads of the process waited for a CPU"},
				{"broker.cpu", "float", "cores",
					"processor time of the broker's processes, if they run on this host and the matrix names them (process) or the agent observes them"},
				{"broker.rss", "int", "bytes", "resident memory of these processes"},
				{"broker.disk.read", "float", "bytes/s",
					"disk reads of these processes; absent if the host does not report them"},
				{"broker.disk.write", "float", "bytes/s",
					"disk writes of these processes; absent if the host does not report them"},
				{"broker.net.in", "float", "bytes/s",
					"received by all interfaces of their network namespaces, with loopback"},
				{"broker.net.out", "float", "bytes/s", "sent by these interfaces"},
			}},
		{measureBroker, "Metrics that the broker reports; the driver determines which.",
			"the sample", tags(column{Key: "node", Doc: "the member of a cluster; absent for metrics of the whole broker"},
				column{Key: "group",
					Doc: "the workload group of the agent that queried the broker, if the cell has groups; queue metrics are those of its queues"}), metricColumns()},
		{measureEvent, "Events, for annotations.",
			"the time of the event, or its start", eventTags(), []column{
				{"text", "string", "", "description for people, without secrets"},
				{"seconds", "float", "s", "duration (gap)"},
				{"tasks", "int", "", "run-start: number of tasks; the maximum if cells are repeated until a value is known well enough"},
				{"reason", "string", "", "run-stop: done, interrupted, failed, no-agents"},
			}},
	}
}

var (
	agentTag = column{Key: "agent", Doc: "name of the agent"}
	roleTag  = column{Key: "role", Doc: "publisher, consumer or both; of lockstep_agent also observer"}
	groupTag = column{Key: "group", Doc: "the workload group of the agent, if the cell has groups"}
	phaseTag = column{Key: "phase",
		Doc: "phase of the second: warm-up, measure or drain (with publishers.count: drain only after the limit)"}
	measuredTag = column{Key: "measured",
		Doc: "true: messages that were due inside the measurement; false: other messages"}
)

// runTags returns the tags of every point.
func runTags() []column {
	return []column{{Key: "run", Doc: "id of the run"}, {Key: "matrix", Doc: "name of the matrix"}}
}

// tags returns the tags of every task, and additional ones.
func tags(more ...column) []column {
	return append(append(runTags(),
		column{Key: "cell",
			Doc: "id of the cell, equal in all runs of a workload with the same broker name"},
		column{Key: "repetition", Doc: "from 1"},
		column{Key: "attempt",
			Doc: "from 1; higher if a task was interrupted and repeated. The outcome has the number of the attempt that counts"},
		column{Key: "broker", Doc: "name of the broker in the matrix"},
		column{Key: "driver", Doc: "name of the driver"},
		column{Key: "mode", Doc: "publish mode; \"several\" if groups differ"},
		column{Key: "axis_*", Doc: "value of the cell on each other axis, by the name of the axis"},
	), more...)
}

func eventTags() []column {
	all := tags(
		column{Key: "kind",
			Doc: "run-start, run-stop, task-start, task-stop; events of connections: closed, gap, blocked, unblocked, rebalanced, notice, error, agent-lost, drain-cut and others. Results of ctl history digest: worse, better, rule"},
		column{Key: "agent", Doc: "the agent of the event"})
	for i := range all {
		if i >= len(runTags()) && all[i].Key != "kind" && all[i].Key != "agent" {
			all[i].Doc += ". Absent for events of the run itself"
		}
	}
	return all
}

func windowColumns() []column {
	var all []column
	for _, c := range record.Counters() {
		f := counterFieldOf(c)
		if f.nanos {
			all = append(all, column{f.key, "float", "s", f.doc})
		} else {
			all = append(all, column{f.key, "int", unitOf(f.key), f.doc})
		}
	}
	for _, r := range rates {
		all = append(all, column{r.key, "float", string(plan.PerSecond),
			counterFieldOf(r.counter).key + " divided by the length of the second; the last second of the measurement may be shorter"})
	}
	for _, s := range record.AllSeries() {
		f := seriesFieldOf(s)
		all = append(all, column{f.key + ".count", "int", "samples", f.doc + ": samples"})
		for _, q := range plan.Quantiles() {
			all = append(all, column{f.key + "." + q.Name, "float", "s", f.doc})
		}
		all = append(all, column{f.key + ".negative", "int", "samples",
			f.doc + ": samples below zero, in no quantile"})
	}
	return all
}

func unitOf(key string) string {
	if strings.HasSuffix(key, ".bytes") {
		return "bytes"
	}
	return "count"
}

func outcomeColumns() []column {
	var all []column
	for _, v := range plan.Values() {
		unit, doc := string(v.Unit), v.Doc
		if v.Unit == plan.Text {
			unit, doc = string(plan.PerSecond), "the publish rate; flags show whether consumers kept up"
		}
		all = append(all, column{v.Name, "float", unit, doc})
	}
	return append(all,
		column{"broker.*", "float", "", "statistics of metrics that only the driver declares (ctl drivers NAME)"},
		column{"*" + boundSuffix, "float", "",
			"error bound of the value with that name, in both directions, because of clock offsets or the resolution of one second. Absent if negligible"},
		column{"*" + overSuffix, "float", "",
			"lower bound of the value with that name, which then has no field. There are too few samples, or it depends on messages that were not sent or delivered"},
		column{"measured", "float", "s", "duration to which the rates refer"},
		column{"agents", "int", "count", "number of agents of the task"},
		column{"warnings", "int", "count", "number of warnings; their texts are in the record"},
		column{"name", "string", "", "the cell as text: its value on every axis, spelled as in tags"},
		column{"flags", "string", "", "flags of all values, comma-separated"},
		column{"reasons", "string", "", "reasons if the verdict is not valid"},
		column{"label", "string", "", "meaning of a confirm"},
		column{"product", "string", "", "product name that the broker reports; side-by-side brokers: in lockstep_group"},
		column{"version", "string", "", "version that the broker reports"},
		column{"fingerprint", "string", "", "hash of the tested broker's product, version and settings"},
	)
}

func groupColumns() []column {
	return []column{{"*", "float", "",
		"values, error bounds and lower bounds, with the same names as in lockstep_outcome"},
		{"flags", "string", "", "flags of all values, comma-separated"},
		{"reasons", "string", "", "reasons if the verdict is not valid"},
		{"label", "string", "", "meaning of a confirm"},
		{"product", "string", "", "of side-by-side brokers: product name that the group's broker reports"},
		{"version", "string", "", "of side-by-side brokers: its version"},
		{"fingerprint", "string", "", "of side-by-side brokers: hash of its product, version and settings"}}
}

func metricColumns() []column {
	var all []column
	for _, f := range drivers.SharedMetrics() {
		if !slices.Contains(plan.ProcessMetrics(), f.Name) {
			all = append(all, column{f.Name, "float", f.Unit, f.Doc})
		}
	}
	return append(all, column{"*", "float", "", "any other metric that the driver declares (ctl drivers NAME), in its unit"})
}
