package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
)

// capacities is a run of four searches: with a capacity, limited by the load generator, without any rate that holds,
// and an unsure one.
func capacities() (plan.Run, []plan.Outcome) {
	run := plan.Run{ID: "r", Name: "capacity", Repeat: 1, Axes: []string{"broker"},
		Tables: []plan.Table{{Title: "Capacity", Rows: []string{"broker"}, Values: []string{"capacity", "e2e.p99"}}}}
	step := func(rate float64, kind plan.StepKind, answer plan.Answer, why string) plan.Step {
		s := plan.Step{Rate: rate, Kind: kind, Answer: answer, Why: why, Values: map[string]plan.Value{
			"publish.rate": {Number: min(rate, 20_100)}, "consume.rate": {Number: min(rate, 20_060)}}}
		queue := 0.0005 * math.Exp(rate/5000)
		for _, q := range plan.Quantiles() {
			s.Values["e2e."+q.Name] = plan.Value{Number: queue * (1 + 25*q.Q*q.Q)}
		}
		if strings.HasPrefix(why, "backlog") {
			for _, q := range plan.Quantiles() {
				s.Values["e2e."+q.Name] = plan.Value{NA: "backlog", Flags: []plan.Flag{plan.Backlog}}
			}
		}
		return s
	}
	slow := "p99 is 112 ms, not < 50ms"
	found := []plan.Step{
		step(10_000, plan.StepBracket, plan.AnswerHeld, ""), step(20_000, plan.StepBracket, plan.AnswerHeld, ""),
		step(40_000, plan.StepBracket, plan.AnswerFailed, "backlog: consumers did not keep up with publishers"),
		step(20_400, plan.StepBisect, plan.AnswerFailed, slow), step(20_400, plan.StepCheck, plan.AnswerFailed, slow),
		step(20_000, plan.StepVerify, plan.AnswerHeld, ""), step(20_000, plan.StepVerify, plan.AnswerFailed, slow),
		step(20_000, plan.StepVerify, plan.AnswerHeld, ""),
		step(20_000, plan.StepVerify, plan.AnswerHeld, ""),
	}
	all := []plan.SearchResult{
		{Capacity: 20_000, Low: 19_990, Fails: 20_400, Verified: 3, Verifications: 4, Sure: true, Steps: found},
		{Capacity: 20_000, Low: 19_990, Verified: 3, Verifications: 3, Sure: true, Bound: plan.ClientBound,
			Why: "client-bound at 40,000/s: capacity is at least 20,000/s",
			Steps: append(found[:2:2], step(40_000, plan.StepBracket, plan.Answer(plan.ClientBound),
				"client-bound: agent a used 2.00 of its host's 2 cores; "+slow))},
		{Sure: true, Fails: 1, Why: "no rate is sustained, down to 1/s: " + slow,
			Steps: []plan.Step{step(1, plan.StepBracket, plan.AnswerFailed, slow)}},
		{Capacity: 20_000, Fails: 20_400, Verified: 1, Verifications: 1,
			Why: "the limit of 6 steps was reached before the verification was complete", Steps: found[:6]},
	}
	var outcomes []plan.Outcome
	for i, r := range all {
		id, broker := fmt.Sprintf("c%d", i), fmt.Sprintf("b%d", i)
		work := plan.Default()
		work.Search = &plan.Search{While: "p99 < 50ms && !backlog", Repeats: 3}
		value, _ := json.Marshal(broker)
		run.Cells = append(run.Cells, plan.Cell{ID: id, Index: i,
			Coordinates: []plan.Coordinate{{Axis: "broker", Value: value}}, Workload: work})
		o := plan.Outcome{Version: plan.RecordFormat, Run: "r", Task: id + "-r1", Cell: id, Index: i, Repetition: 1,
			Verdict: plan.Valid, Search: &r,
			Values: map[string]plan.Value{"capacity": {Number: r.Capacity}, "e2e.p99": {Number: 0.031}}}
		if r.Bound != "" {
			o.Values["capacity"] = plan.Value{Number: r.Capacity, Flags: []plan.Flag{plan.ClientBound}}
		}
		if !r.Sure {
			o.Verdict, o.Reasons = plan.Unknown, []string{"the search found no verified capacity: " + r.Why}
			o.Values["capacity"] = plan.Value{NA: r.Why}
		}
		outcomes = append(outcomes, o)
	}
	return run, outcomes
}

func TestGoldenSearches(t *testing.T) {
	run, outcomes := capacities()
	files, err := Files(run, outcomes)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		golden(t, "search-"+name, text)
	}
	for _, width := range []int{80, 40} {
		var text bytes.Buffer
		if err := writeText(&text, Build(run, outcomes), width); err != nil {
			t.Fatal(err)
		}
		golden(t, fmt.Sprintf("search-%d.txt", width), text.Bytes())
		for _, line := range strings.Split(text.String(), "\n") {
			if display.Width(line) > width && strings.ContainsAny(line, "●○┴") {
				t.Errorf("a line of the chart is %d wide, of %d: %s", display.Width(line), width, line)
			}
		}
	}
}

// A latency is drawn at its position on the axis, for any width.
func TestChartIsToScale(t *testing.T) {
	for _, width := range []int{20, 33, 70} {
		a := axis{first: -4, decades: 3, width: width}
		for i := range 4 {
			if at, tick := a.column(math.Pow(10, float64(i-4))), a.tick(i); at-tick > 1 || tick-at > 1 {
				t.Errorf("width %d: 1e%d s is drawn at %d, its tick at %d", width, i-4, at, tick)
			}
		}
		if a.column(1e-9) != 0 || a.column(99) != width-1 {
			t.Errorf("width %d: what is beyond the axis is not at its ends", width)
		}
	}
}
