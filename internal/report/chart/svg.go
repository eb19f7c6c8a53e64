// Package chart draws measured figures as SVG that needs no script: axes with units and ticks, and what it shows in
// words (<title>) for each point and for the whole, so that it can be read by pointing, by a screen reader, and on
// paper. The same drawing gives the same bytes.
//
// Colours are those of the page, by CSS (see CSS); series differ in marker and dash, too, so that none is told apart by
// colour alone.
package chart

import (
	_ "embed"
	"fmt"
	"html"
	"strconv"
	"strings"
	"unicode"
)

// CSS styles drawings, in light and dark. A page that shows any has it once.
//
//go:embed chart.css
var CSS string

// Series is how many looks there are; series of higher numbers begin again.
const Series = 6

const (
	width    = 440.0 // of every drawing, in its own units
	fontSize = 11.0
	charWide = 6.8 // of the average character in a wide font
)

// canvas collects an SVG document.
type canvas struct {
	strings.Builder
	height float64
}

// open begins a drawing; its title is what a reader who does not see it is told.
func (c *canvas) open(height float64, title string) {
	c.height = height
	fmt.Fprintf(c, `<svg class="chart" viewBox="0 0 %s %s" role="img" aria-label="%s">`, num(width), num(height),
		html.EscapeString(title))
	c.WriteByte('\n')
}

func (c *canvas) end() string {
	c.WriteString("</svg>\n")
	return c.String()
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(c, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`+"\n", class, num(x1), num(y1), num(x2), num(y2))
}

// rect is a rectangle; it tells its title, if there is one.
func (c *canvas) rect(class string, x, y, w, h float64, title string) {
	fmt.Fprintf(c, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"`, class, num(x), num(y), num(max(0, w)),
		num(max(0, h)))
	if title == "" {
		c.WriteString("/>\n")
		return
	}
	fmt.Fprintf(c, "><title>%s</title></rect>\n", html.EscapeString(title))
}

// text writes text that is anchored at its "start", "middle" or "end".
func (c *canvas) text(class, anchor string, x, y float64, text string) {
	fmt.Fprintf(c, `<text class="%s" text-anchor="%s" x="%s" y="%s">%s</text>`+"\n", class, anchor, num(x), num(y),
		html.EscapeString(text))
}

// label is text that is cut to a width; whole it is its title.
func (c *canvas) label(class, anchor string, x, y float64, text string, wide float64) {
	cut := fitted(text, wide)
	if cut == text {
		c.text(class, anchor, x, y, text)
		return
	}
	fmt.Fprintf(c, `<text class="%s" text-anchor="%s" x="%s" y="%s">%s<title>%s</title></text>`+"\n", class, anchor,
		num(x), num(y),
		html.EscapeString(cut), html.EscapeString(text))
}

// Plain is the look of what stands for no series.
const Plain = -1

// look is the class of a series' colour.
func look(series int) string {
	if series < 0 {
		return "plain"
	}
	return fmt.Sprintf("s%d", series%Series)
}

// marker draws the sign of a series: filled for the first of a kind, hollow for the second, a cross for the third. A
// series without signs has the first.
func (c *canvas) marker(series int, shape Shape, ring bool, x, y float64, title string) {
	class := "m " + look(series)
	if shape == Hollow {
		class += " hollow"
	}
	fmt.Fprintf(c, `<g class="%s">`, class)
	if ring {
		fmt.Fprintf(c, `<circle class="ring" cx="%s" cy="%s" r="6.5"/>`, num(x), num(y))
	}
	const r = 3.2
	switch {
	case shape == Cross:
		fmt.Fprintf(c, `<path d="M%s %sl6 6m0-6l-6 6"/>`, num(x-3), num(y-3))
	case series%3 == 1:
		fmt.Fprintf(c, `<rect x="%s" y="%s" width="6" height="6"/>`, num(x-3), num(y-3))
	case series%3 == 2:
		fmt.Fprintf(c, `<path d="M%s %sl4 7h-8z"/>`, num(x), num(y-4))
	default:
		fmt.Fprintf(c, `<circle cx="%s" cy="%s" r="%s"/>`, num(x), num(y), num(r))
	}
	if title != "" {
		fmt.Fprintf(c, "<title>%s</title>", html.EscapeString(title))
	}
	c.WriteString("</g>\n")
}

// Shape is the sign of a value, where one series has several kinds.
type Shape int

// The shapes.
const (
	Filled Shape = iota
	Hollow
	Cross
	NoMark
)

// num writes a coordinate, to a tenth.
func num(x float64) string {
	text := strconv.FormatFloat(x, 'f', 1, 64)
	if text = strings.TrimSuffix(text, ".0"); text == "-0" {
		return "0"
	}
	return text
}

// wide estimates how wide a text is.
func wide(text string) (w float64) {
	for _, r := range text {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case r >= 0x1100:
			w += 2 * charWide
		default:
			w += charWide
		}
	}
	return w
}

// fitted cuts a text that is too wide, in the middle: names often differ at their ends.
func fitted(text string, most float64) string {
	if wide(text) <= most {
		return text
	}
	letters := []rune(text)
	for n := len(letters) - 1; n > 2; n-- {
		cut := string(letters[:(n+1)/2]) + "…" + string(letters[len(letters)-n/2:])
		if wide(cut) <= most {
			return cut
		}
	}
	return "…"
}
