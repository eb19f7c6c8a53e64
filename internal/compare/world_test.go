package compare

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"lockstep/internal/plan"
)

func raw(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// world is a run of simulated repetitions: of each cell send.rate about 1,000 and send.p99 about 5 ms, with noise of its own.
type world struct {
	r      *rand.Rand
	noise  float64
	repeat int
}

// cells are those of two brokers with modes.
func cells(modes int) (all []plan.Cell) {
	for _, broker := range []string{"nats", "rabbit"} {
		for m := range modes {
			w := plan.Default()
			w.Publishers.Window = 100 + m
			c := plan.Cell{Index: len(all), Broker: plan.Broker{Name: broker, Driver: broker}, Workload: w,
				Coordinates: []plan.Coordinate{{Axis: "broker", Value: raw(broker)}, {Axis: "window", Value: raw(100 + m)}}}
			c.ID = plan.CellID(broker, w)
			all = append(all, c)
		}
	}
	return all
}

// run makes a run; factor is by what a cell's values are multiplied.
func (w world) run(id string, all []plan.Cell, factor func(c plan.Cell, value string) float64) Recorded {
	run := plan.Run{ID: id, Name: "simulated", Repeat: w.repeat, Axes: []string{"broker", "window"}, Cells: all,
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Source: plan.Source{File: "simulated.cue", SHA256: "0123456789abcdef"}}
	var outcomes []plan.Outcome
	for _, c := range all {
		for k := 1; k <= w.repeat; k++ {
			o := plan.Outcome{Run: id, Task: fmt.Sprintf("%s-r%d", c.ID, k), Cell: c.ID, Index: c.Index, Repetition: k, Verdict: plan.Valid, Values: map[string]plan.Value{}}
			for _, v := range []struct {
				name string
				base float64
			}{{"send.rate", 1000}, {"send.p99", 0.005}} { // in one order: a seed gives the same world each time
				x := v.base * (1 + w.noise*w.r.NormFloat64())
				if factor != nil {
					x *= factor(c, v.name)
				}
				o.Values[v.name] = plan.Value{Number: x}
			}
			outcomes = append(outcomes, o)
		}
	}
	return Recorded{run, outcomes}
}

func newWorld(seed uint64, repeat int, noise float64) world {
	return world{rand.New(rand.NewPCG(seed, 7)), noise, repeat}
}
