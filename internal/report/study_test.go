package report

import (
	"encoding/json"
	"fmt"

	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
)

func raw(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

func at(broker, mode string, threads int, latency string) []plan.Coordinate {
	return []plan.Coordinate{{Axis: "broker", Value: raw(broker)}, {Axis: "mode", Value: raw(mode)},
		{Axis: "threads", Value: raw(threads)}, {Axis: "latency", Value: raw(latency)}}
}

func outcome(c plan.Cell, repetition int, values map[string]plan.Value) plan.Outcome {
	return plan.Outcome{Run: "r1", Task: fmt.Sprintf("%s-r%d", c.ID, repetition), Cell: c.ID, Index: c.Index,
		Repetition: repetition,
		Verdict:    plan.Valid, Values: values}
}

// study is a run with everything that tables show: two brokers with different confirms, repetitions, flags, exclusions,
// failures and a broken guarantee.
func study() (plan.Run, []plan.Outcome) {
	run := plan.Run{ID: "r1", Name: "async-vs-sync", Repeat: 3, Axes: []string{"broker", "mode", "threads", "latency"}}
	var outcomes []plan.Outcome
	labels := map[string]string{"nats": "memory storage, 1 replica, confirm: in memory of one server", "rabbit": "quorum, confirm: written to disk by the majority"}
	for _, broker := range []string{"nats", "rabbit"} {
		for _, mode := range []string{"fire-and-forget", "confirm-window", "confirm-each", "connection-per-message"} {
			for _, threads := range []int{1, 5} {
				for _, latency := range []string{"0ms", "50ms"} {
					here := at(broker, mode, threads, latency)
					switch {
					case broker == "nats" && mode == "connection-per-message":
						run.Excluded = append(run.Excluded,
							plan.Excluded{Coordinates: here, Kind: "n/a", Reason: "driver nats keeps one connection"})
						continue
					case mode == "connection-per-message" && latency == "50ms":
						run.Excluded = append(run.Excluded,
							plan.Excluded{Coordinates: here, Kind: "skipped", Reason: "skip pattern 1"})
						continue
					}
					c := plan.Cell{ID: fmt.Sprintf("c%02d", len(run.Cells)), Index: len(run.Cells), Coordinates: here,
						Label:  labels[broker],
						Broker: plan.Broker{Name: broker}, Workload: plan.Default()}
					c.Workload.Publishers.Mode = mode
					run.Cells = append(run.Cells, c)
					outcomes = append(outcomes, studied(c, threads, latency)...)
				}
			}
		}
	}
	run.Tables = []plan.Table{
		{Title: "Publish rates", Split: []string{"broker"}, Rows: []string{"mode", "threads"},
			Columns: []string{"latency"}, Values: []string{"publish.rate"}},
		{Rows: []string{"broker", "mode", "threads", "latency"},
			Values: []string{"throughput", "publish.p99", "e2e.p99", "lost", "agent.cpu", "broker.rss.max"}},
	}
	return run, outcomes
}

func studied(c plan.Cell, threads int, latency string) []plan.Outcome {
	base := map[string]float64{"fire-and-forget": 60_000, "confirm-window": 41_234, "confirm-each": 2_345.6,
		"connection-per-message": 98.76}
	rate := base[c.Workload.Publishers.Mode] * float64(threads)
	send := plan.Value{Number: 0.00085}
	switch c.Workload.Publishers.Mode {
	case "fire-and-forget":
		send = plan.Value{NA: judge.NAFireAndForget}
	case "connection-per-message":
		send = plan.Value{NA: judge.NANoConfirms}
	}
	if latency == "50ms" && send.NA == "" {
		send.Number, rate = 0.0512, 19*float64(threads)
	}
	var all []plan.Outcome
	for r := 1; r <= 3; r++ {
		factor := []float64{1, 1.01, 0.5}[r-1] // the median is the first one
		o := outcome(c, r, map[string]plan.Value{
			"publish.rate": {Number: rate * factor}, "throughput": {Number: rate * factor},
			"consume.rate": {Number: rate * factor},
			"publish.p99":  send, "e2e.p99": {Number: 1.2345}, "lost": {}, "agent.cpu": {Number: 1.25},
			"broker.rss.max": {Number: 220_200_960},
		})
		all = append(all, o)
	}
	return happen(c, all)
}

// happen modifies the outcomes of some cells.
func happen(c plan.Cell, all []plan.Outcome) []plan.Outcome {
	switch name := (&cell{cell: c, place: placeOf(c.Coordinates)}).name(); name {
	case "broker=nats mode=fire-and-forget threads=5 latency=0ms": // backlog in all, two flags in one
		for i := range all {
			all[i].Values["throughput"] = plan.Value{Number: 300_000, Flags: []plan.Flag{plan.Backlog}}
			all[i].Values["consume.rate"] = plan.Value{Number: 90_000, Flags: []plan.Flag{plan.Backlog}}
			all[i].Values["e2e.p99"] = plan.Value{NA: judge.NABacklog, Flags: []plan.Flag{plan.Backlog}}
		}
		all[1].Values["throughput"] = plan.Value{Number: 300_000, Flags: []plan.Flag{plan.Backlog, plan.ClientBound}}
		all[1].Values["publish.rate"] = plan.Value{Number: 300_000, Flags: []plan.Flag{plan.ClientBound}}
	case "broker=nats mode=confirm-window threads=1 latency=0ms": // outside of the histogram's range on both sides
		for i := range all {
			all[i].Values["publish.p99"] = plan.Value{Number: 420e-9}
			all[i].Values["e2e.p99"] = plan.Value{Number: 3600, Over: 12, Flags: []plan.Flag{plan.Clipped}}
		}
	case "broker=nats mode=confirm-each threads=1 latency=0ms": // two hosts
		for i, bound := range []float64{210e-6, 300e-6, 120e-6} {
			all[i].Values["e2e.p99"] = plan.Value{Number: 0.0018, Bound: bound}
		}
	case "broker=nats mode=confirm-each threads=5 latency=0ms": // two hosts with different clocks
		for i := range all {
			all[i].Values["e2e.p99"] = plan.Value{Number: 0.0018, Bound: 0.0121, Flags: []plan.Flag{plan.ClockUnsafe}}
		}
	case "broker=rabbit mode=confirm-window threads=5 latency=0ms": // one repetition lost confirmed messages
		all[1].Verdict, all[1].Reasons = plan.Invalid,
			[]string{"broken guarantee: 3 messages that the broker had confirmed were lost"}
		all[1].Values["publish.rate"] = plan.Value{Number: 1}
	case "broker=rabbit mode=confirm-each threads=5 latency=0ms": // all repetitions did
		for i := range all {
			all[i].Verdict, all[i].Reasons = plan.Invalid,
				[]string{"broken guarantee: 1 message was received after a later one"}
		}
	case "broker=rabbit mode=confirm-each threads=5 latency=50ms": // all failed
		for i := range all {
			all[i].Verdict, all[i].Reasons = plan.Unknown,
				[]string{"the task failed: connect to 10.0.0.9:5672: connection refused"}
			all[i].Values = map[string]plan.Value{}
		}
	case "broker=rabbit mode=fire-and-forget threads=1 latency=0ms": // loss in one, without a guarantee
		all[2].Values["lost"] = plan.Value{Number: 1234}
	case "broker=rabbit mode=fire-and-forget threads=5 latency=50ms": // one lost an agent, one was not run
		all[0].Verdict, all[0].Reasons = plan.Unknown,
			[]string{"agent a2 lost in phase measure; at least 7 messages unknown"}
		return all[:2]
	case "broker=rabbit mode=connection-per-message threads=5 latency=0ms": // not run
		return nil
	}
	return all
}
