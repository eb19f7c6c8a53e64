package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// inRange begins every query: the data source's bucket, in the time range that is shown.
const inRange = `from(bucket: v.defaultBucket)
  |> range(start: v.timeRangeStart, stop: v.timeRangeStop)
`

// chosen is a variable whose values a query finds. Values are the first column of text, in order: the first is chosen
// when the dashboard is opened.
func chosen(name, label, doc, query string) *dashboard.QueryVariableBuilder {
	text := strings.TrimSpace(query) + "\n"
	return dashboard.NewQueryVariableBuilder(name).Label(label).Description(doc).Datasource(source()).
		Query(dashboard.StringOrMap{String: &text}).Definition(text).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortDisabled).AllowCustomValue(true)
}

// distinct lists the values of a column of what was filtered; the latest first, where its values begin with their time.
func distinct(column, order string) string {
	return fmt.Sprintf(`  |> keep(columns: [%[1]q])
  |> group()
  |> distinct(column: %[1]q)
  |> sort(desc: %s)
  |> keep(columns: ["_value"])
`, column, order)
}

// aRun chooses among the runs that have outcomes in the time range.
func aRun(name, label, doc, filter string) *dashboard.QueryVariableBuilder {
	return chosen(name, label, doc, inRange+`  |> filter(fn: (r) => r._measurement == "lockstep_outcome" and r._field == "agents"`+filter+`)
`+distinct("run", "true"))
}

func aMatrix() *dashboard.QueryVariableBuilder {
	return chosen("matrix", "Matrix", "name of the matrix", inRange+`  |> filter(fn: (r) => r._measurement == "lockstep_outcome" and r._field == "agents")
`+distinct("matrix", "false"))
}

// values are what comparisons and histories show of a cell.
var values = []string{
	"publish.rate", "consume.rate", "confirm.rate", "publish.p50", "publish.p99", "publish.p99.9",
	"publish.intended.p99", "e2e.p50", "e2e.p99", "e2e.p99.9",
	"broker.cpu.mean", "broker.memory.p50", "agent.cpu", "lost", "capacity",
}

// aValue chooses a column of the tables.
func aValue() *dashboard.CustomVariableBuilder {
	return fixed("value", "Value",
		"a value; rates in 1/s, latencies in s, CPU in cores, memory in bytes", values)
}

func fixed(name, label, doc string, options []string) *dashboard.CustomVariableBuilder {
	var all []dashboard.VariableOption
	text := func(s string) dashboard.StringOrArrayOfString { return dashboard.StringOrArrayOfString{String: &s} }
	for i, o := range options {
		all = append(all, dashboard.VariableOption{Selected: ptr(i == 0), Text: text(o), Value: text(o)})
	}
	list := strings.Join(options, ",")
	return dashboard.NewCustomVariableBuilder(name).Label(label).Description(doc).Values(dashboard.StringOrMap{String: &list}).
		Options(all).Current(all[0]).AllowCustomValue(true)
}
