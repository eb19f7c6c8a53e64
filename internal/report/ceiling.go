package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
)

// ceilingFacts returns the limits of the load generator itself: the publish rate, and the medians of publish latency
// and end-to-end latency. Each number of agents, threads and message size has a line.
func ceilingFacts(ceilings []plan.Ceiling) (lines []string) {
	sorted := slices.Clone(ceilings)
	slices.SortStableFunc(sorted, func(a, b plan.Ceiling) int { return a.Load.Compare(b.Load) })
	for len(sorted) > 0 {
		l := sorted[0].Load
		n := 0
		var modes []string
		for ; n < len(sorted) && sorted[n].Load.Compare(l) == 0; n++ {
			modes = append(modes, ceilingText(sorted[n]))
		}
		sorted = sorted[n:]
		lines = append(lines, fmt.Sprintf("%s, %s, %s: %s", display.Bytes(float64(l.Size)),
			display.Count(l.Nodes, "agent"), display.Count(l.Threads, "thread"), strings.Join(modes, "; ")))
	}
	if len(lines) > 0 {
		lines[0] = "load generator alone: msg/s, publish p50, end-to-end p50; " + lines[0]
	}
	return lines
}

// ceilingText returns the limits in one mode: "confirm-each 310,000, 2.04 µs, 3.12 µs".
func ceilingText(c plan.Ceiling) string {
	mode := c.Load.Mode
	switch b := c.Load.Batch; {
	case c.Load.MaxInFlight > 0:
		mode += fmt.Sprintf(" (%s)", display.Number(float64(c.Load.MaxInFlight)))
	case b.Max > b.Min:
		mode += fmt.Sprintf(" (%d–%d)", b.Min, b.Max)
	case b.Max > 0:
		mode += fmt.Sprintf(" (%d)", b.Max)
	}
	if c.Limits == nil {
		return mode + " not measured"
	}
	rate, _ := strconv.ParseFloat(strconv.FormatFloat(c.Limits.Rate, 'g', 2, 64), 64) // two digits of a short measurement
	publish := "–"
	if (plan.Publishers{Mode: c.Load.Mode}).Confirmed() {
		publish = display.Seconds(c.Limits.Publish.D().Seconds())
	}
	return fmt.Sprintf("%s %s, %s, %s", mode, display.Number(rate), publish,
		display.Seconds(c.Limits.EndToEnd.D().Seconds()))
}
