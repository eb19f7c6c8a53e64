package main

import (
	"fmt"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
)

// scheduledRuns is the number of earlier runs with which a run is compared.
const scheduledRuns = 7

const theCells = theMatrix + " and contains(value: r.cell, set: [${cell:doublequote}])"

// history defines one row per cell and run: the median of a field over the usable repetitions, at the time of the run's
// first outcome.
func history(field string) string {
	return outcomes(theCells) + sound + `values = outcomes
  |> filter(fn: (r) => ` + field + `)
` + usable + `  |> toFloat()

middle = values
  |> group(columns: ["cell", "run"])
  |> ` + middle + `
  |> group()
  |> keep(columns: ["cell", "run", "_value"])

when = values
  |> group(columns: ["run"])
  |> min(column: "_time")
  |> group()
  |> keep(columns: ["run", "_time"])

history = join(tables: {n: names, v: join(tables: {v: middle, t: when}, on: ["run"])}, on: ["cell"])
  |> group(columns: ["cell"])
  |> sort(columns: ["_time"])

`
}

// overScheduledRuns are the series of a field.
func overScheduledRuns(field string) string {
	return history(field) + `history
  |> map(fn: (r) => ({_time: r._time, _value: r._value, _field: "value", _measurement: "history", name: r.name}))
  |> group(columns: ["_measurement", "_field", "name"])
  |> sort(columns: ["_time"])
`
}

// regressions are the cells and runs in which the chosen value is worse than the median of the earlier runs. For rates
// and capacities, lower is worse; for other values, higher. A rise from zero has no percentage and is always a
// regression. A cell with fewer than three earlier runs is not compared.
func regressions() string {
	var before []string
	for k := 1; k <= scheduledRuns; k++ {
		before = append(before, fmt.Sprintf("earlier(by: %d)", k))
	}
	return `import "strings"

` + history(theValue) + `numbered = history
  |> map(fn: (r) => ({r with at: 1}))
  |> cumulativeSum(columns: ["at"])

earlier = (by) => numbered
  |> map(fn: (r) => ({cell: r.cell, at: r.at + by, _value: r._value}))

before = union(tables: [` + strings.Join(before, ", ") + `])
  |> group(columns: ["cell", "at"])

past = join(tables: {m: before |> ` + middle + ` |> group() |> rename(columns: {_value: "past"}), n: before |> count() |> group() |> rename(columns: {_value: "runs"})}, on: ["cell", "at"])
  |> filter(fn: (r) => r.runs >= 3)

falls = strings.hasSuffix(v: ${value:doublequote}, suffix: ".rate") or ${value:doublequote} == "capacity"

compared = join(tables: {now: numbered |> group(), past: past}, on: ["cell", "at"])

union(tables: [
  compared |> filter(fn: (r) => r.past == 0.0 and r._value > 0.0 and not falls)
    |> drop(columns: ["at"]),
  compared
    |> filter(fn: (r) => r.past > 0.0)
    |> map(fn: (r) => ({r with change: (r._value / r.past - 1.0) * 100.0}))
    |> filter(fn: (r) => if falls then r.change < -1.0 * float(v: ${worse:doublequote}) else r.change > float(v: ${worse:doublequote}))
    |> drop(columns: ["at"]),
])
  |> group()
`
}

