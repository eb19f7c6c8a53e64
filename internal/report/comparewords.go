package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"lockstep/internal/compare"
	"lockstep/internal/display"
	"lockstep/internal/plan"
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
		FlagsText(slices.Compact(slices.Sorted(slices.Values(slices.Concat(r.Sides[0].Flags, r.Sides[i+1].Flags)))))
}

// FlagsText returns the flags for the end of a line about a change: ", flagged client-bound". It is "" without flags.
func FlagsText(flags []plan.Flag) string {
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

// method describes the test and the intervals in two lines.
func method(c compare.Comparison) []string {
	test, change := "t-test of the medians of runs, with the run-to-run spread of earlier runs",
		"the ratio of the medians"
	if c.By != "" {
		test, change = "Mann–Whitney over repetitions", "the median of the ratios of all pairs of repetitions"
	}
	return []string{
		fmt.Sprintf("A difference is reported if the change is at least %s and p is at most %.4g, corrected for all tests (%d; %s, Holm)", display.Percent(c.Effect), c.Alpha, c.Tests, test),
		fmt.Sprintf("change: %s, with its %s interval; ±: interval of the median", change, sure(c)),
	}
}

// Text writes a comparison for a terminal of the given width in columns; 0: no limit.
func (x Compared) Text(w io.Writer, c compare.Comparison, width int) error {
	out := bufio.NewWriter(w)
	for _, line := range x.Sides {
		fmt.Fprintln(out, display.Clean(line))
	}
	fmt.Fprintln(out)
	if len(x.Besides) == 0 {
		fmt.Fprintln(out, "No other differences recorded.")
	} else if err := Text(out, x.Besides, width); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if err := Text(out, x.Tables, width); err != nil {
		return err
	}
	section := func(title string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(out, "\n%s\n\n", title)
			for _, line := range lines {
				fmt.Fprintf(out, "  %s\n", display.Clean(line))
			}
		}
	}
	section("Not compared", x.Left)
	section("Found", x.Found)
	fmt.Fprintln(out)
	for _, line := range method(c) {
		fmt.Fprintln(out, line)
	}
	fmt.Fprintf(out, "\n%s\n", x.Summary)
	return out.Flush()
}

// Markdown writes a comparison in GitHub's Markdown.
func (x Compared) Markdown(w io.Writer, c compare.Comparison) error {
	out := bufio.NewWriter(w)
	section := func(title string, lines []string) {
		if len(lines) > 0 {
			if title != "" {
				fmt.Fprintf(out, "\n### %s\n\n", title)
			}
			for _, line := range lines {
				fmt.Fprintf(out, "- %s\n", escape(line))
			}
		}
	}
	section("", x.Sides)
	fmt.Fprintln(out)
	if len(x.Besides) == 0 {
		fmt.Fprintln(out, "No other differences recorded.")
	}
	if err := Markdown(out, slices.Concat(x.Besides, x.Tables)); err != nil {
		return err
	}
	section("Not compared", x.Left)
	section("Found", x.Found)
	fmt.Fprintln(out)
	for _, line := range method(c) {
		fmt.Fprintf(out, "- %s\n", escape(line))
	}
	fmt.Fprintf(out, "\n%s\n", escape(x.Summary))
	return out.Flush()
}

// Method describes the test and the intervals in two lines.
func (x Compared) Method(c compare.Comparison) []string { return method(c) }
