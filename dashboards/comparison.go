package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

const eitherRun = "(r.run == ${before:doublequote} or r.run == ${after:doublequote})"

// sides defines the chosen value of the cells of two runs: the median of the usable repetitions, their number, minimum
// and maximum, and the error bound.
const sides = sound + `sided = (field) => outcomes
  |> filter(fn: (r) => r._field == field)
` + usable + `  |> toFloat()
  |> map(fn: (r) => ({cell: r.cell, _value: r._value, side: if r.run == ${before:doublequote} then "before" else "after"}))
  |> group(columns: ["cell", "side"])

values = sided(field: ${value:doublequote})

side = (which) => values |> filter(fn: (r) => r.side == which)
middle = (which) => side(which: which) |> ` + middle + ` |> group() |> keep(columns: ["cell", "_value"])
lowest = (which) => side(which: which) |> min() |> group() |> keep(columns: ["cell", "_value"])
highest = (which) => side(which: which) |> max() |> group() |> keep(columns: ["cell", "_value"])
number = (which) => side(which: which) |> count() |> group() |> keep(columns: ["cell", "_value"])

both = join(tables: {n: names, v: join(tables: {before: middle(which: "before"), after: middle(which: "after")}, on: ["cell"])}, on: ["cell"])

`

// spread is a table of both sides with the range of their repetitions. A value that was zero has no change in percent.
// An error bound is the largest of the repetitions, as in the tables. The result of drop has no type in Flux, but union
// requires equal types.
const spread = `bound = (which) => union(tables: [
    side(which: which) |> map(fn: (r) => ({cell: r.cell, _value: 0.0, side: r.side})),
    sided(field: ${value:doublequote} + ".bound") |> filter(fn: (r) => r.side == which),
  ])
  |> group(columns: ["cell"])
  |> max()
  |> group()
  |> keep(columns: ["cell", "_value"])
  |> rename(columns: {_value: "bound"})

span = (which) => join(tables: {min: lowest(which: which) |> rename(columns: {_value: "min"}), max: highest(which: which) |> rename(columns: {_value: "max"})}, on: ["cell"])
sure = (which) => join(tables: {n: number(which: which) |> rename(columns: {_value: "n"}), b: bound(which: which)}, on: ["cell"])
range = (which) => join(tables: {s: span(which: which), n: sure(which: which)}, on: ["cell"])

ranges = join(tables: {before: range(which: "before"), after: range(which: "after")}, on: ["cell"])

rows = join(tables: {v: both, r: ranges}, on: ["cell"])
  |> map(fn: (r) => ({cell: r.name, before: r._value_before, after: r._value_after,
    min_before: r.min_before, max_before: r.max_before, n_before: r.n_before, bound_before: r.bound_before,
    min_after: r.min_after, max_after: r.max_after, n_after: r.n_after, bound_after: r.bound_after}))

union(tables: [
  rows |> filter(fn: (r) => r.before == 0.0 and r.after != 0.0)
    |> drop(columns: ["side"]),
  rows |> filter(fn: (r) => r.before != 0.0 or r.after == 0.0)
    |> map(fn: (r) => ({r with change: if r.before == 0.0 then 0.0 else (r.after / r.before - 1.0) * 100.0}))
    |> drop(columns: ["side"]),
])
  |> sort(columns: ["change"])
`

// onlyOne lists the cells for which only one of the runs has the value.
const onlyOne = `values
  |> first()
  |> group(columns: ["cell"])
  |> map(fn: (r) => ({r with before: if r.side == "before" then 1 else 0, after: if r.side == "after" then 1 else 0}))
  |> reduce(identity: {before: 0, after: 0}, fn: (r, accumulator) => ({before: accumulator.before + r.before, after: accumulator.after + r.after}))
  |> filter(fn: (r) => r.before == 0 or r.after == 0)
  |> group()
  |> map(fn: (r) => ({cell: r.cell, only: if r.before > 0 then "before" else "after"}))
`

