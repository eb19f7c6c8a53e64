package chart

import (
	"fmt"
	"html"
	"strings"
)

// Plot is a drawing of series over an axis.
type Plot struct {
	Title  string // a description for screen readers
	X, Y   Axis
	Series []Line
	Bands  []Band
	Marks  []Mark
	Hovers []Band // invisible areas that show their text under the pointer
	Absent []Point
}

// Line is a series of points.
type Line struct {
	Name   string
	Look   int   // number of the series: colour and marker
	Dash   int   // dash pattern of the line, 0 to 2
	Shape  Shape // of the markers
	Step   bool  // a value applies until the next point, as for means over time
	Loose  bool  // no line joins the points
	Points []Point
}

// Point is one value. Title describes it as text.
type Point struct {
	X, Y     float64
	Low      float64 // interval with High; equal: unknown
	High     float64
	Flagged  bool // drawn with a ring
	NoMarker bool
	Break    bool // no line from the previous point
	Title    string
}

// Band is a range of the X axis.
type Band struct {
	From, To float64
	Class    string // "band", "fault"
	Text     string // its title
}

// Mark is an event on the X axis.
type Mark struct {
	At   float64
	Text string // a short text
	Full string // its title
}

const (
	plotHeight = 240.0
	top        = 20.0
	right      = 12.0
	bottom     = 34.0
)

// frame is the area of the plot with its scales.
type frame struct {
	x, y                     scale
	left, right, top, bottom float64
}

func (f frame) px(x float64) float64 { return f.left + f.x.place(x)*(f.right-f.left) }
func (f frame) py(y float64) float64 { return f.bottom - f.y.place(y)*(f.bottom-f.top) }

// SVG draws the plot.
func (p Plot) SVG() string {
	c := &canvas{}
	c.open(plotHeight, p.Title)
	f := p.frame()
	p.bands(c, f)
	f.grid(c)
	for _, l := range p.Series {
		l.draw(c, f)
	}
	for _, a := range p.Absent {
		fmt.Fprintf(c, `<text class="soft" text-anchor="middle" x="%s" y="%s">∅<title>%s</title></text>`+"\n",
			num(f.px(a.X)), num(f.bottom-3), html.EscapeString(a.Title))
	}
	p.marks(c, f)
	for _, h := range p.Hovers {
		c.rect("hover", f.px(h.From), f.top, f.px(h.To)-f.px(h.From), f.bottom-f.top, h.Text)
	}
	return c.end()
}

func (p Plot) frame() frame {
	var xs, ys []float64
	for _, l := range p.Series {
		for _, at := range l.Points {
			xs, ys = append(xs, at.X), append(ys, at.Y)
			if at.High > at.Low {
				ys = append(ys, at.Low, at.High)
			}
		}
	}
	for _, a := range p.Absent {
		xs = append(xs, a.X)
	}
	for _, h := range p.Hovers {
		xs = append(xs, h.From, h.To)
	}
	f := frame{x: p.X.fit(xs), y: p.Y.fit(ys), right: width - right, top: top, bottom: plotHeight - bottom}
	if p.X.Kind == Linear && !p.X.Zero && p.X.At == nil && len(xs) > 0 { // a time axis has no margins
		f.x.from, f.x.to = xs[0], xs[0]
		if p.X.Max > p.X.Min {
			xs = append(xs, p.X.Min, p.X.Max)
		}
		for _, x := range xs {
			f.x.from, f.x.to = min(f.x.from, x), max(f.x.to, x)
		}
		if f.x.to <= f.x.from {
			f.x.from, f.x.to = f.x.from-0.5, f.x.to+0.5
		}
	}
	f.left = 10
	for _, t := range f.y.ticks() {
		f.left = max(f.left, wide(t.text)+10)
	}
	return f
}

