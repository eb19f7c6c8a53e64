package terminal

import (
	"slices"
	"strings"
	"testing"
)

// glass emulates a terminal as far as these tests need it: narrow characters, line feeds, and the sequences of Screen.
// Anything else fails the test.
type glass struct {
	t       *testing.T
	columns int
	lines   []string
	at      int // line of the cursor
	column  int
	hidden  bool
}

func (g *glass) Write(p []byte) (int, error) {
	for text := string(p); text != ""; {
		if rest, is := strings.CutPrefix(text, "\x1b["); is {
			end := strings.IndexAny(rest, "AJKhlm")
			g.sequence(rest[:end+1])
			text = rest[end+1:]
			continue
		}
		r := []rune(text)[0]
		text = text[len(string(r)):]
		g.put(r)
	}
	return len(p), nil
}

func (g *glass) put(r rune) {
	switch r {
	case '\r':
		g.column = 0
	case '\n':
		g.at, g.column = g.at+1, 0 // as by the terminal's driver
	default:
		if g.column == g.columns {
			g.at, g.column = g.at+1, 0
		}
		line := g.line()
		*line = append(slices.Clip(*line)[:min(len(*line), g.column)], r)
		g.column++
		g.lines[g.at] = string(*line)
	}
	g.line()
}

func (g *glass) line() *[]rune {
	for len(g.lines) <= g.at {
		g.lines = append(g.lines, "")
	}
	line := []rune(g.lines[g.at])
	return &line
}

func (g *glass) sequence(s string) {
	switch s {
	case "A":
		g.at = max(0, g.at-1)
	case "J":
		g.lines = g.lines[:g.at+1]
		g.lines[g.at] = string((*g.line())[:g.column])
	case "K":
		g.lines[g.at] = string((*g.line())[:min(g.column, len(*g.line()))])
	case "?25l":
		g.hidden = true
	case "?25h":
		g.hidden = false
	default:
		if !strings.HasSuffix(s, "m") {
			g.t.Fatalf("sequence %q", s)
		}
	}
}

// resize wraps lines again, as some terminals do.
func (g *glass) resize(columns int) {
	g.columns = columns
	var lines []string
	for _, line := range g.lines {
		for r := []rune(line); ; r = r[columns:] {
			if len(r) <= columns {
				lines = append(lines, string(r))
				break
			}
			lines = append(lines, string(r[:columns]))
		}
	}
	g.lines, g.at = lines, len(lines)-1
	g.column = len([]rune(lines[g.at]))
}

// TestScreen proves that the block is below the printed lines, once, for any lines and sizes of the terminal, and that
// the cursor is visible after each write.
func TestScreen(t *testing.T) {
	t.Parallel()
	g := &glass{t: t, columns: 20}
	rows := 6
	s := &screen{out: g, size: func() (int, int) { return g.columns, rows }}
	for _, step := range []struct {
		do   func() error
		want string
	}{
		{func() error { return s.print("", []string{"one", "two"}) }, "one|two|"},
		{func() error { return s.print("", []string{"longer one", "two", "three"}) }, "longer one|two|three|"},
		{func() error { return s.print("", []string{"1"}) }, "1|"},
		{func() error { return s.print("stays\nalso\n", []string{"2"}) }, "stays|also|2|"},
		{func() error { return s.print("", []string{"this line is too long for it", "b"}) },
			"stays|also|this line is too l…|b|"},
		{func() error { g.resize(8); return s.print("", []string{"a", "b"}) }, "stays|also|a|b|"},
		{func() error { g.resize(20); return s.print("", []string{"1", "2", "3", "4", "5", "6"}) }, "stays|also|1|2|3|4|5|"},
		{func() error { rows = 3; return s.print("", []string{"1", "2", "3"}) }, "stays|also|1|2|"},
		{func() error { return s.print("", nil) }, "stays|also|"},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(g.lines, "|"); got != step.want || g.hidden {
			t.Errorf("shows %q (cursor hidden: %v), want %q", got, g.hidden, step.want)
		}
	}
}

// TestOf proves that output that is no terminal, or a terminal that cannot move its cursor, gets plain lines.
func TestOf(t *testing.T) {
	t.Parallel()
	if _, is := Of(&strings.Builder{}, func(string) string { return "xterm" }); is {
		t.Error("a builder is a terminal")
	}
}
