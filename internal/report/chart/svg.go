// Package chart draws measurements as SVG without scripts. Axes have units and ticks. Each point and the whole drawing
// have a description (<title>), for the pointer and for screen readers. The same drawing gives the same bytes.
//
// Colours are set by the CSS of the page (see CSS). Series also differ in marker and dash, so that colour is never the
// only difference.
package chart

import (
	_ "embed"
	"fmt"
	"html"
	"strconv"
	"strings"
	"unicode"
)

// CSS styles drawings, in light and dark. A page with drawings contains it once.
//
//go:embed chart.css
var CSS string

// Series is the number of distinct looks. Series with higher numbers reuse them from the first.
const Series = 6

const (
	width    = 440.0 // of every drawing, in its own units
	fontSize = 11.0
	charWide = 6.8 // width of an average character in a wide font
)

// canvas collects an SVG document. It is an io.Writer.
type canvas struct {
	strings.Builder
	height float64
}

// open begins a drawing. Screen readers read its title.
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

// rect draws a rectangle. The title is optional.
func (c *canvas) rect(class string, x, y, w, h float64, title string) {
	fmt.Fprintf(c, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"`, class, num(x), num(y), num(max(0, w)),
		num(max(0, h)))
	if title == "" {
		c.WriteString("/>\n")
		return
	}
	fmt.Fprintf(c, "><title>%s</title></rect>\n", html.EscapeString(title))
}

// text writes a text that is anchored at its "start", "middle" or "end".
func (c *canvas) text(class, anchor string, x, y float64, text string) {
	fmt.Fprintf(c, `<text class="%s" text-anchor="%s" x="%s" y="%s">%s</text>`+"\n", class, anchor, num(x), num(y),
		html.EscapeString(text))
}

// label writes a text, shortened to the width wide. The title of a shortened text is the whole text.
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

// Plain is the look of legend entries that belong to no series.
const Plain = -1

// look returns the CSS class of a series' colour.
func look(series int) string {
	if series < 0 {
		return "plain"
	}
	return fmt.Sprintf("s%d", series%Series)
}

// marker draws the marker of a value. The series determines its form: circle, square or triangle. The shape makes it
// filled or hollow, or replaces it by a cross. ring draws a ring around it.
func (c *canvas) marker(series int, shape Shape, ring bool, x, y float64, title string) {
	class := "m " + look(series)
	if shape == hollow {
		class += " hollow"
	}
	fmt.Fprintf(c, `<g class="%s">`, class)
	if ring {
		fmt.Fprintf(c, `<circle class="ring" cx="%s" cy="%s" r="6.5"/>`, num(x), num(y))
	}
	const r = 3.2
	switch {
	case shape == cross:
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

// Shape distinguishes the values of one series.
type Shape int

// The shapes.
const (
	filled Shape = iota
	hollow
	cross
	NoMark
)

// num formats a coordinate with one decimal.
func num(x float64) string {
	text := strconv.FormatFloat(x, 'f', 1, 64)
	if text = strings.TrimSuffix(text, ".0"); text == "-0" {
		return "0"
	}
	return text
}

// wide estimates the width of a text.
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

// fitted shortens a text in the middle to a maximum width: names often differ at their ends.
func fitted(text string, maxWidth float64) string {
	if wide(text) <= maxWidth {
		return text
	}
	letters := []rune(text)
	for n := len(letters) - 1; n > 2; n-- {
		cut := string(letters[:(n+1)/2]) + "…" + string(letters[len(letters)-n/2:])
		if wide(cut) <= maxWidth {
			return cut
		}
	}
	return "…"
}
