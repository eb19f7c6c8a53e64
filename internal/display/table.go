package display

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"
)

// gap is the space between columns.
const gap = "  "

// Cell is a field of a table. Tail follows the text; it does not take part in the alignment of the column.
type Cell struct{ Text, Tail string }

// Table is a text table. Its texts are free of control characters. It has no state: all methods are safe for concurrent
// use.
type Table struct {
	Head  []string
	Keys  int // number of leading columns that name a row; they are left-aligned unless all are numbers
	Rows  [][]Cell
	Words bool // the last column is left-aligned
	Wrap  int  // headings are wrapped in a table wider than this even if its width is not limited; 0: they are not
}

// NewTable returns a table of texts in which every column is a key. It replaces their control characters.
func NewTable(head []string, rows [][]string) Table {
	t := Table{Keys: len(head)}
	for _, text := range head {
		t.Head = append(t.Head, Clean(text))
	}
	for _, row := range rows {
		cells := make([]Cell, len(row))
		for i, text := range row {
			cells[i].Text = Clean(text)
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// Left reports whether a column is left-aligned.
func (t Table) Left(column int) bool {
	if column >= t.Keys {
		return t.Words && column == len(t.Head)-1
	}
	for i, row := range t.Rows {
		if row[column].Text == "" && i > 0 {
			continue // as in the row above
		}
		if _, err := strconv.ParseFloat(strings.ReplaceAll(row[column].Text, ",", ""), 64); err != nil {
			return true
		}
	}
	return false
}

// Write prints the table in at most so many columns; 0 means any width. It wraps headings where they make the table too
// wide. It prints a table that is still too wide row by row, one line per field.
func (t Table) Write(w io.Writer, width int) error {
	var out strings.Builder
	columns := t.layout()
	if total := fit(columns, cmp.Or(width, t.Wrap)); width > 0 && total > width {
		t.vertical(&out, width)
	} else {
		t.horizontal(&out, columns)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// Width returns the minimum width of the table with wrapped headings.
func (t Table) Width() int { return fit(t.layout(), 1) }

// column is the layout of a column.
type column struct {
	head       []string // lines
	text, tail int      // widths
	width      int
	left       bool
}

// layout measures columns whose headings take one line.
func (t Table) layout() []column {
	columns := make([]column, len(t.Head))
	for i := range columns {
		c := &columns[i]
		c.head, c.left = []string{t.Head[i]}, t.Left(i)
		for _, row := range t.Rows {
			c.text, c.tail = max(c.text, Width(row[i].Text)), max(c.tail, Width(row[i].Tail))
		}
		c.width = max(c.text+c.tail, Width(t.Head[i]))
	}
	return columns
}

// fit wraps headings if the table is wider than width. It returns the resulting width.
func fit(columns []column, width int) int {
	total := span(columns)
	if width <= 0 || total <= width {
		return total
	}
	for i := range columns {
		c := &columns[i]
		c.width = c.text + c.tail
		for _, word := range strings.Fields(c.head[0]) {
			c.width = max(c.width, Width(word))
		}
		c.head = Wrap(c.head[0], c.width)
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

func (t Table) horizontal(out *strings.Builder, columns []column) {
	lines := 1
	for _, c := range columns {
		lines = max(lines, len(c.head))
	}
	cells := make([]string, len(columns))
	for n := range lines {
		for i, c := range columns {
			line := ""
			if skip := lines - len(c.head); n >= skip {
				line = c.head[n-skip]
			}
			if !c.left { // align with the texts without their tails
				line = Pad(line, c.width-c.tail, false)
			}
			cells[i] = Pad(line, c.width, true)
		}
		writeLine(out, cells)
	}
	for i, c := range columns {
		cells[i] = strings.Repeat("─", c.width)
	}
	writeLine(out, cells)
	for _, row := range t.Rows {
		for i, c := range columns {
			cells[i] = Pad(Pad(row[i].Text, c.text, c.left)+Pad(row[i].Tail, c.tail, true), c.width, c.left)
		}
		writeLine(out, cells)
	}
}

// vertical writes the keys of a row on one line and each of its other fields on a line of its own. Empty keys are left
// out; the first key of such a row is its name, such as "geometric mean".
func (t Table) vertical(out *strings.Builder, width int) {
	label := 0
	for _, head := range t.Head[t.Keys:] {
		label = max(label, Width(head))
	}
	for n, row := range t.Rows {
		if n > 0 {
			out.WriteByte('\n')
		}
		var keys []string
		named := slices.ContainsFunc(row[:t.Keys], func(c Cell) bool { return c.Text == "" })
		for i := range t.Keys {
			switch text := row[i].Text; {
			case named && i == 0:
				keys = append(keys, text)
			case text != "":
				keys = append(keys, t.Head[i]+"="+text)
			}
		}
		for _, line := range Wrap(strings.Join(keys, " "), width) {
			writeLine(out, []string{line})
		}
		for i, cell := range row[t.Keys:] {
			head, text := t.Head[t.Keys+i], cell.Text+cell.Tail
			if text == "" {
				continue
			}
			if 2+label+len(gap)+Width(text) <= width {
				writeLine(out, []string{"  " + Pad(head, label, true), text})
				continue
			}
			writeLine(out, []string{"  " + head})
			writeLine(out, []string{"    " + text})
		}
	}
}

func writeLine(out *strings.Builder, cells []string) {
	out.WriteString(strings.TrimRight(strings.Join(cells, gap), " ") + "\n")
}
