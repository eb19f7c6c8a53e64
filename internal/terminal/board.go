package terminal

import (
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// DrawEvery is how often a board looks at what it shows: nobody reads faster.
const DrawEvery = 250 * time.Millisecond

// Board is a writer of lines that stay, as a Writer writes them, and, below them, a block that is drawn again whenever
// it has changed. A goroutine of its own does the writing, so that a terminal that takes its time, or is held by its
// user, does not delay the others. It is safe for concurrent use.
type Board struct {
	screen *Screen
	frame  func(columns int) []string
	mu     sync.Mutex
	text   strings.Builder // to be printed
	escape *Writer         // to text
	stop   chan struct{}
	done   chan struct{}
}

// NewBoard starts a board. frame is called from one goroutine, at most once in DrawEvery; what others wrote is clean in
// its lines, which may have styles and go past a Writer.
func NewBoard(out io.Writer, t Terminal, frame func(columns int) []string) *Board {
	b := &Board{screen: NewScreen(out, t.Size), frame: frame, stop: make(chan struct{}), done: make(chan struct{})}
	b.escape = NewWriter(&b.text)
	go b.serve()
	return b
}

// Write takes text that stays. A line is shown when it is whole.
func (b *Board) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.escape.Write(p)
}

// Close shows what was written and takes the block away. What is written later is lost.
func (b *Board) Close() {
	close(b.stop)
	<-b.done
}

func (b *Board) serve() {
	defer close(b.done)
	tick := time.NewTicker(DrawEvery)
	defer tick.Stop()
	var last []string
	columns := 0
	for {
		select {
		case <-tick.C:
		case <-b.stop:
			_ = b.screen.Print(b.take(true), nil) // a terminal that is gone shows nothing
			return
		}
		now, _ := b.screen.size()
		frame := b.frame(now)
		text := b.take(false)
		if text == "" && now == columns && slices.Equal(frame, last) {
			continue
		}
		columns, last = now, frame
		_ = b.screen.Print(text, frame)
	}
}

// take returns the whole lines that were written; in the end, the rest as one, too.
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
