package main

import (
	"fmt"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// inRange is the beginning of every query: the bucket of the data source and the time range of the dashboard.
const inRange = `from(bucket: v.defaultBucket)
  |> range(start: v.timeRangeStart, stop: v.timeRangeStop)
`

// chosen is a variable with the values of a query: its first text column, in order. The first value is the default.
func chosen(name, label, doc, query string) *dashboard.QueryVariableBuilder {
	text := strings.TrimSpace(query) + "\n"
	return dashboard.NewQueryVariableBuilder(name).Label(label).Description(doc).Datasource(source()).
		Query(dashboard.StringOrMap{String: &text}).Definition(text).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortDisabled).AllowCustomValue(true)
}

// distinct lists the values of a column after a filter, without repetition; in descending order if order is "true".
func distinct(column, order string) string {
	return fmt.Sprintf(`  |> keep(columns: [%[1]q])
  |> group()
  |> distinct(column: %[1]q)
  |> sort(desc: %s)
  |> keep(columns: ["_value"])
`, column, order)
}

// aRun selects one of the runs with outcomes in the time range.
func aRun(name, label, doc, filter string) *dashboard.QueryVariableBuilder {
	return chosen(name, label, doc, inRange+`  |> filter(fn: (r) => r._measurement == "lockstep_outcome" and r._field == "agents"`+filter+`)
`+distinct("run", "true"))
}

// values are the values of a cell in comparisons and histories.
var values = []string{
	"publish.rate", "consume.rate", "confirm.rate", "publish.p50", "publish.p99", "publish.p99.9",
	"publish.intended.p99", "e2e.p50", "e2e.p99", "e2e.p99.9",
	"broker.cpu.mean", "broker.memory.p50", "agent.cpu", "lost", "capacity",
}

// aValue selects a column of the tables.
func aValue() *dashboard.CustomVariableBuilder {
	return fixed("value", "Value",
		"a value; rates in 1/s, latencies in s, CPU in cores, memory in bytes", values)
}

func fixed(name, label, doc string, options []string) *dashboard.CustomVariableBuilder {
	var all []dashboard.VariableOption
	text := func(s string) dashboard.StringOrArrayOfString { return dashboard.StringOrArrayOfString{String: &s} }
	for i, o := range options {
		all = append(all, dashboard.VariableOption{Selected: new(i == 0), Text: text(o), Value: text(o)})
	}
	list := strings.Join(options, ",")
	return dashboard.NewCustomVariableBuilder(name).Label(label).Description(doc).Values(dashboard.StringOrMap{String: &list}).
		Options(all).Current(all[0]).AllowCustomValue(true)
}
