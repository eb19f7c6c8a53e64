package terminal

import (
	"io"
	"runtime"
	"strings"

	"golang.org/x/term"

	"lockstep/internal/display"
)

// Terminal is what is known of the terminal that a program writes to.
type Terminal struct {
	Painter
	Size func() (columns, rows int) // as it is now
}

// Of reports whether out is a terminal on which the cursor can be moved, and what it can do. NO_COLOR (no-color.org)
// takes the colours away; a terminal that says that it is dumb, or nothing at all, is treated as none.
func Of(out io.Writer, getenv func(string) string) (Terminal, bool) {
	if !Is(out) {
		return Terminal{}, false
	}
	f := File(out)
	switch kind := getenv("TERM"); {
	case kind == "dumb", kind == "" && runtime.GOOS != "windows":
		return Terminal{}, false
	}
	if !sequences(f) {
		return Terminal{}, false
	}
	return Terminal{Painter: Painter{Colours: getenv("NO_COLOR") == ""}, Size: func() (int, int) {
		columns, rows, err := term.GetSize(int(f.Fd()))
		if err != nil || columns <= 0 || rows <= 0 {
			return 80, 24
		}
		return columns, rows
	}}, true
}

// Screen is a block of lines at the foot of a terminal, below those that stay. Everything it does is one write, at the
// end of which the cursor is to be seen, at the begin of the line below: a program that is killed, or panics, leaves
// the terminal in order. It is for one goroutine at a time.
type Screen struct {
	out    io.Writer
	size   func() (columns, rows int)
	widths []int // of the lines that stand
}

// NewScreen returns a screen without a block.
func NewScreen(out io.Writer, size func() (columns, rows int)) *Screen {
	return &Screen{out: out, size: size}
}

const (
	hide       = "\x1b[?25l"
	show       = "\x1b[?25h"
	eraseBelow = "\x1b[J"
	eraseRight = "\x1b[K"
)

// Draw puts lines where the block stands. Those too wide are cut; those for which the terminal is too low are left out,
// from the last.
func (s *Screen) Draw(lines []string) error { return s.write("", lines) }

// Print writes text that stays, whole lines, and the block below it.
func (s *Screen) Print(text string, lines []string) error { return s.write(text, lines) }

// Clear takes the block away.
func (s *Screen) Clear() error {
	if len(s.widths) == 0 {
		return nil
	}
	return s.write("", nil)
}

func (s *Screen) write(text string, lines []string) error {
	columns, rows := s.size()
	var b strings.Builder
	b.WriteString(hide)
	b.WriteString(s.top(columns))
	b.WriteString(eraseBelow)
	b.WriteString(strings.ReplaceAll(text, "\n", eraseRight+"\n"))
	lines = lines[:max(0, min(len(lines), rows-1))]
	s.widths = s.widths[:0]
	for _, line := range lines {
		line = display.Cut(line, columns-1) // in the last column some terminals wrap already
		b.WriteString(line)
		b.WriteByte('\n')
		s.widths = append(s.widths, display.StyledWidth(line))
	}
	b.WriteString(show)
	_, err := io.WriteString(s.out, b.String())
	return err
}

// top moves the cursor to where the block begins. A terminal that was made narrower since has broken its lines, each
// into as many as it takes.
func (s *Screen) top(columns int) string {
	rows := 0
	for _, w := range s.widths {
		rows += max(1, (w+columns-1)/max(1, columns))
	}
	return "\r" + strings.Repeat("\x1b[A", rows)
}
