package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
)

// Results writes the results of a run: the problems, what is common to all tables, the limits of the load generator,
// the tables, and then warnings and rule results. tables are those of Build, or a part of them.
func Results(w io.Writer, run plan.Run, outcomes []plan.Outcome, tables []Table, width int) error {
	var out strings.Builder
	print := func(lines []string) {
		for i, line := range lines {
			if i == 0 && out.Len() > 0 {
				out.WriteByte('\n')
			}
			out.WriteString(display.Hang(display.Clean(line), width, 2) + "\n")
		}
	}
	print([]string{title(run, outcomes)})
	print(Problems(run, outcomes))
	for i, line := range factLines(Facts(run, outcomes), max(0, width-2)) {
		if i == 0 {
			out.WriteByte('\n')
		}
		out.WriteString("  " + line + "\n")
	}
	print(Limitations(run, outcomes))
	out.WriteByte('\n')
	if err := writeText(&out, tables, width); err != nil {
		return err
	}
	print(after(run, outcomes))
	_, err := io.WriteString(w, out.String())
	return err
}

// title names a run, with its duration and the numbers of its cells and verdicts.
func title(run plan.Run, outcomes []plan.Outcome) string {
	text := fmt.Sprintf("%s, run %s", cmp.Or(run.Name, "unnamed"), run.ID)
	if took := Took(run, outcomes); took >= time.Second {
		text += ", " + display.Elapsed(took)
	}
	text += ": " + display.Count(len(run.Cells), "cell")
	if n, atMost := total(run, outcomes); n != len(run.Cells) {
		text += ", " + atMost + display.Count(n, "task")
	}
	for _, c := range Counts(run, outcomes) {
		text += fmt.Sprintf(", %d %s", c.N, c.What)
	}
	return text
}

// Next suggests one command after a run. It is empty after a failure of a matrix that is no file.
func Next(run plan.Run, outcomes []plan.Outcome) string {
	open := slices.ContainsFunc(run.Cells, func(c plan.Cell) bool {
		return slices.ContainsFunc(c.Workload.Parts(), func(w plan.Workload) bool { return rateText(w) != maxRate })
	})
	switch {
	case NotRun(run, outcomes) != "":
		return "run the remaining tasks: ctl run --resume " + run.ID
	case slices.ContainsFunc(outcomes, func(o plan.Outcome) bool { return o.Failure == plan.FailedUnreachable }) &&
		run.Source.File != "":
		return "check the brokers: ctl doctor " + display.ShellWord(run.Source.File)
	case len(Failures(run, outcomes)) > 0 && run.Source.File == "":
		return ""
	case len(Failures(run, outcomes)) > 0:
		return "repeat the failed cells: " + newBuilder(run, outcomes).repeatFailed()
	case !open && slices.ContainsFunc(outcomes, func(o plan.Outcome) bool {
		return slices.Contains(allFlags(o), plan.Backlog)
	}) && run.Source.File != "":
		return "measure latency without a backlog: " + runCommand(run.Source, run.Source.Filter) +
			" --set cell.publishers.rate=1000"
	}
	axis := comparedAxis(run)
	for _, s := range compare.Shortages(run) {
		if run.Until != nil { // the number of repetitions follows from the results
			break
		}
		if s.By == axis && run.Source.File != "" {
			return fmt.Sprintf("compare by %s, with %s of each cell: %s --set repeat=%d", axis,
				display.Count(s.Needed, "repetition"), runCommand(run.Source, run.Source.Filter), s.Needed)
		} else if s.By == axis {
			axis = ""
		}
	}
	if axis != "" {
		return fmt.Sprintf("compare by %s: ctl compare --by %s %s", axis, display.ShellWord(axis), run.ID)
	}
	return "compare with an earlier run: ctl compare EARLIER " + run.ID
}

// runCommand returns the command that runs a matrix again, with the given filters instead of its own.
func runCommand(s plan.Source, filters []string) string {
	words := []string{"ctl run", display.ShellWord(s.File)}
	if s.Quick {
		words = append(words, "--quick")
	}
	for _, set := range s.Set {
		words = append(words, "--set", display.ShellWord(set))
	}
	for _, only := range filters {
		words = append(words, "--filter", display.ShellWord(only))
	}
	return strings.Join(words, " ")
}