func trend() *dashboard.DashboardBuilder {
	d := base("Trend of a matrix", "trend",
		"A matrix over its scheduled runs. A mark is a cell that was worse than the median of the seven runs before it by more than the chosen percentage. A rise from zero is also marked. This is not a test of significance.").
		Time("now-30d", "now").
		WithVariable(chosen("matrix", "Matrix", "name of the matrix", inRange+`  |> filter(fn: (r) => r._measurement == "lockstep_outcome" and r._field == "agents")
`+distinct("matrix", "false"))).
		WithVariable(aValue()).
		WithVariable(fixed("worse", "Worse by, %",
			"minimum difference from the median of the seven runs before, for a mark",
			[]string{"10", "5", "20", "50"})).
		WithVariable(chosen("cell", "Cell", "cells of the matrix", outcomes(theMatrix)+`names
  |> map(fn: (r) => ({_value: r.name + " [" + r.cell + "]"}))
  |> sort()
`).Regex(`/^(?<text>.*) \[(?<value>[^\]]+)\]$/`).Multi(true).IncludeAll(true).
			Current(dashboard.VariableOption{Selected: new(true),
				Text:  dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}},
				Value: dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}}})).
		Annotation(event("Worse than the seven runs before", red, regressions()+`  |> map(fn: (r) => ({_time: r._time, text: r.name + ": ${value} " + string(v: r._value) + ", before " + string(v: r.past), tags: "worse"}))
`)).
		Annotation(event("Found by ctl history digest", orange, inRange+`  |> filter(fn: (r) => r._measurement == "lockstep_event" and r._field == "text" and `+foundKinds+` and `+theMatrix+`)
  |> map(fn: (r) => ({_time: r._time, text: r.kind + ": " + r._value, tags: r.kind}))
  |> group()
`)).
		Annotation(event("Not valid", grey, inRange+`  |> filter(fn: (r) => r._measurement == "lockstep_outcome" and r._field == "reasons" and `+theMatrix+`)
  |> map(fn: (r) => ({_time: r._time, text: r.verdict + ": " + r._value, tags: "verdict"}))
  |> group()
`))
	points := func(l look) builder {
		return lines(l).ShowPoints(common.VisibilityModeAlways).PointSize(6).SpanNulls(common.BoolOrFloat64{Bool: new(true)})
	}
	const byName = "${__field.labels.name}"
	return withAll(d,
		points(look{title: "${value} over scheduled runs",
			doc: "Median over the repetitions of a cell, as in the tables of the run.", unit: count, width: 24,
			height: 12, legend: byName,
			query: overScheduledRuns(theValue)}),
		grid(look{title: "Worse than the seven runs before",
			doc: "Runs in which ${value} of a cell was worse than the median of the seven runs before by more than ${worse} %, latest first. At least three earlier runs are required. A rise from zero has no percentage.", unit: count, width: 24, height: 9,
			query: regressions() + `  |> keep(columns: ["_time", "run", "name", "_value", "past", "runs", "change"])
  |> rename(columns: {_value: "value"})
  |> sort(columns: ["_time"], desc: true)
`, units: [][2]string{{"change", percent}, {"runs", none}}, names: [][2]string{{"_time", "ended"}, {"name", "cell"}, {"past", "median before"}, {"runs", "of runs"}}, empty: "no run was worse"}),
		points(look{title: "Publish rate over scheduled runs", doc: "Messages published per second.", unit: perSecond,
			width: 12, height: 10, legend: byName,
			query: overScheduledRuns(`r._field == "publish.rate"`)}),
		points(look{title: "End-to-end latency, p99, over scheduled runs",
			doc: "From the intended send time (closed loop: publish call) to the delivery; no point if consumers did not keep up." + boundDoc, unit: seconds, width: 12, height: 10, legend: byName,
			query: overScheduledRuns(`r._field == "e2e.p99"`)}),
		bars(look{title: "Outcomes by verdict", doc: "Of all cells of each run of the matrix.", unit: none, width: 12,
			height: 9, legend: "${__field.labels.verdict}",
			colours: map[string]string{"valid": green, "invalid": red, "unknown": grey}, query: outcomes(theMatrix) + `agents = outcomes |> filter(fn: (r) => r._field == "agents")

counts = agents |> group(columns: ["run", "verdict"]) |> count() |> group()
when = agents |> group(columns: ["run"]) |> min(column: "_time") |> group() |> keep(columns: ["run", "_time"])

join(tables: {c: counts, t: when}, on: ["run"])
  |> map(fn: (r) => ({_time: r._time, _value: r._value, _field: "outcomes", _measurement: "history", verdict: r.verdict}))
  |> group(columns: ["_measurement", "_field", "verdict"])
  |> sort(columns: ["_time"])
`}),
		versions(),
		grid(look{title: "Runs", doc: "Latest first.", unit: none, width: 24, height: 9, query: outcomes(theMatrix) + `agents = outcomes |> filter(fn: (r) => r._field == "agents")

counts = agents |> group(columns: ["run", "verdict"]) |> count() |> group() |> pivot(rowKey: ["run"], columnKey: ["verdict"], valueColumn: "_value")
when = agents |> group(columns: ["run"]) |> min(column: "_time") |> group() |> keep(columns: ["run", "_time"])

join(tables: {c: counts, t: when}, on: ["run"])
  |> sort(columns: ["_time"], desc: true)
`, names: [][2]string{{"_time", "first outcome"}}}))
}

// versions has one band per broker. Its colour changes with the version and the settings.
func versions() builder {
	return statetimeline.NewPanelBuilder().Title("Systems under test").Description("Version reported by each broker. A change of the fingerprint, which means different settings, starts a new band.").
		Datasource(source()).Span(12).Height(9).NoValue("no broker reported a version").DisplayName("${__field.labels.broker}").
		ShowValue(common.VisibilityModeAuto).MergeValues(true).RowHeight(0.8).
		WithTarget(ask("A", "tested = "+systems(theMatrix)+`
band = (field) => tested |> filter(fn: (r) => r._field == field) |> keep(columns: ["_time", "broker", "_value"]) |> group(columns: ["broker"])

join(tables: {p: band(field: "version"), f: band(field: "fingerprint")}, on: ["_time", "broker"])
  |> map(fn: (r) => ({_time: r._time, _value: r._value_p + " (" + r._value_f + ")", _field: "version", _measurement: "history", broker: r.broker}))
  |> group(columns: ["_measurement", "_field", "broker"])
  |> sort(columns: ["_time"])
`))
}
