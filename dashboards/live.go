package main

import (
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// ofRun begins a query for points of the chosen run.
func ofRun(measurement string) string {
	return inRange + `  |> filter(fn: (r) => r._measurement == "` + measurement + `" and r.run == ${run:doublequote})
`
}

// rates adds the messages of the measurement and those outside it, per second, and averages the existing seconds.
// Pauses between tasks are gaps, not zeros.
const rates = perSecondOf + `  |> aggregateWindow(every: v.windowPeriod, fn: mean, createEmpty: false, timeSrc: "_start")
`

const perSecondOf = `  |> group(columns: ["_measurement", "_field"])
  |> pivot(rowKey: ["_time"], columnKey: ["measured"], valueColumn: "_value")
  |> map(fn: (r) => ({_measurement: r._measurement, _field: r._field, _time: r._time,
    _value: (if exists r["true"] then r["true"] else 0.0) + (if exists r["false"] then r["false"] else 0.0)}))
`

// worst is the highest second of each interval, because quantiles cannot be averaged.
const worst = `  |> aggregateWindow(every: v.windowPeriod, fn: max, createEmpty: false, timeSrc: "_start")
`

const rateFields = `(r._field == "publish.rate" or r._field == "confirm.rate" or r._field == "consume.rate")`

// sinceBefore is the time range and the six hours before it, for counts since the start of a task.
const sinceBefore = `import "experimental"

from(bucket: v.defaultBucket)
  |> range(start: experimental.subDuration(d: 6h, from: v.timeRangeStart), stop: v.timeRangeStop)
`

// waiting is the number of messages that were published and not yet received, over all subscriptions.
const waiting = sinceBefore + `  |> filter(fn: (r) => r._measurement == "lockstep_total" and r.run == ${run:doublequote} and (r._field == "expected" or r._field == "unique"))
  |> group(columns: ["_measurement", "cell", "repetition", "attempt", "_field"])
  |> aggregateWindow(every: v.windowPeriod, fn: sum, createEmpty: false, timeSrc: "_start")
  |> map(fn: (r) => ({r with _value: if r._field == "unique" then -r._value else r._value}))
  |> group(columns: ["_measurement", "cell", "repetition", "attempt"])
  |> aggregateWindow(every: v.windowPeriod, fn: sum, createEmpty: false, timeSrc: "_start")
  |> cumulativeSum()
  |> filter(fn: (r) => r._time >= v.timeRangeStart)
  |> group(columns: ["_measurement"])
  |> sort(columns: ["_time"])
  |> set(key: "_field", value: "waiting")
  |> keep(columns: ["_time", "_value", "_field", "_measurement"])
`

// events are rows with the columns of annotations and tables of events.
const events = `  |> map(fn: (r) => ({_time: r._time, text: r._value, tags: r.kind, agent: if exists r.agent then r.agent else "", cell: if exists r.cell then r.cell else ""}))
  |> group()
`

// eventsOfRun are the annotations of a run, with each event of a connection.
func eventsOfRun(kinds string) string {
	return ofRun("lockstep_event") + `  |> filter(fn: (r) => r._field == "text" and ` + kinds + `)
` + events
}

var (
	taskKinds  = orList("kind", "run-start", "run-stop", "task-start", "task-stop")
	foundKinds = orList("kind", "worse", "better", "rule") // findings of ctl history digest
	linkKinds  = "not " + taskKinds + " and not " + foundKinds
)

// brokerMetrics are fields of lockstep_broker, with one series per node and workload group.
func brokerMetrics(fields ...string) string {
	return byNodes(`r._measurement == "lockstep_broker" and ` + orList("_field", fields...))
}

// eitherSource combines metrics that the broker reports, by node, and metrics of its processes, by agent.
func eitherSource(ofBroker, ofHost string) string {
	return byNodes(`(r._measurement == "lockstep_broker" and r._field == "` + ofBroker +
		`" or r._measurement == "lockstep_agent" and r._field == "` + ofHost + `")`)
}

func byNodes(filter string) string {
	return inRange + `  |> filter(fn: (r) => r.run == ${run:doublequote} and ` + filter + `)
  |> toFloat()
  |> map(fn: (r) => ({r with node: if exists r.node then r.node else if exists r.agent then "seen by " + r.agent else r.broker}))
  |> map(fn: (r) => ({r with node: if exists r.group and r._measurement == "lockstep_broker" then r.node + ", group " + r.group else r.node}))
  |> group(columns: ["_measurement", "_field", "broker", "node"])
  |> aggregateWindow(every: v.windowPeriod, fn: max, createEmpty: false, timeSrc: "_start")
  |> keep(columns: ["_time", "_value", "_field", "_measurement", "node"])
`
}

func perAgent(measurement, fields, fn string) string {
	return ofRun(measurement) + `  |> filter(fn: (r) => ` + fields + `)
  |> group(columns: ["_measurement", "_field", "agent"])
  |> aggregateWindow(every: v.windowPeriod, fn: ` + fn + `, createEmpty: false, timeSrc: "_start")
`
}

const byAgent, byNode = "${__field.labels.agent}", "${__field.name} · ${__field.labels.node}"

// live is the dashboard of a run in progress.
func live() *dashboard.DashboardBuilder {
	d := base("Live run", "live",
		"The current state of a run. The metrics of a second reach InfluxDB two to three seconds after it.").
		Refresh("5s").Time("now-15m", "now").
		WithVariable(chosen("run", "Run", "runs with points in the time range, latest first", inRange+`  |> filter(fn: (r) => r._measurement == "lockstep_event" and r._field == "text")
`+distinct("run", "true"))).
		WithVariable(chosen("metric", "Broker metric", "metrics that the brokers of the run report, also those that only a driver declares", ofRun("lockstep_broker")+distinct("_field", "false"))).
		Annotation(event("Tasks", sky, eventsOfRun(taskKinds))).
		Annotation(event("Events of connections and brokers", orange, eventsOfRun(linkKinds)))
	withAll(d, nowPanels()...)
	d.WithRow(dashboard.NewRowBuilder("Load"))
	withAll(d, loadPanels()...)
	d.WithRow(dashboard.NewRowBuilder("Agents"))
	withAll(d, agentPanels()...)
	d.WithRow(dashboard.NewRowBuilder("Broker"))
	withAll(d, brokerPanels()...)
	d.WithRow(dashboard.NewRowBuilder("What happened"))
	return withAll(d, grid(look{title: "Events", doc: "Events of the time range, latest first.", unit: none, width: 24,
		height: 9,
		query: eventsOfRun("true") + `  |> sort(columns: ["_time"], desc: true)
  |> limit(n: 200)
`, names: [][2]string{{"_time", "time"}, {"tags", "kind"}}}))
}

// nowPanels is the row of numbers.
func nowPanels() []builder {
	counted := func(name, filter, value string) string {
		return strings.Replace(sinceBefore, "6h", "14d", 1) + `  |> filter(fn: (r) => ` + filter + ` and r.run == ${run:doublequote})
` + value + `  |> keep(columns: ["_value"])
  |> rename(columns: {_value: "` + name + `"})
`
	}
	return []builder{
		number(look{title: "Tasks", doc: "Repetitions of cells: with an outcome, and in total.",
			unit: none, width: 4, height: 4, decimals: new(0.0),
			query: counted("done", `r._measurement == "lockstep_outcome" and r._field == "agents"`,
				"  |> group()\n  |> count()\n"),
			query2: counted("of", `r._measurement == "lockstep_event" and r._field == "tasks"`,
				"  |> group()\n  |> last()\n")}),
		number(look{title: "Publish rate, consume rate", doc: "Of the last second, over all agents.", unit: perSecond, width: 5,
			height: 4, decimals: new(0.0),
			query: ofRun("lockstep_total") +
				"  |> filter(fn: (r) => r._field == \"publish.rate\" or r._field == \"consume.rate\")\n" + perSecondOf +
				"  |> sort(columns: [\"_time\"])\n  |> last()\n",
			names: [][2]string{{"publish.rate", "sent"}, {"consume.rate", "received"}}}),
		number(look{title: "Backlog",
			doc: "Messages published minus messages received, over all subscriptions, without rejected and returned messages.", unit: count, width: 4, height: 4,
			query: waiting + "  |> last()\n"}),
		number(look{title: "End-to-end latency, p99",
			doc: "Of the last second. From the intended send time (closed loop: publish call) to the delivery." + boundDoc, unit: seconds, width: 4, height: 4,
			query: ofRun("lockstep_total") +
				"  |> filter(fn: (r) => r.measured == \"true\" and r._field == \"e2e.p99\")\n  |> group(columns: [\"_measurement\", \"_field\"])\n  |> sort(columns: [\"_time\"])\n  |> last()\n"}),
		grid(look{title: "Latest tasks", doc: "Their verdicts, latest first.", unit: none, width: 7, height: 4,
			query: ofRun("lockstep_event") + `  |> filter(fn: (r) => r._field == "text" and (r.kind == "task-stop" or r.kind == "task-start"))
  |> group()
  |> sort(columns: ["_time"], desc: true)
  |> limit(n: 20)
  |> rename(columns: {_value: "text"})
  |> keep(columns: ["_time", "text"])
`, names: [][2]string{{"_time", "time"}}}),
	}
}

func loadPanels() []builder {
	colours := map[string]string{"publish.rate": blue, "confirm.rate": green, "consume.rate": orange,
		"publish.p50": sky, "publish.p99": blue, "e2e.p50": orange, "e2e.p99": red}
	return []builder{
		lines(look{title: "Messages per second",
			doc: "Over all agents, including warm-up and drain. Intervals longer than a second show the mean of their seconds.", unit: perSecond, width: 12, height: 9,
			query:   ofRun("lockstep_total") + "  |> filter(fn: (r) => " + rateFields + ")\n" + rates,
			colours: colours}),
		lines(look{title: "Latency of messages due in the measurement",
			doc:  "publish: from the publish call to the confirm; no value in fire-and-forget. e2e: from the intended send time (closed loop: publish call) to the delivery; it is not meaningful during a backlog. Intervals longer than a second show their worst second." + boundDoc,
			unit: seconds, width: 12, height: 9,
			query: ofRun("lockstep_total") + `  |> filter(fn: (r) => r.measured == "true" and ` + orList("_field", "publish.p50", "publish.p99", "e2e.p50", "e2e.p99") + `)
  |> group(columns: ["_measurement", "_field"])
` + worst, colours: colours}),
		lines(look{title: "Backlog",
			doc:  "Messages published minus messages received since the start of the task (at most six hours before the left edge), over all subscriptions. Rejected and returned messages are excluded. Lost messages remain in it.",
			unit: count, width: 12, height: 8, query: waiting,
			colours: map[string]string{"waiting": red}}),
		bars(look{title: "Errors", doc: "Counts per interval, over all agents.", unit: count,
			width: 12, height: 8,
			query: ofRun("lockstep_total") + `  |> filter(fn: (r) => ` + orList("_field", "publish.errors", "rejected", "unconfirmed", "unroutable", "unsent", "ports.exhausted", "duplicated", "reordered", "corrupt", "reconnects", "nacked") + `)
  |> group(columns: ["_measurement", "_field"])
  |> aggregateWindow(every: v.windowPeriod, fn: sum, createEmpty: false, timeSrc: "_start")
`}),
	}
}

func agentPanels() []builder {
	return []builder{
		lines(look{title: "CPU of agents",
			doc:  "Cores used by the process of the agent. An agent that uses all cores of its host measures itself.",
			unit: cores, width: 8, height: 8, legend: byAgent,
			query: perAgent("lockstep_agent", `r._field == "cpu"`, "mean")}),
		lines(look{title: "Send delay of the load generator, p99",
			doc: "Open loop: delay caused by the agents, without back-pressure of the broker. Intervals longer than a second show their worst second.", unit: seconds, width: 8, height: 8, legend: byAgent,
			query: perAgent("lockstep_window",
				`r._field == "send_delay.p99" and r.measured == "true"`, "max"),
			empty: "no open-loop load in this time range"}),
		grid(look{title: "Agents", doc: "Agents that reported in the time range, and the time of the last report.", unit: none, width: 8,
			height: 8,
			query: ofRun("lockstep_agent") + `  |> filter(fn: (r) => r._field == "cpu" or r._field == "rss")
  |> toFloat()
  |> group(columns: ["agent", "role", "_field"])
  |> sort(columns: ["_time"])
  |> last()
  |> group()
  |> pivot(rowKey: ["agent", "role", "_time"], columnKey: ["_field"], valueColumn: "_value")
  |> sort(columns: ["agent", "_time"])
`, names: [][2]string{{"_time", "last report"}, {"cpu", "processor"}, {"rss", "memory"}}, units: [][2]string{{"cpu", cores}, {"rss", bytesIEC}}}),
	}
}

func brokerPanels() []builder {
	return []builder{
		lines(look{title: "Messages at the broker",
			doc: "Reported by the broker: messages in the queues of the task, unacknowledged messages, and consumer lag. Maximum per interval.", unit: count, width: 8, height: 8, legend: byNode,
			query: brokerMetrics("queue_depth", "unacked", "lag")}),
		lines(look{title: "CPU of the broker",
			doc: "broker.cpu: reported by the host, if the matrix names the processes or an agent observes them. cpu: reported by the broker. Maximum per interval.", unit: cores, width: 8, height: 8, legend: byNode,
			query: eitherSource("cpu", "broker.cpu"),
			empty: "reported neither by the broker nor by a host"}),
		lines(look{title: "Memory of the broker",
			doc:  "memory: reported by the broker. broker.rss: resident memory of its processes, reported by their host.",
			unit: bytesIEC, width: 8, height: 8, legend: byNode,
			query: eitherSource("memory", "broker.rss"),
			empty: "reported neither by the broker nor by a host"}),
		lines(look{title: "Disk and network of the broker's processes",
			doc:  "Bytes that the processes read from and wrote to disks, and bytes on the interfaces of their network namespaces, including loopback. Available if the matrix names the processes or an agent observes them.",
			unit: byteRate, width: 12, height: 8, legend: "${__field.name} · ${__field.labels.agent}",
			query: perAgent("lockstep_agent",
				orList("_field", "broker.disk.read", "broker.disk.write", "broker.net.in", "broker.net.out"), "mean"),
			empty: "no agent observes the broker's processes"}),
		lines(look{title: "Connections, consumers, replicas out of sync",
			doc: "Reported by the broker; for all of its users if it does not distinguish them.", unit: count, width: 12,
			height: 8, legend: byNode,
			query: brokerMetrics("connections", "channels", "consumers", "under_replicated")}),
		lines(look{title: "Broker metric ${metric}",
			doc: "Any metric that the broker reports, in the unit that its driver declares (ctl drivers NAME). Maximum per interval.", unit: none, width: 24, height: 8, legend: byNode,
			query: byNodes(`r._measurement == "lockstep_broker" and r._field == ${metric:doublequote}`)}),
	}
}