// comparison is the dashboard of two runs, matched by the ids of their cells.
func comparison() *dashboard.DashboardBuilder {
	d := base("Comparison of two runs", "compare",
		"Cells of two runs with the same id: the same workload and broker name. Differences are between medians over repetitions, as in the tables; invalid repetitions count only if there are no valid ones. The dashboard does not test significance: compare the ranges.").
		Time("now-7d", "now").
		WithVariable(aRun("after", "After", "the later run; latest first", "")).
		WithVariable(aRun("before", "Before", "the earlier run; latest first",
			" and r.run != ${after:doublequote}")).
		WithVariable(aValue())
	of := outcomes(eitherRun) + sides
	before, after := [2]string{"min_before", "minimum before"}, [2]string{"min_after", "minimum after"}
	return withAll(d,
		number(look{title: "Geometric mean of ${value}, after / before",
			doc: "Over the cells of both runs with values above zero. 1 is no change.", unit: none, width: 6,
			height: 5, decimals: new(3.0),
			query: `import "math"

` + of + `both
  |> filter(fn: (r) => r._value_before > 0.0 and r._value_after > 0.0)
  |> map(fn: (r) => ({_value: math.log(x: r._value_after / r._value_before)}))
  |> mean()
  |> map(fn: (r) => ({ratio: math.exp(x: r._value)}))
`}),
		number(look{title: "Cells of each run", doc: "Cells with an outcome.", unit: none, width: 6, height: 5,
			decimals: new(0.0),
			query: outcomes(eitherRun) + `outcomes
  |> filter(fn: (r) => r._field == "agents")
  |> map(fn: (r) => ({cell: r.cell, side: if r.run == ${before:doublequote} then "before" else "after"}))
  |> group(columns: ["side"])
  |> distinct(column: "cell")
  |> count()
  |> group()
  |> map(fn: (r) => ({row: "", side: r.side, _value: r._value}))
  |> pivot(rowKey: ["row"], columnKey: ["side"], valueColumn: "_value")
  |> drop(columns: ["row"])
`}),
		grid(look{title: "Systems under test",
			doc: "Check this first. Different products, versions or settings (fingerprint) explain differences.", unit: none, width: 12, height: 5,
			query: systems(eitherRun) + `  |> filter(fn: (r) => r._field == "product" or r._field == "version" or r._field == "fingerprint")
  |> map(fn: (r) => ({r with side: if r.run == ${before:doublequote} then "before" else "after"}))
  |> group(columns: ["broker", "side", "_field"])
  |> distinct()
  |> group()
  |> map(fn: (r) => ({broker: r.broker, what: r._field, side: r.side, is: r._value}))
  |> sort(columns: ["broker", "what", "side"], desc: true)
`}),
		columns(look{title: "${value}, before and after", doc: "Medians over repetitions, of the cells of both runs.",
			unit: count, width: 24, height: 11,
			query: of + `both
  |> map(fn: (r) => ({cell: r.name, before: r._value_before, after: r._value_after}))
  |> sort(columns: ["cell"])
`, colours: map[string]string{"before": sky, "after": blue}}, "cell"),
		grid(look{title: "${value}: change",
			doc: "Change in percent, and the range of the repetitions. A difference may be noise if the ranges overlap or there are fewer than five repetitions. A value that was zero has no change in percent and is not sorted. ± is the maximum error from the clocks of the hosts.", unit: count, width: 24, height: 12,
			query: of + spread, units: [][2]string{{"change", percent}, {"n_before", none},
				{"n_after", none}},
			names: [][2]string{before, {"max_before", "maximum before"}, {"n_before", "repetitions before"},
				{"bound_before", "± before"}, after, {"max_after", "maximum after"}, {"n_after", "repetitions after"},
				{"bound_after", "± after"}}}),
		grid(look{title: "Cells with ${value} in only one run", doc: "Not shown in the panels above.", unit: none,
			width: 10, height: 8, empty: "no such cells",
			query: outcomes(eitherRun) + sides + `only = ` + onlyOne + `
join(tables: {o: only, n: names}, on: ["cell"])
  |> keep(columns: ["name", "only"])
  |> sort(columns: ["name"])
`, names: [][2]string{{"name", "cell"}}}),
		grid(look{title: "Verdicts and flags", doc: flagsDoc, unit: none, width: 14, height: 8,
			query: outcomes(eitherRun) + `outcomes
  |> filter(fn: (r) => ` + orList("_field", "name", "flags", "reasons") + `)
  |> pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value")
  |> map(fn: (r) => ({r with side: if r.run == ${before:doublequote} then "before" else "after"}))
  |> group()
  |> keep(columns: ["name", "side", "repetition", "verdict", "flags", "reasons"])
  |> sort(columns: ["name", "side", "repetition"])
`, names: [][2]string{{"name", "cell"}}}))
}
