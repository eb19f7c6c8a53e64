package cli

import (
	"io"
	"os"
	"sync"

	"lockstep/internal/terminal"
)

// console is where a command reports its progress to a person: the terminal or file of its errors. While a block of
// live metrics stands on the terminal, what is written appears above it. It is safe for concurrent use.
type console struct {
	out   io.Writer
	mu    sync.Mutex
	board *terminal.Board // nil: no block stands
}

func newConsole(out io.Writer) *console { return &console{out: out} }

// Write writes whole lines.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.board != nil {
		return c.board.Write(p)
	}
	return c.out.Write(p)
}

// live puts up a block, which frame makes, if there is a terminal for it.
func (c *console) live(frame func(columns int, paint terminal.Painter) []string) {
	t, is := terminal.Of(c.out, os.Getenv)
	if !is {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.board = terminal.NewBoard(terminal.File(c.out), t,
		func(columns int) []string { return frame(columns, t.Painter) })
}

// plain takes the block away.
func (c *console) plain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.board != nil {
		c.board.Close()
		c.board = nil
	}
}
