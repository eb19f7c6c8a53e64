package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/terminal"
)

// failing and flagged match the words of results that have a colour.
var (
	failing = regexp.MustCompile(`\bfailed\b|\bviolated\b|\b[1-9][0-9,]* (?:invalid|unknown)\b|: (?:invalid|unknown): `)
	flagged = func() *regexp.Regexp {
		words := []string{"inconclusive"}
		for _, f := range plan.Flags() {
			words = append(words, string(f))
		}
		return regexp.MustCompile(`\b(?:` + strings.Join(words, "|") + `)\b`)
	}()
)

// inColours calls render and writes its text. If out is a terminal with colours, failures are red and flags are yellow.
func inColours(out io.Writer, render func(io.Writer) error) error {
	t, is := terminal.Of(out, os.Getenv)
	if !is || !t.Colours {
		return render(out)
	}
	var text bytes.Buffer
	err := render(terminal.NewWriter(&text)) // removes all other control characters
	_, written := terminal.File(out).WriteString(colour(t.Painter, text.String()))
	return errors.Join(err, written)
}

func colour(p terminal.Painter, text string) string {
	text = failing.ReplaceAllStringFunc(text, func(s string) string { return p.Paint(terminal.Red, s) })
	return flagged.ReplaceAllStringFunc(text, func(s string) string { return p.Paint(terminal.Yellow, s) })
}