// comparedAxis returns the first axis that readers compare in the tables, and on which alone some cells differ; empty:
// there is none. A quick run is not meant for comparisons, and a search is not compared within a run.
func comparedAxis(run plan.Run) string {
	if run.Source.Quick || slices.ContainsFunc(run.Cells, func(c plan.Cell) bool { return c.Workload.Search != nil }) {
		return ""
	}
	for _, t := range run.Tables {
		for _, axis := range slices.Concat(t.Columns, t.Rows[:min(1, len(t.Rows))]) {
			value := map[string]string{} // of the axis, by the other coordinates
			for _, c := range run.Cells {
				v, has := c.Coordinate(axis)
				c.Coordinates = slices.DeleteFunc(slices.Clone(c.Coordinates),
					func(at plan.Coordinate) bool { return at.Axis == axis })
				if first, seen := value[c.Name()]; has && seen && first != v {
					return axis
				}
				if has {
					value[c.Name()] = v
				}
			}
		}
	}
	return ""
}

// after returns the lines that follow the tables: warnings and rule results.
func after(run plan.Run, outcomes []plan.Outcome) []string {
	lines := Warnings(run, outcomes)
	for _, r := range Rulings(run, outcomes) {
		lines = append(lines, r.String())
	}
	return lines
}

// writeText writes tables for a terminal of the given width in columns; 0: no limit. A terminal that is too narrow for
// a table shows fewer of its columns, or one line per value if one column does not fit.
func writeText(w io.Writer, tables []Table, width int) error {
	out := bufio.NewWriter(w)
	for i, t := range tables {
		t = cleaned(t)
		if i > 0 {
			out.WriteByte('\n')
		}
		if t.Title != "" {
			for _, line := range display.Wrap(t.Title, width) {
				out.WriteString(line + "\n")
			}
		}
		l, hidden := t.Layout(), []string(nil)
		if !t.whole {
			l, hidden = l.fit(width)
		}
		notes := l.renumber(t.Notes)
		text := l.text(true)
		if width > 0 && text.Width() > width {
			text, hidden, notes = t.Layout().text(false), nil, t.Notes // row by row
		}
		t.Notes = notes
		if err := text.Write(out, width); err != nil {
			return err
		}
		if len(hidden) > 0 {
			t.Remarks = append(slices.Clip(t.Remarks), "columns that need a wider terminal: "+strings.Join(hidden, ", "))
		}
		below(out, t, width)
		if t.Chart != nil {
			for i, line := range t.Chart.lines(width) {
				if i == 0 {
					out.WriteByte('\n')
				}
				out.WriteString(line + "\n")
			}
		}
	}
	return out.Flush()
}

// cleaned returns a table without control characters, because texts may come from other users.
func cleaned(t Table) Table {
	clean := func(texts []string) []string {
		texts = slices.Clone(texts)
		for i := range texts {
			texts[i] = display.Clean(texts[i])
		}
		return texts
	}
	t.Title, t.Axes, t.Head, t.Notes, t.Remarks = display.Clean(t.Title), clean(t.Axes), clean(t.Head), clean(t.Notes),
		clean(t.Remarks)
	t.Rows = slices.Clone(t.Rows)
	for i, row := range t.Rows {
		t.Rows[i] = slices.Clone(row)
		for k := range row {
			t.Rows[i][k].Text, t.Rows[i][k].Mark = display.Clean(row[k].Text), display.Clean(row[k].Mark)
		}
	}
	return t
}

// below writes the footnotes and remarks of a table.
func below(out *bufio.Writer, t Table, width int) {
	if len(t.Notes)+len(t.Remarks) > 0 {
		out.WriteByte('\n')
	}
	for i, note := range t.Notes {
		mark := superscripts([]int{i + 1}) + " "
		for n, line := range display.Wrap(note, max(0, width-display.Width(mark))) {
			if n > 0 {
				mark = strings.Repeat(" ", display.Width(mark))
			}
			out.WriteString(strings.TrimRight(mark+line, " ") + "\n")
		}
	}
	for _, remark := range t.Remarks {
		indent := strings.Repeat(" ", len(remark)-len(strings.TrimLeft(remark, " ")))
		for n, line := range display.Wrap(remark, max(0, width-len(indent)-2)) {
			if n > 0 {
				line = "  " + line
			}
			out.WriteString(strings.TrimRight(indent+line, " ") + "\n")
		}
	}
}

var raised = []string{"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"}

// superscripts formats the numbers of footnotes: "¹" or "¹˒¹²".
func superscripts(notes []int) string {
	marks := make([]string, len(notes))
	for i, n := range notes {
		for _, digit := range strconv.Itoa(n) {
			marks[i] += raised[digit-'0']
		}
	}
	return strings.Join(marks, "˒")
}
