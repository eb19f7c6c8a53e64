package chart

import (
	"fmt"
	"html"
)

// Rows is a drawing of values by name, with one row per name. On a linear axis the values are bars from zero. On a
// logarithmic one they are signs, because lengths of bars would have no meaning.
type Rows struct {
	Title string // a description for screen readers
	X     Axis
	Rows  []Row
}

// Row is a name with its values.
type Row struct {
	Name   string
	Values []Bar
}

// Bar is one value of a row.
type Bar struct {
	At        float64
	Low, High float64 // interval; equal: unknown
	Look      int
	Shape     Shape  // on a logarithmic axis
	Flagged   bool   // drawn pale, with a dashed border
	Text      string // beside the bar or sign; if Absent, instead of it
	Absent    bool
	Title     string
}

const (
	barHeight    = 13.0
	rowGap       = 9.0
	maxNameWidth = 210.0 // wide("connection-per-message-confirm") is less
)

// SVG draws the rows.
func (r Rows) SVG() string {
	bars := r.X.Kind == Linear
	lines := 0.0 // total number of lines of bars
	for _, row := range r.Rows {
		lines += float64(r.lines(row))
	}
	c := &canvas{}
	height := 8 + lines*barHeight + float64(len(r.Rows))*rowGap + bottom
	c.open(height, r.Title)
	f := r.frame(height)
	for _, t := range f.x.ticks() {
		x := f.left + t.at*(f.right-f.left)
		c.line("grid", x, f.top, x, f.bottom)
	}
	c.line("base", f.left, f.top, f.left, f.bottom)
	r.ticks(c, f)
	y := f.top + rowGap/2
	for _, row := range r.Rows {
		n := float64(r.lines(row))
		c.label("", "end", f.left-6, y+n*barHeight/2+fontSize*0.35, row.Name, f.left-8)
		if bars {
			row.bars(c, f, y)
		} else {
			row.dots(c, f, y)
		}
		y += n*barHeight + rowGap
	}
	return c.end()
}

// lines returns the number of lines of a row: one per bar, or one per look of signs.
func (r Rows) lines(row Row) int {
	if r.X.Kind == Linear {
		return max(1, len(row.Values))
	}
	return max(1, looks(row))
}

func looks(row Row) int {
	seen := map[int]bool{}
	for _, v := range row.Values {
		seen[v.Look] = true
	}
	return len(seen)
}

func (r Rows) frame(height float64) frame {
	var xs []float64
	name, text := 0.0, 0.0
	for _, row := range r.Rows {
		name = max(name, min(maxNameWidth, wide(row.Name)))
		for _, v := range row.Values {
			if !v.Absent {
				xs = append(xs, v.At)
			}
			if v.High > v.Low && !v.Absent {
				xs = append(xs, v.Low, v.High)
			}
			if !v.Absent {
				text = max(text, min(wide(v.Text), 140))
			}
		}
	}
	return frame{x: r.X.fit(xs), left: name + 10, right: width - max(right, text+6), top: 4, bottom: height - bottom}
}

func (r Rows) ticks(c *canvas, f frame) {
	free := 0.0
	for i, t := range f.x.ticks() {
		x := f.left + t.at*(f.right-f.left)
		half := wide(t.text) / 2
		if at := min(x, width-half); i == 0 || at-half >= free {
			c.text("soft", "middle", at, f.bottom+15, t.text)
			free = at + half + 4
		}
	}
	c.text("soft", "end", width-right, c.height-5, r.X.Label)
}

func (row Row) bars(c *canvas, f frame, y float64) {
	for _, v := range row.Values {
		base := y + barHeight/2 + fontSize*0.35
		if v.Absent {
			v.absent(c, f, base)
			y += barHeight
			continue
		}
		x := f.px(v.At)
		class := look(v.Look)
		if v.Shape == hollow {
			class += " m hollow bar"
		}
		if v.Flagged {
			class += " flagged"
		}
		c.rect(class, f.left, y+1.5, x-f.left, barHeight-3, v.Title)
		if v.High > v.Low {
			v.whisker(c, f, y+barHeight/2)
		}
		x = max(x, f.px(v.High)) + 4
		c.label("", "start", x, base, v.Text, width-x)
		y += barHeight
	}
}

// absent draws the text of a bar without a value.
func (v Bar) absent(c *canvas, f frame, y float64) {
	fmt.Fprintf(c, `<text class="soft" x="%s" y="%s">%s<title>%s</title></text>`+"\n", num(f.left+4), num(y),
		html.EscapeString(v.Text), html.EscapeString(v.Title))
}

func (v Bar) whisker(c *canvas, f frame, y float64) {
	low, high := f.px(v.Low), f.px(v.High)
	c.line("base", low, y, high, y)
	c.line("base", low, y-3, low, y+3)
	c.line("base", high, y-3, high, y+3)
}

// dots draws signs. Signs of the same look share a line.
func (row Row) dots(c *canvas, f frame, y float64) {
	at := map[int]float64{}
	for _, v := range row.Values {
		if _, known := at[v.Look]; !known {
			at[v.Look] = y + barHeight/2
			y += barHeight
			row.span(c, f, v.Look, at[v.Look])
		}
		if v.Absent {
			v.absent(c, f, at[v.Look]+fontSize*0.35)
			continue
		}
		if v.High > v.Low {
			v.whisker(c, f, at[v.Look])
		}
		c.marker(v.Look, v.Shape, v.Flagged, f.px(v.At), at[v.Look], v.Title)
		if v.Text != "" {
			x := max(f.px(v.At), f.px(v.High)) + 8
			c.label("", "start", x, at[v.Look]+fontSize*0.35, v.Text, width-x)
		}
	}
}

// span connects the signs of one look.
func (row Row) span(c *canvas, f frame, of int, y float64) {
	first, last, n := 0.0, 0.0, 0
	for _, v := range row.Values {
		if v.Look != of || v.Absent {
			continue
		}
		if n == 0 {
			first, last = v.At, v.At
		}
		first, last = min(first, v.At), max(last, v.At)
		n++
	}
	if n > 1 {
		c.line("l "+look(of), f.px(first), y, f.px(last), y)
	}
}
