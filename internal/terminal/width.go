// Package terminal knows what a terminal shows: how wide a text is there, what may be written to it, and how a block of lines at its foot is
// drawn again and again.
package terminal

import (
	"strings"
	"unicode"

	"github.com/clipperhouse/displaywidth"
)

var (
	plain  = displaywidth.Options{}
	styled = displaywidth.Options{ControlSequences: true}
)

// Width is how many columns a text without styles takes: East Asian wide characters and emoji, of however many code points, take two, what is
// put on others none. Characters whose width terminals disagree on count as narrow, whatever the locale: output is the same everywhere.
func Width(text string) int { return plain.String(text) }

// Cut shortens a line, which may have styles, to at most so many columns, with "…" where something is missing.
func Cut(line string, columns int) string {
	if columns <= 0 {
		return ""
	}
	return styled.TruncateString(line, columns, "…")
}

// Pad fills a text up to so many columns: behind it, if it is to stand at the left, else before it.
func Pad(text string, columns int, left bool) string {
	pad := strings.Repeat(" ", max(0, columns-Width(text)))
	if left {
		return text + pad
	}
	return pad + text
}

// Wrap breaks text between words into lines of at most width, where words allow it; 0 is any width.
func Wrap(text string, width int) []string {
	words := strings.Fields(text)
	if len(words) == 0 {
		return []string{""}
	}
	if width <= 0 {
		return []string{strings.Join(words, " ")}
	}
	lines := []string{words[0]}
	for _, word := range words[1:] {
		last := &lines[len(lines)-1]
		if Width(*last)+1+Width(word) > width {
			lines = append(lines, word)
		} else {
			*last += " " + word
		}
	}
	return lines
}

// Hang breaks text as Wrap does; all lines but the first are indented.
func Hang(text string, width, indent int) string {
	if width > 0 {
		width = max(1, width-indent)
	}
	return strings.Join(Wrap(text, width), "\n"+strings.Repeat(" ", indent))
}

// Clean makes one harmless line of a text that others wrote: control characters, with which one could move the cursor or rename the window, become "�", and line breaks
// and tabs spaces. What changes the direction of text is a control character, too.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Style is how a text looks, as an SGR parameter; none where colours are off.
type Style string

// The styles. All are of the sixteen that every terminal has, in the colours that its user chose.
const (
	Bold   Style = "1"
	Faint  Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
	Cyan   Style = "36"
)

// Painter writes texts in styles, or as they are. The zero value is without colours.
type Painter struct{ Colours bool }

// Paint writes text in a style.
func (p Painter) Paint(s Style, text string) string {
	if !p.Colours || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// Bar is a part, 0 … 1, of so many columns: full blocks, an eighth of one at their end, and a light line for the rest.
func Bar(part float64, columns int) (full, rest string) {
	const eighths = " ▏▎▍▌▋▊▉"
	if !(part > 0) { // nor a NaN
		return "", strings.Repeat("─", max(0, columns))
	}
	n := int(min(part, 1) * float64(max(0, columns)) * 8)
	full = strings.Repeat("█", n/8)
	if n%8 > 0 {
		full += string([]rune(eighths)[n%8])
	}
	return full, strings.Repeat("─", max(0, columns)-(n+7)/8)
}
