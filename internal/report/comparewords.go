package report

import (
	"fmt"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
)

// left lists the cells that are not compared, at most maxLeft.
func left(c compare.Comparison) (lines []string) {
	for i, l := range c.Left {
		if i == maxLeft {
			lines = append(lines, fmt.Sprintf("and %d more (see JSON or CSV)", len(c.Left)-maxLeft))
			break
		}
		lines = append(lines, fmt.Sprintf("%s (%s): %s", l.Cell, strings.Join(l.Sides, ", "), l.Reason))
	}
	return lines
}

// found lists the differences in the order of compare.Findings.
func found(c compare.Comparison) (lines []string) {
	for _, f := range compare.Findings() {
		if f == compare.NoDifference || f == compare.Inconclusive {
			continue
		}
		for _, v := range c.Values {
			for _, r := range v.Rows {
				for i, x := range r.Changes {
					if x.Finding == f {
						lines = append(lines, foundLine(c, v, r, i))
					}
				}
			}
		}
	}
	return lines
}

func foundLine(c compare.Comparison, v compare.Value, r compare.Row, i int) string {
	x, then, now := r.Changes[i], sampleField(c, v, r.Sides[0]), sampleField(c, v, r.Sides[i+1])
	line := fmt.Sprintf("%s: %s: %s %s (medians %s → %s, p %s)", x.Finding, r.Name, v.Name, changeText(x, v.Unit),
		then.Text, now.Text, probability(x.Adjusted))
	if len(c.Sides) > 2 {
		line = c.Sides[i+1].Mark + " " + line
	}
	return line +
		flagsText(slices.Compact(slices.Sorted(slices.Values(slices.Concat(r.Sides[0].Flags, r.Sides[i+1].Flags)))))
}

// flagsText returns the flags for the end of a line about a change: ", flagged client-bound". It is "" without flags.
func flagsText(flags []plan.Flag) string {
	if len(flags) == 0 {
		return ""
	}
	return ", flagged " + words(flags)
}

// foundSummary returns the last line: "24 compared: 2 worse, 1 better, 21 no difference shown".
func foundSummary(c compare.Comparison) string {
	n, total := c.Found(), 0
	var parts []string
	for _, f := range compare.Findings() {
		if n[f] > 0 {
			total += n[f]
			parts = append(parts, fmt.Sprintf("%d %s", n[f], f))
		}
	}
	text := "nothing could be compared"
	if total > 0 {
		text = fmt.Sprintf("%d compared: %s", total, strings.Join(parts, ", "))
	}
	if n := len(c.Left); n > 0 {
		text += fmt.Sprintf("; %s not compared", display.Count(n, "cell"))
	}
	return text
}