// grid draws the axes: grid lines and ticks for Y, as many tick texts for X as fit, and the labels.
func (f frame) grid(c *canvas) {
	for _, t := range f.y.ticks() {
		y := f.bottom - t.at*(f.bottom-f.top)
		c.line("grid", f.left, y, f.right, y)
		c.text("soft", "end", f.left-5, y+fontSize*0.35, t.text)
	}
	c.line("base", f.left, f.bottom, f.right, f.bottom)
	ticks := f.x.ticks()
	free := 0.0
	for i, t := range ticks {
		x := f.left + t.at*(f.right-f.left)
		c.line("base", x, f.bottom, x, f.bottom+4)
		text := t.text
		if f.x.axis.Kind == Ordinal {
			text = fitted(text, max((f.right-f.left)/float64(len(ticks)), 4*charWide))
		}
		half := wide(text) / 2
		at := min(max(x, half), width-half)
		if at-half < free && i > 0 {
			continue
		}
		c.text("soft", "middle", at, f.bottom+15, text)
		free = at + half + 4
	}
	c.text("soft", "end", f.right, plotHeight-5, f.x.axis.Label)
	c.text("soft", "start", 0, fontSize, f.y.axis.Label)
}

func (p Plot) bands(c *canvas, f frame) {
	for _, b := range p.Bands {
		from, to := f.px(b.From), f.px(b.To)
		c.rect(b.Class, from, f.top, max(1, to-from), f.bottom-f.top, b.Text)
	}
}

// marks draws the events. A text that does not fit is only in the title of its mark.
func (p Plot) marks(c *canvas, f frame) {
	free := 0.0
	for _, m := range p.Marks {
		x := f.px(m.At)
		fmt.Fprintf(c, `<g><title>%s</title>`, html.EscapeString(m.Full))
		c.line("mark", x, f.top, x, f.bottom)
		if w := wide(m.Text); x-w/2 > free && x+w/2 < width {
			c.text("marktext", "middle", x, f.top-2, m.Text)
			free = x + w/2 + 2
		}
		c.WriteString("</g>\n")
	}
}

func (l Line) draw(c *canvas, f frame) {
	var path strings.Builder
	for i, p := range l.Points {
		x, y := num(f.px(p.X)), num(f.py(p.Y))
		switch {
		case i == 0 || p.Break:
			fmt.Fprintf(&path, "M%s %s", x, y)
		case l.Step:
			fmt.Fprintf(&path, "H%sV%s", x, y)
		default:
			fmt.Fprintf(&path, "L%s %s", x, y)
		}
	}
	if len(l.Points) > 1 && !l.Loose {
		fmt.Fprintf(c, `<path class="l %s d%d" d="%s"/>`+"\n", look(l.Look), l.Dash, path.String())
	}
	for i, p := range l.Points {
		if p.High > p.Low {
			x := f.px(p.X)
			class := "whisker " + look(l.Look)
			c.line(class, x, f.py(p.Low), x, f.py(p.High))
			c.line(class, x-3, f.py(p.Low), x+3, f.py(p.Low))
			c.line(class, x-3, f.py(p.High), x+3, f.py(p.High))
		}
		if l.Shape != NoMark && !p.NoMarker || l.alone(i) {
			c.marker(l.Look, l.Shape, p.Flagged, f.px(p.X), f.py(p.Y), p.Title)
		}
	}
}

// alone reports whether no line is joined to a point. Such a point always gets a marker, to be visible.
func (l Line) alone(i int) bool {
	return (i == 0 || l.Points[i].Break) && (i == len(l.Points)-1 || l.Points[i+1].Break)
}

// Key returns a legend of lines as an HTML list: the sign of each line and its name.
func Key(lines []Line) string {
	var b strings.Builder
	b.WriteString(`<ul class="key">`)
	for _, l := range lines {
		c := &canvas{}
		if !l.Loose {
			fmt.Fprintf(c, `<path class="l %s d%d" d="M1 6h24"/>`, look(l.Look), l.Dash)
		}
		if l.Shape != NoMark {
			c.marker(l.Look, l.Shape, false, 13, 6, "")
		}
		fmt.Fprintf(&b, `<li><svg class="chart" viewBox="0 0 26 12" aria-hidden="true">%s</svg>%s</li>`,
			strings.TrimSpace(c.String()), html.EscapeString(l.Name))
	}
	b.WriteString("</ul>\n")
	return b.String()
}
