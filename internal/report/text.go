package report

import (
	"bufio"
	"io"
	"slices"
	"strconv"
	"strings"

	"lockstep/internal/terminal"
)

// gap is between columns.
const gap = "  "

// Text writes tables for a terminal of the given width in columns; 0 is any width. Headings are wrapped where they make a table too
// wide; a table that is still too wide is written row by row, one line a field.
func Text(w io.Writer, tables []Table, width int) error {
	out := bufio.NewWriter(w)
	for i, t := range tables {
		t = cleaned(t)
		if i > 0 {
			out.WriteByte('\n')
		}
		if t.Title != "" {
			for _, line := range terminal.Wrap(t.Title, width) {
				out.WriteString(line + "\n")
			}
			out.WriteByte('\n')
		}
		columns := layout(t)
		total := fit(columns, width)
		if width > 0 && total > width {
			vertical(out, t, width)
		} else {
			horizontal(out, t, columns)
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

// cleaned is a table whose texts, which may be of others, cannot move a terminal's cursor.
func cleaned(t Table) Table {
	clean := func(texts []string) []string {
		texts = slices.Clone(texts)
		for i := range texts {
			texts[i] = terminal.Clean(texts[i])
		}
		return texts
	}
	t.Title, t.Axes, t.Head, t.Notes, t.Remarks = terminal.Clean(t.Title), clean(t.Axes), clean(t.Head), clean(t.Notes), clean(t.Remarks)
	t.Rows = slices.Clone(t.Rows)
	for i, row := range t.Rows {
		t.Rows[i] = slices.Clone(row)
		for k := range row {
			t.Rows[i][k].Text, t.Rows[i][k].Mark = terminal.Clean(row[k].Text), terminal.Clean(row[k].Mark)
		}
	}
	return t
}

// column is how one column is set: its texts end in one place (numbers) or begin in one, and what is marked follows.
type column struct {
	head       []string // lines
	text, tail int      // widths
	width      int
	left       bool
}

// layout measures columns with headings on one line.
func layout(t Table) []column {
	columns := make([]column, len(t.Head))
	for i := range columns {
		c := &columns[i]
		c.head = []string{t.Head[i]}
		numeric := true
		for _, row := range t.Rows {
			f := row[i]
			text, rest := split(f)
			c.text = max(c.text, terminal.Width(text))
			c.tail = max(c.tail, terminal.Width(rest))
			if _, err := strconv.ParseFloat(strings.ReplaceAll(f.Text, ",", ""), 64); err != nil {
				numeric = false
			}
		}
		c.left = i < len(t.Axes) && !numeric
		c.width = max(c.text+c.tail, terminal.Width(t.Head[i]))
	}
	return columns
}

// fit wraps the headings of columns if the table is wider than width, and returns how wide it is then.
func fit(columns []column, width int) int {
	total := span(columns)
	if width <= 0 || total <= width {
		return total
	}
	for i := range columns {
		c := &columns[i]
		least := c.text + c.tail
		for _, word := range strings.Fields(c.head[0]) {
			least = max(least, terminal.Width(word))
		}
		c.head = terminal.Wrap(c.head[0], least)
		c.width = least
	}
	return span(columns)
}

func span(columns []column) int {
	total := len(gap) * max(0, len(columns)-1)
	for _, c := range columns {
		total += c.width
	}
	return total
}

// tail is what follows a field's text: its mark and its footnotes.
func tail(f Field) string {
	text := superscripts(f.Notes)
	if f.Mark != "" {
		text = " " + f.Mark + text
	}
	return text
}

// split parts a field where numbers of its column end: before its mark, and before a second number ("300,000 / 90,000"), so that the first ones stand
// below each other.
func split(f Field) (text, rest string) {
	text, second, two := strings.Cut(f.Text, " / ")
	if two && f.Number != nil {
		return text, " / " + second + tail(f)
	}
	return f.Text, tail(f)
}

func horizontal(out *bufio.Writer, t Table, columns []column) {
	lines := 1
	for _, c := range columns {
		lines = max(lines, len(c.head))
	}
	for n := range lines {
		cells := make([]string, len(columns))
		for i, c := range columns {
			if skip := lines - len(c.head); n >= skip {
				cells[i] = c.heading(c.head[n-skip])
			} else {
				cells[i] = strings.Repeat(" ", c.width)
			}
		}
		writeLine(out, cells)
	}
	rules := make([]string, len(columns))
	for i, c := range columns {
		rules[i] = strings.Repeat("─", c.width)
	}
	writeLine(out, rules)
	for _, row := range t.Rows {
		cells := make([]string, len(columns))
		for i, c := range columns {
			f := row[i]
			text, rest := split(f)
			cell := terminal.Pad(text, c.text, c.left) + terminal.Pad(rest, c.tail, true)
			cells[i] = terminal.Pad(cell, c.width, c.left)
		}
		writeLine(out, cells)
	}
}

// heading sets a line of a heading: over numbers it ends where they end, not where their marks do.
func (c column) heading(line string) string {
	if c.left {
		return terminal.Pad(line, c.width, true)
	}
	return terminal.Pad(terminal.Pad(line, c.width-c.tail, false), c.width, true)
}

// vertical writes a row's coordinates on one line and each of its values on one of its own.
func vertical(out *bufio.Writer, t Table, width int) {
	axes := len(t.Axes)
	label := 0
	for _, head := range t.Head[axes:] {
		label = max(label, terminal.Width(head))
	}
	for n, row := range t.Rows {
		if n > 0 {
			out.WriteByte('\n')
		}
		var at []string
		for i := range axes {
			at = append(at, t.Head[i]+"="+row[i].Text)
		}
		for _, line := range terminal.Wrap(strings.Join(at, " "), width) {
			writeLine(out, []string{line})
		}
		for i, f := range row[axes:] {
			head, text := t.Head[axes+i], f.Text+tail(f)
			if 2+label+len(gap)+terminal.Width(text) <= width {
				writeLine(out, []string{"  " + terminal.Pad(head, label, true), text})
				continue
			}
			writeLine(out, []string{"  " + head})
			writeLine(out, []string{"    " + text})
		}
	}
}

// below writes footnotes and remarks.
func below(out *bufio.Writer, t Table, width int) {
	if len(t.Notes)+len(t.Remarks) > 0 {
		out.WriteByte('\n')
	}
	for i, note := range t.Notes {
		mark := superscripts([]int{i + 1}) + " "
		for n, line := range terminal.Wrap(note, max(0, width-terminal.Width(mark))) {
			if n > 0 {
				mark = strings.Repeat(" ", terminal.Width(mark))
			}
			writeLine(out, []string{mark + line})
		}
	}
	for _, remark := range t.Remarks {
		indent := strings.Repeat(" ", len(remark)-len(strings.TrimLeft(remark, " ")))
		for n, line := range terminal.Wrap(remark, max(0, width-len(indent)-2)) {
			if n > 0 {
				line = "  " + line
			}
			writeLine(out, []string{indent + line})
		}
	}
}

func writeLine(out *bufio.Writer, cells []string) {
	out.WriteString(strings.TrimRight(strings.Join(cells, gap), " ") + "\n")
}

var raised = []string{"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"}

// superscripts writes the numbers of footnotes: "¹" or "¹˒¹²".
func superscripts(notes []int) string {
	marks := make([]string, len(notes))
	for i, n := range notes {
		for _, digit := range strconv.Itoa(n) {
			marks[i] += raised[digit-'0']
		}
	}
	return strings.Join(marks, "˒")
}
