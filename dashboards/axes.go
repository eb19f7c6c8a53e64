package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

const theBroker = theRun + " and r.broker == ${broker:doublequote}"

// acrossAxis is a table of a field: one row per value of the chosen axis, in the order of the matrix, and one column
// per combination of the other axes.
func acrossAxis(field string) string {
	return `import "strings"

axis = strings.replaceAll(v: ${axis:doublequote}, t: "axis_", u: "")

` + outcomes(theBroker) + sound + `values = outcomes
  |> filter(fn: (r) => ` + field + ` and exists r[${axis:doublequote}])
` + usable + `  |> toFloat()
  |> map(fn: (r) => ({_time: r._time, _value: r._value, cell: r.cell, x: r[${axis:doublequote}]}))
  |> group(columns: ["cell", "x"])

medians = values
  |> ` + middle + `
  |> group()
  |> drop(columns: ["_time"])

first = values
  |> min(column: "_time")
  |> group()
  |> keep(columns: ["cell", "_time"])

named = join(tables: {v: join(tables: {v: medians, f: first}, on: ["cell"]), n: names}, on: ["cell"])

named
  |> map(fn: (r) => ({r with series: strings.trimSpace(v: strings.replaceAll(v: " " + r.name, t: " " + axis + "=" + r.x, u: ""))}))
  |> map(fn: (r) => ({_time: r._time, _value: r._value, x: r.x, series: if r.series == "" then "all" else r.series}))
  |> sort(columns: ["_time"])
  |> pivot(rowKey: ["x"], columnKey: ["series"], valueColumn: "_value")
`
}

// axes is the dashboard of one broker along an axis of the matrix.
func axes() *dashboard.DashboardBuilder {
	run := aRun("run", "Run", "runs with outcomes in the time range, latest first", "")
	d := base("One broker across axes", "broker",
		"Values of a broker along an axis of the matrix. Values are medians over repetitions, as in the tables.").
		Time("now-2d", "now").WithVariable(run).
		WithVariable(chosen("broker", "Broker", "brokers of the run", ofRun("lockstep_outcome")+`  |> filter(fn: (r) => r._field == "agents")
`+distinct("broker", "false"))).
		WithVariable(chosen("axis", "Axis", "axes of the run's cells of this broker, and the mode", `import "influxdata/influxdb/schema"
import "strings"

schema.tagKeys(bucket: v.defaultBucket, predicate: (r) => r._measurement == "lockstep_outcome" and `+theBroker+`, start: v.timeRangeStart, stop: v.timeRangeStop)
  |> filter(fn: (r) => r._value == "mode" or strings.hasPrefix(v: r._value, prefix: "axis_"))
  |> keep(columns: ["_value"])
`)).
		WithVariable(aValue())
	chart := func(title, doc, unit, field string) builder {
		return columns(look{title: title, doc: doc +
			" One group of bars per value of the axis, in the order of the matrix; one bar per combination of the other axes.", unit: unit, width: 12, height: 11,
			query: acrossAxis(field)}, "x")
	}
	return withAll(d,
		chart("${value} by ${axis}", "The chosen value.", count, theValue),
		grid(look{title: "${value} by ${axis}: table", doc: "The same values as a table.", unit: count, width: 12,
			height: 11,
			query:  acrossAxis(theValue), names: [][2]string{{"x", "${axis}"}}}),
		chart("Publish rate by ${axis}", "Messages published per second.", perSecond, `r._field == "publish.rate"`),
		chart("Consume rate by ${axis}", "Messages received per second, over all subscriptions.", perSecond,
			`r._field == "consume.rate"`),
		chart("Publish latency, p99, by ${axis}", "From the publish call to the confirm; no value in fire-and-forget.", seconds,
			`r._field == "publish.p99"`),
		chart("End-to-end latency, p99, by ${axis}",
			"From the intended send time (closed loop: publish call) to the delivery; no value if consumers did not keep up."+
				boundDoc, seconds, `r._field == "e2e.p99"`),
		chart("CPU of the broker by ${axis}", "Mean over the measurement, if the broker or its hosts report it.", cores,
			`r._field == "broker.cpu.mean"`),
		chart("Memory of the broker by ${axis}", "Median over the measurement, if the broker reports it.", bytesIEC,
			`r._field == "broker.memory.p50"`),
		grid(look{title: "Outcomes", doc: flagsDoc, unit: none, width: 24, height: 11,
			query: outcomes(theBroker) + everything(shownFields...) +
				"  |> sort(columns: [\"name\", \"repetition\"])\n",
			names: shownNames, units: shownUnits}))
}
