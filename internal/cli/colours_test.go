package cli

import (
	"testing"

	"example.org/lockstep/lockstep/internal/terminal"
)

func TestColours(t *testing.T) {
	const red, yellow, off = "\x1b[31m", "\x1b[33m", "\x1b[0m"
	for text, want := range map[string]string{
		"a  1,000  shared-host* backlog": "a  1,000  " + yellow + "shared-host" + off + "* " + yellow + "backlog" + off,
		"failed¹":                        red + "failed" + off + "¹",
		"3 valid, 0 invalid, 20 failed":  "3 valid, 0 invalid, " + red + "20 failed" + off,
		"3 valid, 2 invalid, 0 failed":   "3 valid, " + red + "2 invalid" + off + ", 0 failed",
		"mode=x: failed: no route":       "mode=x" + red + ": failed: " + off + "no route",
		"an unknown backlogged value":    "an unknown backlogged value",
	} {
		if got := colour(terminal.Painter{Colours: true}, text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
		if got := colour(terminal.Painter{}, text); got != text {
			t.Errorf("without colours %q becomes %q", text, got)
		}
	}
}
