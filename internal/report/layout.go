package report

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
)

// Layout is a table as people read it. Each column of numbers has one unit, which its heading names. The last column
// has the flags of each row, and what holds for all of its values: failed, invalid, n/a or not run. The flag
// shared-host is left out of the tables of a run, because the lines above them (Limitations) state its cells.
type Layout struct {
	Head []string
	Keys int // number of leading columns with coordinates
	Rows [][]Shown
}

// Shown is a field of a layout.
type Shown struct {
	Text  string // a number without its unit, or a word
	Tail  string // after it: error bound, annotation
	Notes []int
	Same  bool   // a coordinate that the row above has, too, like all coordinates before it
	Of    *Field // nil: the column of flags
}

// Left reports whether the heading of a column stands left: of coordinates and flags.
func (l Layout) Left(column int) bool {
	return column < l.Keys || len(l.Rows) > 0 && l.Rows[0][column].Of == nil
}

func annotation(text string) string {
	if text == "" {
		return ""
	}
	return " " + text
}

// scale is the unit of a column.
type scale struct {
	unit plan.Unit
	name string  // in the heading; empty: the fields have their units
	one  float64 // size of the unit
}

// show returns the text of a field in the unit of its column, and the text that follows it.
func (s scale) show(f Field) (text, tail string) {
	tail = annotation(f.Mark)
	if f.Number == nil {
		return f.Text, tail
	}
	plusMinus := func(bound string) string { // an interval may precede it: "±1.4 % error bound ± 300"
		if f.Mark != "" {
			return tail + " error bound " + bound
		}
		return " " + bound
	}
	if s.name == "" || f.Unit != s.unit {
		text, second, two := strings.Cut(f.Text, " / ") // the rates of throughput
		if two {
			tail = " / " + second + tail
		}
		if f.Bound > 0 {
			tail = plusMinus(display.PlusMinus(*f.Number, f.Bound))
		}
		return text, tail
	}
	if f.Bound > 0 {
		tail = plusMinus("± " + display.RoundUp(f.Bound/s.one))
	}
	x := *f.Number
	if f.sign == belowResolution {
		x = plan.Resolution
	}
	return string(f.sign) + s.format(x), tail
}

// format formats a number with three significant digits; cores and percentages with two decimals and one.
func (s scale) format(x float64) string {
	switch x /= s.one; s.unit {
	case plan.Cores:
		return display.Decimals(x, 2)
	case plan.Ratio:
		return display.Decimals(x, 1)
	}
	if math.Abs(x) >= 1 || x == 0 {
		return display.Significant(x)
	}
	return strconv.FormatFloat(x, 'f', 2-int(math.Floor(math.Log10(math.Abs(x)))), 64)
}

// fit returns a layout that is at most so many columns wide, if that is possible with one value. It leaves out values
// from the right, whose headings are the second result. 0 means any width.
func (l Layout) fit(width int) (fitting Layout, hidden []string) {
	fitting = l
	for {
		last := len(fitting.Head) - 1
		if last > l.Keys && fitting.Left(last) {
			last-- // the column of flags
		}
		if width <= 0 || last <= l.Keys || fitting.text(true).Width() <= width {
			return fitting, hidden
		}
		hidden = append([]string{fitting.Head[last]}, hidden...)
		next := Layout{Head: slices.Concat(fitting.Head[:last], fitting.Head[last+1:]), Keys: l.Keys}
		for _, row := range fitting.Rows {
			next.Rows = append(next.Rows, slices.Concat(row[:last], row[last+1:]))
		}
		fitting = next
	}
}

// renumber numbers the footnotes of the layout from 1, in the order in which its fields refer to them. It returns these
// footnotes.
func (l Layout) renumber(notes []string) (left []string) {
	number := make([]int, len(notes))
	for _, row := range l.Rows {
		for k := range row {
			own := make([]int, len(row[k].Notes))
			for i, n := range row[k].Notes {
				if number[n-1] == 0 {
					left = append(left, notes[n-1])
					number[n-1] = len(left)
				}
				own[i] = number[n-1]
			}
			row[k].Notes = own
		}
	}
	return left
}

// wrapAt is the width from which headings are wrapped in files.
const wrapAt = 100

// text returns the layout as texts. Numbers are aligned at their decimal points. With blank, a coordinate that the row
// above has, too, is left out.
func (l Layout) text(blank bool) display.Table {
	out := display.Table{Head: l.Head, Keys: l.Keys, Rows: make([][]display.Cell, len(l.Rows)), Wrap: wrapAt}
	out.Words = len(l.Head) > l.Keys && l.Left(len(l.Head)-1)
	for i, row := range l.Rows {
		out.Rows[i] = make([]display.Cell, len(row))
		for n, s := range row {
			text, fraction := s.Text, ""
			if at := strings.LastIndexByte(text, '.'); n >= l.Keys && at >= 0 && s.Of != nil && s.Of.Number != nil {
				text, fraction = text[:at], text[at:]
			}
			out.Rows[i][n] = display.Cell{Text: text, Tail: fraction + s.Tail + superscripts(s.Notes)}
			switch {
			case blank && s.Same:
				out.Rows[i][n] = display.Cell{}
			case s.Of == nil:
				out.Rows[i][n] = display.Cell{Text: text + superscripts(s.Notes)}
			}
		}
	}
	return out
}
