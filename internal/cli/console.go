package cli

import (
	"io"
	"os"
	"sync"

	"example.org/lockstep/lockstep/internal/terminal"
)

// console writes the progress of a command to its standard error. Written lines appear above the block of live metrics,
// if one is shown. It is safe for concurrent use.
type console struct {
	out   io.Writer
	mu    sync.Mutex
	board *terminal.Board // nil: no block is shown
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

// live shows a block with the lines of frame if the output is a terminal.
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

// plain removes the block.
func (c *console) plain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.board != nil {
		c.board.Close()
		c.board = nil
	}
}
