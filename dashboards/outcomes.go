package main

import (
	"fmt"
	"strings"
)

// outcomes defines the inputs of a query in Flux: outcomes, which filter selects, and names, the names of their cells.
func outcomes(filter string) string {
	return fmt.Sprintf(`outcomes = %s  |> filter(fn: (r) => r._measurement == "lockstep_outcome" and %s)

names = outcomes
  |> filter(fn: (r) => r._field == "name")
  |> group(columns: ["cell"])
  |> last()
  |> group()
  |> keep(columns: ["cell", "_value"])
  |> rename(columns: {_value: "name"})

`, inRange, filter)
}

// systems selects the results that describe the tested brokers. Those of side-by-side brokers are in lockstep_group.
func systems(filter string) string {
	return inRange + `  |> filter(fn: (r) => (r._measurement == "lockstep_outcome" or r._measurement == "lockstep_group") and ` +
		filter + `)
`
}

// sound defines the runs and cells with a valid outcome, for usable.
const sound = `sound = outcomes
  |> filter(fn: (r) => r._field == "agents" and r.verdict == "valid")
  |> group()
  |> map(fn: (r) => ({_value: r.run + " " + r.cell}))
  |> distinct()
  |> findColumn(fn: (key) => true, column: "_value")

`

// usable selects the outcomes that tables use: the valid ones of a cell, or else the invalid ones. Failed outcomes are
// excluded.
const usable = `  |> filter(fn: (r) => r.verdict == "valid" or r.verdict == "invalid" and not contains(value: r.run + " " + r.cell, set: sound))
`

// middle is the median, as in the tables.
const middle = `median(method: "exact_mean")`

const (
	theRun    = "r.run == ${run:doublequote}"
	theMatrix = "r.matrix == ${matrix:doublequote}"
	theValue  = "r._field == ${value:doublequote}"
)

// medians is a table with one row per cell and one column per value: the median of the usable repetitions.
func medians(fields ...string) string {
	return sound + `medians = outcomes
  |> filter(fn: (r) => ` + orList("_field", fields...) + `)
` + usable + `  |> toFloat()
  |> group(columns: ["cell", "_field"])
  |> ` + middle + `
  |> group()
  |> keep(columns: ["cell", "_field", "_value"])

join(tables: {v: medians, n: names}, on: ["cell"])
  |> pivot(rowKey: ["name"], columnKey: ["_field"], valueColumn: "_value")
  |> sort(columns: ["name"])
`
}

// everything is a table with one row per outcome and one column per field that exists.
func everything(fields ...string) string {
	keep := append([]string{"_time", "repetition", "verdict"}, fields...)
	return `outcomes
  |> filter(fn: (r) => ` + orList("_field", fields...) + `)
  |> pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value")
  |> group()
  |> keep(columns: ["` + strings.Join(keep, `", "`) + `"])
`
}

// shownFields are the columns of tables of outcomes.
var shownFields = []string{"name", "publish.rate", "consume.rate", "publish.p50", "publish.p99", "e2e.p50",
	boundOf("e2e.p50"), "e2e.p99", boundOf("e2e.p99"), "lost", "duplicated", "reordered", "flags", "reasons",
	"measured"}

var shownUnits = [][2]string{
	{"publish.rate", perSecond}, {"consume.rate", perSecond}, {"publish.p50", seconds}, {"publish.p99", seconds},
	{"e2e.p50", seconds}, {"e2e.p99", seconds},
	{boundOf("e2e.p50"), seconds}, {boundOf("e2e.p99"), seconds}, {"lost", count}, {"duplicated", count},
	{"reordered", count}, {"measured", seconds},
}

var shownNames = [][2]string{{"_time", "ended"}, {"name", "cell"}, {boundOf("e2e.p50"), "± e2e.p50"},
	{boundOf("e2e.p99"), "± e2e.p99"}}

// boundOf returns the field with the maximum error of a value from clocks.
func boundOf(value string) string { return value + ".bound" }

// boundDoc describes the bound of panels that do not show it.
const boundDoc = " Between hosts, the clocks add an error of at most ± (e2e.p99.bound in outcomes)."

const flagsDoc = "A value without a number is empty; the tables of the run state the reason. Flags mark unreliable values of the row. End-to-end latency is not meaningful with the flag backlog. ± is the maximum error from the clocks of the hosts; empty: none."
