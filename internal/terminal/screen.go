package terminal

import (
	"io"
	"runtime"
	"strings"

	"golang.org/x/term"

	"example.org/lockstep/lockstep/internal/display"
)

// Terminal has the capabilities of the terminal that a program writes to.
type Terminal struct {
	Painter
	Size func() (columns, rows int) // the current size
}

// Of returns the capabilities of a terminal, and whether the cursor can be moved on it. NO_COLOR (no-color.org)
// disables colours. The result is false if TERM is "dumb" or, except on Windows, not set.
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

// Screen shows a block of lines at the bottom of a terminal, below the printed text. Each update is one write, which
// ends with a visible cursor at the start of the line below. So a killed or panicking program leaves the terminal
// usable. It is not safe for concurrent use.
type Screen struct {
	out    io.Writer
	size   func() (columns, rows int)
	widths []int // of the displayed lines
}

// newScreen returns a screen without a block.
func newScreen(out io.Writer, size func() (columns, rows int)) *Screen {
	return &Screen{out: out, size: size}
}

const (
	hide       = "\x1b[?25l"
	show       = "\x1b[?25h"
	eraseBelow = "\x1b[J"
	eraseRight = "\x1b[K"
)

// print writes complete lines of text above the block, and replaces the block. Lines that are too wide are cut, and the
// last lines are left out if the terminal has too few rows.
func (s *Screen) print(text string, lines []string) error {
	columns, rows := s.size()
	var b strings.Builder
	b.WriteString(hide)
	b.WriteString(s.top(columns))
	b.WriteString(eraseBelow)
	b.WriteString(strings.ReplaceAll(text, "\n", eraseRight+"\n"))
	lines = lines[:max(0, min(len(lines), rows-1))]
	s.widths = s.widths[:0]
	for _, line := range lines {
		line = display.Cut(line, columns-1) // some terminals wrap in the last column
		b.WriteString(line)
		b.WriteByte('\n')
		s.widths = append(s.widths, display.StyledWidth(line))
	}
	b.WriteString(show)
	_, err := io.WriteString(s.out, b.String())
	return err
}

// top moves the cursor to the start of the block. A terminal that has become narrower has wrapped the lines, so their
// current number of rows is computed.
func (s *Screen) top(columns int) string {
	rows := 0
	for _, w := range s.widths {
		rows += max(1, (w+columns-1)/max(1, columns))
	}
	return "\r" + strings.Repeat("\x1b[A", rows)
}
