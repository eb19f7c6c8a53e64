// Package terminal draws on terminals: styles, text of foreign origin without control characters, and a block of lines
// at the foot that is drawn again and again.
package terminal

import "strings"

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
