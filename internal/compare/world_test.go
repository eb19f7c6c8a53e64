package compare

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/stats"
)

func raw(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// world creates runs with simulated repetitions. Each cell has publish.rate of about 1,000 and publish.p99 of about 5
// ms, with noise per repetition, a random effect of the run per value, and a common one.
type world struct {
	r      *rand.Rand
	noise  float64
	repeat int
	each   float64 // standard deviations of the run's effects
	common float64
}

// cells returns the cells of two brokers with this number of modes.
func cells(modes int) (all []plan.Cell) {
	for _, broker := range []string{"nats", "rabbit"} {
		for m := range modes {
			w := plan.Default()
			w.Publishers.MaxInFlight = 100 + m
			c := plan.Cell{Index: len(all), Broker: plan.Broker{Name: broker, Driver: broker}, Workload: w,
				Coordinates: []plan.Coordinate{{Axis: "broker", Value: raw(broker)},
					{Axis: "window", Value: raw(100 + m)}}}
			c.ID = plan.CellID(broker, w)
			all = append(all, c)
		}
	}
	return all
}

// run creates a run. factor multiplies a cell's values.
func (w world) run(id string, all []plan.Cell, factor func(c plan.Cell, value string) float64) Recorded {
	run := plan.Run{ID: id, Name: "simulated", Repeat: w.repeat, Axes: []string{"broker", "window"}, Cells: all,
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Source:  plan.Source{File: "simulated.cue", SHA256: "0123456789abcdef"}}
	var outcomes []plan.Outcome
	whole := 1 + w.common*w.r.NormFloat64()
	for _, c := range all {
		effects := [2]float64{whole * (1 + w.each*w.r.NormFloat64()), whole * (1 + w.each*w.r.NormFloat64())}
		for k := 1; k <= w.repeat; k++ {
			o := plan.Outcome{Run: id, Task: fmt.Sprintf("%s-r%d", c.ID, k), Cell: c.ID, Index: c.Index, Repetition: k,
				Verdict: plan.Valid, Values: map[string]plan.Value{}}
			for i, v := range []struct {
				name string
				base float64
			}{{"publish.rate", 1000}, {"publish.p99", 0.005}} { // fixed order, so that a seed gives the same runs
				x := v.base * effects[i] * (1 + w.noise*w.r.NormFloat64())
				if factor != nil {
					x *= factor(c, v.name)
				}
				o.Values[v.name] = plan.Value{Number: x}
			}
			outcomes = append(outcomes, o)
		}
	}
	return Recorded{Run: run, Outcomes: outcomes}
}

func newWorld(seed uint64, repeat int, noise float64) world {
	return world{r: rand.New(rand.NewPCG(seed, 7)), noise: noise, repeat: repeat}
}

// earlier creates unchanged runs, and returns the spread of all values over them and the base.
func (w world) earlier(base Recorded, runs int) func(cell, value string) plan.RunSpread {
	medians := map[string][]float64{}
	add := func(r Recorded) {
		by := map[string][]float64{}
		for _, o := range r.Outcomes {
			for name, v := range o.Values {
				by[o.Cell+name] = append(by[o.Cell+name], v.Number)
			}
		}
		for key, numbers := range by {
			medians[key] = append(medians[key], stats.Median(numbers))
		}
	}
	add(base)
	for range runs - 1 {
		add(w.run("earlier", base.Run.Cells, nil))
	}
	return func(cell, value string) plan.RunSpread {
		s := plan.RunSpread{Runs: runs, Repetitions: float64(w.repeat), Deviation: stats.Deviation(medians[cell+value])}
		var logs []float64
		for _, m := range medians[cell+value] {
			logs = append(logs, math.Log(m))
		}
		relative := stats.Deviation(logs)
		s.Relative = &relative
		return s
	}
}
