package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"lockstep/internal/compare"
	"lockstep/internal/plan"
	"lockstep/internal/terminal"
)

// valueRemarks explain what the table has: of too few repetitions how many it takes.
func valueRemarks(c compare.Comparison, v compare.Value) (lines []string) {
	have, least, clocks := 0, 0, false
	for _, r := range v.Rows {
		for i, x := range r.Changes {
			if x.Finding == compare.TooFew {
				if n := min(r.Sides[0].N, r.Sides[i+1].N); have == 0 || n < have {
					have = n
				}
				least = x.Least
			}
			clocks = clocks || x.Finding == compare.Clocks
		}
	}
	if have > 0 {
		lines = append(lines, fmt.Sprintf("too few: too few repetitions to tell (%d; at least %d on either side are needed for %s)", have, least, tests(c)))
	}
	if clocks {
		lines = append(lines, "clocks: a difference, but not larger than what the clocks of the hosts can be wrong by, or not known how large that is")
	}
	return lines
}

func tests(c compare.Comparison) string {
	n := c.Tests
	if n == 0 {
		for _, v := range c.Values {
			for _, r := range v.Rows {
				n += len(r.Changes)
			}
		}
	}
	if n == 1 {
		return "one test"
	}
	return fmt.Sprintf("a family of %d tests", n)
}

// left lists what is in no number.
func left(c compare.Comparison) (lines []string) {
	for i, l := range c.Left {
		if i == mostLeft {
			lines = append(lines, fmt.Sprintf("and %d more, which JSON and CSV list", len(c.Left)-mostLeft))
			break
		}
		lines = append(lines, leftLine(l))
	}
	return lines
}

func leftLine(l compare.Left) string {
	what := l.Cell
	if l.Value != "" {
		what += ", " + l.Value
	}
	return fmt.Sprintf("%s (%s): %s", what, strings.Join(l.Sides, ", "), l.Reason)
}

// found lists the changes that are named, the largest first within each finding.
func found(c compare.Comparison) (lines []string) {
	for _, f := range []compare.Finding{compare.Worse, compare.Better, compare.Higher, compare.Lower, compare.Clocks} {
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
	x, info := r.Changes[i], valueInfo(v.Name)
	line := fmt.Sprintf("%s: %s: %s %s (medians %s → %s, p %s)", x.Finding, r.Name, v.Name, typically(x, v.Unit), show(info, plan.Value{Number: r.Sides[0].Median}),
		show(info, plan.Value{Number: r.Sides[i+1].Median}), probability(x.Adjusted))
	if len(c.Sides) > 2 {
		line = c.Sides[i+1].Mark + " " + line
	}
	return line + Doubts(slices.Compact(slices.Sorted(slices.Values(slices.Concat(r.Sides[0].Flags, r.Sides[i+1].Flags)))))
}

// typically is a change in a sentence. The word tells that it is not that of the two medians, which stand beside it.
func typically(x compare.Change, unit plan.Unit) string {
	return "typically " + changeText(x, unit)
}

// Doubts says flags at the end of a line that names a change: ", flagged client-bound". "" of none.
func Doubts(flags []plan.Flag) string {
	if len(flags) == 0 {
		return ""
	}
	return ", flagged " + words(flags)
}

// foundSummary is the last line: "of 24 comparisons 2 worse, 1 better, 21 ~".
func foundSummary(c compare.Comparison) string {
	n, total := c.Found(), 0
	var parts []string
	for _, f := range []compare.Finding{compare.Worse, compare.Better, compare.Higher, compare.Lower, compare.Same, compare.Clocks, compare.TooFew} {
		if n[f] > 0 {
			total += n[f]
			parts = append(parts, fmt.Sprintf("%d %s", n[f], f))
		}
	}
	whole := map[string]bool{}
	for _, l := range c.Left {
		if l.Whole {
			whole[l.Cell] = true
		}
	}
	text := "nothing could be compared"
	if total > 0 {
		text = fmt.Sprintf("%d compared: %s", total, strings.Join(parts, ", "))
	}
	if n := len(whole); n > 0 {
		text += fmt.Sprintf("; %s left out", cellCount(n))
	}
	return text
}

// method says in a few lines how the numbers came about.
func method(c compare.Comparison) []string {
	return []string{
		fmt.Sprintf("~: no change of %s or more that noise cannot explain. A change is named where p is at most %.4g, over all tests together (%d that can tell anything; Mann–Whitney over repetitions, Holm)",
			percent(c.Effect), c.Alpha, c.Tests),
		fmt.Sprintf("change, typically: the median of the ratios of all pairs of repetitions, which is not the ratio of the two medians, with its own %s interval; ±: of the median; effect: Cliff's delta, from -1 to +1", sure(c)),
	}
}

// Text writes a comparison for a terminal of the given width; 0 is any width.
func (x Compared) Text(w io.Writer, c compare.Comparison, width int) error {
	out := bufio.NewWriter(w)
	for _, line := range slices.Concat(x.Sides, c.Notes) {
		fmt.Fprintln(out, terminal.Clean(line))
	}
	fmt.Fprintln(out)
	if len(x.Besides) == 0 {
		fmt.Fprintln(out, "Nothing else differs that the records tell of.")
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
				fmt.Fprintf(out, "  %s\n", terminal.Clean(line))
			}
		}
	}
	section("Left out", x.Left)
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
	section("", slices.Concat(x.Sides, c.Notes))
	fmt.Fprintln(out)
	if len(x.Besides) == 0 {
		fmt.Fprintln(out, "Nothing else differs that the records tell of.")
	}
	if err := Markdown(out, slices.Concat(x.Besides, x.Tables)); err != nil {
		return err
	}
	section("Left out", x.Left)
	section("Found", x.Found)
	fmt.Fprintln(out)
	for _, line := range method(c) {
		fmt.Fprintf(out, "- %s\n", escape(line))
	}
	fmt.Fprintf(out, "\n%s\n", escape(x.Summary))
	return out.Flush()
}

// Method is how the numbers came about, in a few lines.
func (x Compared) Method(c compare.Comparison) []string { return method(c) }
