package report

import (
	"slices"
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/stats"
)

// achieved returns the latencies that the simulated network added, as texts by point. It has only the points of axes
// that set network.latency, with the median over the cells there.
func (b *builder) achieved() map[point]string {
	latency, numbers := map[string]bool{}, map[point][]float64{}
	for _, axis := range b.run.Axes {
		latency[axis] = true
	}
	for _, c := range b.cells {
		own, _, _ := collect(c.usable(), "network.latency.p50")
		for _, x := range c.place {
			requested, err := time.ParseDuration(x.text)
			latency[x.axis] = latency[x.axis] && err == nil && requested == c.cell.Workload.Network.Latency.D()
			numbers[x] = append(numbers[x], own...)
		}
	}
	texts := map[point]string{}
	for x, all := range numbers {
		if latency[x.axis] && len(all) > 0 {
			texts[x] = "(" + format(plan.Seconds, stats.Median(all)) + ")"
		}
	}
	return texts
}

// annotated appends the achieved latencies to the points of a place.
func (g *grid) annotated(p place) place {
	p = slices.Clone(p)
	for i, x := range p {
		p[i].text = strings.TrimSpace(x.text + " " + g.latencies[x])
	}
	return p
}
