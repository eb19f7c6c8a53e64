package report

import (
	"bufio"
	"io"
	"slices"
	"strconv"
	"strings"

	"lockstep/internal/display"
)

// Text writes tables for a terminal of the given width in columns; 0: no limit. Headings of a wide table are wrapped. A
// table that is still too wide is written row by row, with one line per field.
func Text(w io.Writer, tables []Table, width int) error {
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
			out.WriteByte('\n')
		}
		if err := t.text().Write(out, width); err != nil {
			return err
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

// text returns the table as texts.
func (t Table) text() display.Table {
	out := display.Table{Head: t.Head, Keys: len(t.Axes), Rows: make([][]display.Cell, len(t.Rows))}
	for i, row := range t.Rows {
		out.Rows[i] = make([]display.Cell, len(row))
		for n, f := range row {
			out.Rows[i][n] = split(f)
		}
	}
	return out
}

// tail returns the text after a field: its mark and its footnotes.
func tail(f Field) string {
	text := superscripts(f.Notes)
	if f.Mark != "" {
		text = " " + f.Mark + text
	}
	return text
}

// split separates a field after the number that its column aligns: before its mark, and before a second number
// ("300,000 / 90,000").
func split(f Field) display.Cell {
	text, second, two := strings.Cut(f.Text, " / ")
	if two && f.Number != nil {
		return display.Cell{Text: text, Tail: " / " + second + tail(f)}
	}
	return display.Cell{Text: f.Text, Tail: tail(f)}
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
