package report

import (
	"slices"
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/stats"
)

// achieved are the latencies that the simulated network really added, by the points of axes that set network.latency:
// the median of the cells there.
func (b *builder) achieved() map[point]string {
	latency, numbers := map[string]bool{}, map[point][]float64{}
	for _, axis := range b.run.Axes {
		latency[axis] = true
	}
	for _, c := range b.cells {
		own, _, _ := collect(c.usable(), "network.latency.p50")
		for _, x := range c.place {
			asked, err := time.ParseDuration(x.text)
			latency[x.axis] = latency[x.axis] && err == nil && asked == c.cell.Workload.Network.Latency.D()
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

// annotated is a place for people, with the achieved latency behind each point that has one.
func (g *grid) annotated(p place) place {
	p = slices.Clone(p)
	for i, x := range p {
		p[i].text = strings.TrimSpace(x.text + " " + g.latencies[x])
	}
	return p
}
