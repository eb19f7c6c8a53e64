package display

import (
	"strings"
	"unicode"

	"github.com/clipperhouse/displaywidth"
)

var (
	plain  = displaywidth.Options{}
	styled = displaywidth.Options{ControlSequences: true}
)

// Width returns the number of columns of a text without styles. East Asian wide characters and emoji take two columns,
// combining characters none. Characters of ambiguous width take one in every locale.
func Width(text string) int { return plain.String(text) }

// StyledWidth returns the number of columns of a text that may contain styles.
func StyledWidth(text string) int { return styled.String(text) }

// Cut shortens a line, which may contain styles, to at most so many columns. "…" replaces the missing part.
func Cut(line string, columns int) string {
	if columns <= 0 {
		return ""
	}
	return styled.TruncateString(line, columns, "…")
}

// Pad fills a text with blanks up to so many columns: after the text if it is left-aligned, otherwise before it.
func Pad(text string, columns int, left bool) string {
	pad := strings.Repeat(" ", max(0, columns-Width(text)))
	if left {
		return text + pad
	}
	return pad + text
}

// Wrap breaks a text between words into lines of at most width columns. A longer word has its own line. 0 means any
// width.
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

// Hang breaks a text like Wrap and indents all lines but the first.
func Hang(text string, width, indent int) string {
	if width > 0 {
		width = max(1, width-indent)
	}
	return strings.Join(Wrap(text, width), "\n"+strings.Repeat(" ", indent))
}

// Clean returns text of foreign origin as one line that cannot control a terminal. Line breaks and tabs become blanks.
// Other control characters, and those that change the text direction, become "�".
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

// Dash returns the text, or "–" for an empty one.
func Dash(text string) string {
	if text == "" {
		return "–"
	}
	return text
}

// ShellWord quotes a text as one word for a shell.
func ShellWord(text string) string {
	const plainly = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+,@%=:"
	if text != "" && strings.Trim(text, plainly) == "" && !strings.HasPrefix(text, "-") {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
