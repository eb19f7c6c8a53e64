// Package terminal writes to terminals: styles, text of unknown origin without control characters, and a block of lines
// that is updated in place.
package terminal

import "strings"

// Style is an SGR parameter.
type Style string

// The styles. They use only the 16 standard colours, which users can configure.
const (
	Bold   Style = "1"
	Faint  Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
	Cyan   Style = "36"
)

// Painter writes texts in styles, or without styles. The zero value uses none.
type Painter struct{ Colours bool }

// Paint returns text in a style.
func (p Painter) Paint(s Style, text string) string {
	if !p.Colours || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// Bar returns a bar for a part from 0 to 1, columns wide: full blocks with an eighth block at the end, and a light line
// for the rest.
func Bar(part float64, columns int) (full, rest string) {
	const eighths = " ▏▎▍▌▋▊▉"
	if !(part > 0) { // also for NaN
		return "", strings.Repeat("─", max(0, columns))
	}
	n := int(min(part, 1) * float64(max(0, columns)) * 8)
	full = strings.Repeat("█", n/8)
	if n%8 > 0 {
		full += string([]rune(eighths)[n%8])
	}
	return full, strings.Repeat("─", max(0, columns)-(n+7)/8)
}
