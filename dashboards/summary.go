package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// summary is the dashboard of one run, or of its completed part.
func summary() *dashboard.DashboardBuilder {
	d := base("Run summary", "run",
		"The results of a run. The tables of the record also state why a value has no number, and its accuracy.").
		Time("now-2d", "now").
		WithVariable(aRun("run", "Run", "runs with outcomes in the time range, latest first", ""))
	withAll(d, verdictPanels()...)
	of := outcomes(theRun)
	withAll(d,
		columns(look{title: "Rates",
			doc: "Messages published and received per second of the measurement. Values are medians over repetitions, as in the tables. With several subscriptions, more messages are received than published.", unit: perSecond, width: 12, height: 11,
			query:   of + medians("publish.rate", "consume.rate"),
			colours: map[string]string{"publish.rate": blue, "consume.rate": orange}}, "name"),
		columns(look{title: "Latency",
			doc: "publish: from the publish call to the confirm. e2e: from the intended send time (closed loop: publish call) to the delivery, if consumers kept up. Values are medians over repetitions, as in the tables. ± is the maximum error from the clocks of the hosts.", unit: seconds, width: 12, height: 11,
			query: of + medians("publish.p50", "publish.p99", "e2e.p50", "e2e.p99",
				boundOf("e2e.p99")),
			colours: map[string]string{"publish.p50": sky, "publish.p99": blue, "e2e.p50": orange, "e2e.p99": red,
				boundOf("e2e.p99"): grey},
			names: [][2]string{{boundOf("e2e.p99"), "± e2e.p99"}}}, "name"),
		grid(look{title: "Outcomes", doc: flagsDoc, unit: none, width: 24, height: 12,
			query: of + everything(shownFields...) + "  |> sort(columns: [\"name\", \"repetition\"])\n",
			names: shownNames, units: shownUnits}),
		grid(look{title: "Systems under test",
			doc: "As reported by the brokers. Different fingerprints mean different settings.", unit: none,
			width: 12, height: 8,
			query: systems(theRun) + `  |> filter(fn: (r) => r._field == "product" or r._field == "version" or r._field == "fingerprint")
  |> group(columns: ["broker", "_field"])
  |> distinct()
  |> group()
  |> map(fn: (r) => ({broker: r.broker, what: r._field, is: r._value}))
  |> sort(columns: ["broker", "what"])
`}),
		columns(look{title: "Agents",
			doc: "CPU of the busiest agent in the measurement. Cells whose load generator was the limit are flagged client-bound.", unit: cores, width: 12, height: 8,
			query: of + medians("agent.cpu"), colours: map[string]string{"agent.cpu": blue}}, "name"),
		grid(look{title: "Events", doc: "Events of the run in the time range.", unit: none, width: 24, height: 9, query: eventsOfRun("true") + `  |> sort(columns: ["_time"], desc: true)
  |> limit(n: 500)
`, names: [][2]string{{"_time", "time"}, {"tags", "kind"}}}))
	return d
}

// verdictPanels is the row of numbers at the top.
func verdictPanels() []builder {
	colours := map[string]string{"valid": green, "invalid": red, "unknown": grey}
	return []builder{
		number(look{title: "Outcomes by verdict",
			doc: "invalid: a declared guarantee was violated. unknown: no usable number.", unit: none, width: 9,
			height: 4, decimals: new(0.0), colours: colours,
			query: ofRun("lockstep_outcome") + `  |> filter(fn: (r) => r._field == "agents")
  |> group(columns: ["verdict"])
  |> count()
  |> group()
  |> map(fn: (r) => ({row: "", verdict: r.verdict, _value: r._value}))
  |> pivot(rowKey: ["row"], columnKey: ["verdict"], valueColumn: "_value")
  |> drop(columns: ["row"])
`}),
		number(look{title: "Cells", doc: "Cells with an outcome.", unit: none, width: 3, height: 4,
			decimals: new(0.0),
			query: ofRun("lockstep_outcome") + `  |> filter(fn: (r) => r._field == "agents")
  |> group()
  |> distinct(column: "cell")
  |> count()
  |> rename(columns: {_value: "cells"})
`}),
		number(look{title: "Lost",
			doc:  "Lost messages of all outcomes. Undrained messages were missing when the drain ended: outcomes that have some may have lost more.",
			unit: count, width: 3, height: 4,
			query: ofRun("lockstep_outcome") + `  |> filter(fn: (r) => r._field == "lost" or r._field == "undrained")
  |> group(columns: ["_field"])
  |> sum()
  |> group()
  |> map(fn: (r) => ({row: "", _field: r._field, _value: r._value}))
  |> pivot(rowKey: ["row"], columnKey: ["_field"], valueColumn: "_value")
  |> drop(columns: ["row"])
`, empty: "n/a: no consumers"}),
		grid(look{title: "Run", doc: "Start, end and result.", unit: none, width: 9, height: 4,
			query: ofRun("lockstep_event") + `  |> filter(fn: (r) => r._field == "text" and (r.kind == "run-start" or r.kind == "run-stop"))
  |> group()
  |> sort(columns: ["_time"])
  |> rename(columns: {_value: "text"})
  |> keep(columns: ["_time", "text"])
`, names: [][2]string{{"_time", "time"}}}),
	}
}
