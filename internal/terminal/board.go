package terminal

import (
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// DrawEvery is the interval at which a board draws changes.
const drawEvery = 250 * time.Millisecond

// Board writes lines to a terminal like a Writer. Below them it shows a block, which it draws again after changes. Only
// its own goroutine writes to the terminal, so that a slow or paused terminal does not block its callers. It is safe
// for concurrent use.
type Board struct {
	screen *Screen
	frame  func(columns int) []string
	mu     sync.Mutex
	text   strings.Builder // not yet printed
	escape *Writer         // writes to text
	stop   chan struct{}
	done   chan struct{}
}

// NewBoard starts a board. frame is called from one goroutine, at most once per DrawEvery. Its lines are not escaped,
// so that they may have styles: text from other sources in them must be clean.
func NewBoard(out io.Writer, t Terminal, frame func(columns int) []string) *Board {
	b := &Board{screen: newScreen(out, t.Size), frame: frame, stop: make(chan struct{}), done: make(chan struct{})}
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
