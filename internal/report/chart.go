package report

import (
	"math"
	"strings"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
)

// Chart is latency over rate: one point per step of a search, in the order of the table's rows.
type Chart struct {
	Latency string  `json:"latency"` // the kind of latency: "End-to-end"
	Points  []Point `json:"points"`
}

// Point is the result of a step. Latencies are in seconds, and nil if there is none.
type Point struct {
	Rate     float64     `json:"rate"`
	Answer   plan.Answer `json:"answer"`
	P50      *float64    `json:"p50,omitempty"`
	P99      *float64    `json:"p99,omitempty"`
	Max      *float64    `json:"max,omitempty"`
	Absent   string      `json:"absent,omitempty"`   // why there are no latencies
	Capacity bool        `json:"capacity,omitempty"` // the rate is the capacity
}

func pointOf(s plan.Step, latency string, capacity bool) Point {
	p := Point{Rate: s.Rate, Answer: s.Answer, Capacity: capacity}
	for name, to := range map[string]**float64{".p50": &p.P50, ".p99": &p.P99, ".max": &p.Max} {
		if v, has := s.Values[latency+name]; has && v.NA == "" {
			*to = &v.Number
		} else if has {
			p.Absent = v.NA
		}
	}
	return p
}

// Widths of charts, in characters.
const (
	chartWidth   = 80 // without a limit, and the maximum
	minPlotWidth = 20
)

// lines draws the chart with a row per point and a common logarithmic latency axis to the right. Rows keep the steps
// apart even if their rates are close together.
func (c *Chart) lines(width int) []string {
	if width <= 0 || width > chartWidth {
		width = chartWidth
	}
	const head = "msg/s"
	labels, labelWidth := make([]string, len(c.Points)), display.Width(head)
	for i, p := range c.Points {
		labels[i] = "  " + display.Number(p.Rate)
		if p.Capacity {
			labels[i] = "▶ " + display.Number(p.Rate)
		}
		labelWidth = max(labelWidth, display.Width(labels[i]))
	}
	for i := range labels {
		labels[i] = display.Pad(labels[i], labelWidth, false) + " " + sign(c.Points[i].Answer) + " "
	}
	a := c.axis(max(minPlotWidth, width-labelWidth-3))
	if a.decades == 0 {
		return nil
	}
	indent := strings.Repeat(" ", labelWidth+3)
	out := []string{display.Pad(head, labelWidth, false) + "   " + a.heads(), indent + a.rule()}
	for i, p := range c.Points {
		out = append(out, strings.TrimRight(labels[i]+a.plot(p), " "))
	}
	legend := c.Latency +
		" latency: ● p50, ○ p99, × max; ✓ held, ✗ failed, ? limited by the load generator or its host, or unknown, ▶ capacity"
	return append(append(out, ""), display.Wrap(legend, width)...)
}

func sign(a plan.Answer) string {
	switch a {
	case plan.AnswerHeld:
		return "✓"
	case plan.AnswerFailed:
		return "✗"
	}
	return "?"
}

// axis is a logarithmic axis of latencies over whole decades.
type axis struct {
	first   int // exponent of the first tick, in seconds
	decades int // 0: there is no latency
	width   int
}

func (c *Chart) axis(width int) axis {
	lowest, highest := math.Inf(1), 0.0
	for _, p := range c.Points {
		for _, x := range []*float64{p.P50, p.P99, p.Max} {
			if x != nil && *x > 0 {
				lowest, highest = min(lowest, *x), max(highest, *x)
			}
		}
	}
	if highest == 0 {
		return axis{}
	}
	first := int(math.Floor(math.Log10(lowest)))
	return axis{first: first, decades: max(1, int(math.Ceil(math.Log10(highest)))-first), width: width}
}

// column returns the column of a latency.
func (a axis) column(seconds float64) int {
	at := (math.Log10(seconds) - float64(a.first)) / float64(a.decades)
	return max(0, min(a.width-1, int(math.Round(at*float64(a.width-1)))))
}

func (a axis) tick(i int) int { return i * (a.width - 1) / a.decades }

// heads returns the labels of the ticks, without those that would overlap.
func (a axis) heads() string {
	line := []rune(strings.Repeat(" ", a.width))
	free := 0
	for i := 0; i <= a.decades; i++ {
		text := []rune(decade(a.first + i))
		at := max(0, min(a.tick(i), a.width-len(text)))
		if at < free {
			continue
		}
		copy(line[at:], text)
		free = at + len(text) + 1
	}
	return strings.TrimRight(string(line), " ")
}

// decade formats a power of ten in seconds: "10 ms".
func decade(power int) string {
	x := display.Seconds(math.Pow(10, float64(power)))
	number, unit, _ := strings.Cut(x, " ")
	if strings.Contains(number, ".") {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	return number + " " + unit
}

func (a axis) rule() string {
	line := []rune(strings.Repeat("─", a.width))
	for i := 0; i <= a.decades; i++ {
		line[a.tick(i)] = '┴'
	}
	return string(line)
}

// plot draws the marks of one point. The lower quantile covers a higher one in the same column.
func (a axis) plot(p Point) string {
	if p.P50 == nil && p.P99 == nil && p.Max == nil {
		return p.Absent
	}
	line := []rune(strings.Repeat(" ", a.width))
	for _, x := range []struct {
		at   *float64
		mark rune
	}{{p.Max, '×'}, {p.P99, '○'}, {p.P50, '●'}} {
		if x.at != nil && *x.at > 0 {
			line[a.column(*x.at)] = x.mark
		}
	}
	return string(line)
}
