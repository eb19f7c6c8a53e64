package terminal

import (
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"example.org/lockstep/lockstep/internal/display"
)

// Terminal has the capabilities of the terminal that a program writes to.
type Terminal struct {
	Painter Painter
	Size    func() (columns, rows int) // the current size
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

// screen shows a block of lines at the bottom of a terminal, below the printed text. Each update is one write, which
// ends with a visible cursor at the start of the line below. So a killed or panicking program leaves the terminal
// usable. It is not safe for concurrent use.
type screen struct {
	out    io.Writer
	size   func() (columns, rows int)
	widths []int // of the displayed lines
}

const (
	hide       = "\x1b[?25l"
	show       = "\x1b[?25h"
	eraseBelow = "\x1b[J"
	eraseRight = "\x1b[K"
)

// print writes complete lines of text above the block, and replaces the block. Lines that are too wide are cut, and the
// last lines are left out if the terminal has too few rows.
func (s *screen) print(text string, lines []string) error {
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
func (s *screen) top(columns int) string {
	rows := 0
	for _, w := range s.widths {
		rows += max(1, (w+columns-1)/max(1, columns))
	}
	return "\r" + strings.Repeat("\x1b[A", rows)
}

// drawEvery is the interval at which a board draws changes.
const drawEvery = 250 * time.Millisecond

// Board writes lines to a terminal like a Writer. Below them it shows a block, which it draws again after changes. Only
// its own goroutine writes to the terminal, so that a slow or paused terminal does not block its callers. It is safe
// for concurrent use.
type Board struct {
	screen *screen
	frame  func(columns int) []string
	mu     sync.Mutex
	text   strings.Builder // not yet printed
	escape *Writer         // writes to text
	stop   chan struct{}
	done   chan struct{}
}

// NewBoard starts a board. frame is called from one goroutine, at most once per drawEvery. Its lines are not escaped,
// so that they may have styles: text from other sources in them must be clean.
func NewBoard(out io.Writer, t Terminal, frame func(columns int) []string) *Board {
	b := &Board{screen: &screen{out: out, size: t.Size}, frame: frame, stop: make(chan struct{}), done: make(chan struct{})}
	b.escape = NewWriter(&b.text)
	go b.serve()
	return b
}

// Write adds text above the block. A line is shown when it is complete.
func (b *Board) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.escape.Write(p)
}

// Close prints the written text and removes the block. Later text is lost.
func (b *Board) Close() {
	close(b.stop)
	<-b.done
}

func (b *Board) serve() {
	defer close(b.done)
	tick := time.NewTicker(drawEvery)
	defer tick.Stop()
	var last []string
	columns := 0
	for {
		select {
		case <-tick.C:
		case <-b.stop:
			_ = b.screen.print(b.take(true), nil) // an error means that the terminal is closed
			return
		}
		now, _ := b.screen.size()
		frame := b.frame(now)
		text := b.take(false)
		if text == "" && now == columns && slices.Equal(frame, last) {
			continue
		}
		columns, last = now, frame
		_ = b.screen.print(text, frame)
	}
}

// take returns the complete lines that were written and, at the end, the rest as a line.
func (b *Board) take(end bool) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := b.text.String()
	whole := strings.LastIndexByte(text, '\n') + 1
	b.text.Reset()
	if rest := text[whole:]; !end {
		b.text.WriteString(rest)
	} else if rest != "" {
		return text + "\n"
	}
	return text[:whole]
}
