package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// summary is one run that has ended, or what has ended of it.
func summary() *dashboard.DashboardBuilder {
	d := base("Run summary", "run",
		"What came of a run. The record's own tables say more: why a value has no number, and how sure it is.").
		Time("now-2d", "now").
		WithVariable(aRun("run", "Run", "runs with outcomes in the time range, the latest first", ""))
	withAll(d, verdictPanels()...)
	of := outcomes(theRun)
	withAll(d,
		columns(look{title: "Rates",
			doc: "Sent and received a second in the measurement; of several repetitions, their median, as the tables have it. Over several subscriptions more is received than sent.", unit: perSecond, width: 12, height: 11,
			queries: []flux{ask("A", of+medians("publish.rate", "consume.rate"))},
			colours: map[string]string{"publish.rate": blue, "consume.rate": orange}}, "name"),
		columns(look{title: "Latency",
			doc: "publish: call to confirm. e2e: intended send time (closed loop: publish call) to delivery, shown where receiving kept up. Of several repetitions the median of their percentiles, as the tables have it. ±: how far the truth may be off, either way, because of the clocks of the hosts.", unit: seconds, width: 12, height: 11,
			queries: []flux{ask("A", of+medians("publish.p50", "publish.p99", "e2e.p50", "e2e.p99",
				boundOf("e2e.p99")))},
			colours: map[string]string{"publish.p50": sky, "publish.p99": blue, "e2e.p50": orange, "e2e.p99": red,
				boundOf("e2e.p99"): grey},
			names: [][2]string{{boundOf("e2e.p99"), "± e2e.p99"}}}, "name"),
		grid(look{title: "Outcomes", doc: flagsDoc, unit: none, width: 24, height: 12,
			queries: []flux{ask("A", of+everything(shownFields...)+"  |> sort(columns: [\"name\", \"repetition\"])\n")},
			names:   shownNames, units: shownUnits}),
		grid(look{title: "What was tested",
			doc: "What brokers called themselves. Different fingerprints are different settings.", unit: none,
			width: 12, height: 8,
			queries: []flux{ask("A", of+subjects("broker"))}}),
		columns(look{title: "Agents",
			doc: "CPU of the busiest agent in the measurement. An agent at its limit measures itself; such cells are flagged client-bound.", unit: cores, width: 12, height: 8,
			queries: []flux{ask("A", of+medians("agent.cpu"))}, colours: map[string]string{"agent.cpu": blue}}, "name"),
		grid(look{title: "Events", doc: "Of the run in the time range.", unit: none, width: 24, height: 9, queries: []flux{ask("A", eventsOfRun("true")+`  |> sort(columns: ["_time"], desc: true)
  |> limit(n: 500)
`)}, names: [][2]string{{"_time", "time"}, {"tags", "kind"}}}))
	return d
}

// verdictPanels are the numbers on top.
func verdictPanels() []builder {
	colours := map[string]string{"valid": green, "invalid": red, "unknown": grey}
	return []builder{
		number(look{title: "Outcomes by verdict",
			doc: "valid; invalid: a declared guarantee was broken; unknown: no usable number.", unit: none, width: 9,
			height: 4, decimals: ptr(0.0), colours: colours,
			queries: []flux{ask("A", ofRun("lockstep_outcome")+`  |> filter(fn: (r) => r._field == "agents")
  |> group(columns: ["verdict"])
  |> count()
  |> group()
  |> map(fn: (r) => ({row: "", verdict: r.verdict, _value: r._value}))
  |> pivot(rowKey: ["row"], columnKey: ["verdict"], valueColumn: "_value")
  |> drop(columns: ["row"])
`)}}),
		number(look{title: "Cells", doc: "Different cells with an outcome.", unit: none, width: 3, height: 4,
			decimals: ptr(0.0),
			queries: []flux{ask("A", ofRun("lockstep_outcome")+`  |> filter(fn: (r) => r._field == "agents")
  |> group()
  |> distinct(column: "cell")
  |> count()
  |> rename(columns: {_value: "cells"})
`)}}),
		number(look{title: "Lost", doc: "Messages lost, over all outcomes.", unit: count, width: 3, height: 4,
			queries: []flux{ask("A", ofRun("lockstep_outcome")+`  |> filter(fn: (r) => r._field == "lost")
  |> group()
  |> sum()
  |> rename(columns: {_value: "lost"})
`)}, empty: "none could be: no consumers"}),
		grid(look{title: "Run", doc: "When it began and ended, and how.", unit: none, width: 9, height: 4,
			queries: []flux{ask("A", ofRun("lockstep_event")+`  |> filter(fn: (r) => r._field == "text" and (r.kind == "run-start" or r.kind == "run-stop"))
  |> group()
  |> sort(columns: ["_time"])
  |> rename(columns: {_value: "text"})
  |> keep(columns: ["_time", "text"])
`)}, names: [][2]string{{"_time", "time"}}}),
	}
}

// subjects is a table of what was tested, with a row for each of by.
func subjects(by string) string {
	return `outcomes
  |> filter(fn: (r) => r._field == "product" or r._field == "version" or r._field == "fingerprint")
  |> group(columns: ["` + by + `", "_field"])
  |> distinct()
  |> group()
  |> map(fn: (r) => ({` + by + `: r.` + by + `, what: r._field, is: r._value}))
  |> sort(columns: ["` + by + `", "what"])
`
}
