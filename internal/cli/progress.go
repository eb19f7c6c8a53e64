package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/terminal"
	"example.org/lockstep/lockstep/internal/wire"
)

// progress prints one line per ended task and, on a terminal, live metrics below the lines.
type progress struct {
	to       *console
	mu       sync.Mutex
	view     view
	absence  string    // why the run cannot be followed at the moment; empty: it can
	takeover string    // Detail of the last takeover
	since    time.Time // events up to this time print no line; zero: all do
	quiet    bool      // no heading, no live metrics, and no lines of valid tasks
}

// newProgress starts the progress of a run. If it has no run id yet, show prints the heading when an entry names the
// run. If it is quiet, it prints only problems.
func newProgress(to *console, s wire.Submission, quiet bool) *progress {
	p := &progress{to: to, view: newView(s), quiet: quiet}
	if quiet {
		return p
	}
	if s.Run.ID != "" {
		p.print("%s", p.view.heading())
	}
	to.live(p.frame)
	return p
}

func (p *progress) frame(columns int, paint terminal.Painter) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.view.frame(columns, time.Now(), paint)
}

// away prints why the run cannot be followed, once per reason.
func (p *progress) away(why string) {
	p.mu.Lock()
	printed := p.absence == why
	p.absence = why
	p.mu.Unlock()
	if !printed {
		p.print("%s", why)
	}
}

// back prints that the run is followed again, if away was called before.
func (p *progress) back() {
	p.mu.Lock()
	absent := p.absence != ""
	p.absence = ""
	p.mu.Unlock()
	if absent {
		p.print("a controller leads again; the run continues")
	}
}

// show applies an event of the run to the live metrics, and prints a line for the important ones.
func (p *progress) show(e controller.Progress) {
	p.back()
	p.mu.Lock()
	begins := p.view.run.Run.ID == "" // of ctl runs attach
	p.view.run.Apply(e.Entry, time.Now())
	begins = begins && p.view.run.Run.ID != ""
	heading := p.view.heading()
	if e.Kind == wire.TakenOver {
		p.takeover = e.Detail
	}
	repeats := e.Kind == wire.TaskInterrupted && e.Detail == p.takeover
	p.mu.Unlock()
	if begins && !p.quiet {
		p.print("%s", heading)
	}
	if !p.since.IsZero() && !e.At.After(p.since) {
		return
	}
	switch e.Kind {
	case wire.BrokerUnreachable:
		p.print("%s", e.Detail)
	case controller.TaskEnded:
		if e.Outcome.Failure == plan.FailedUnreachable { // one line for the broker was printed
			return
		}
		if p.quiet && !e.Outcome.Failed() {
			return
		}
		p.print("%s: %s", taskOf(e), ending(e.Outcome))
	case wire.AttemptEnded:
		p.print("%s: retried: %s", taskOf(e), e.Detail)
	case wire.TakenOver:
		p.print("%s %s", place(e), e.Detail)
	case wire.TaskInterrupted, wire.AgentLost, wire.WaitingAgents:
		if repeats {
			return
		}
		p.print("%s %s: %s", place(e), e.Kind, e.Detail)
	}
}

// taskOf returns a task's place in the run and the name of its cell, which is empty for a matrix without axes.
func taskOf(e controller.Progress) string {
	return strings.TrimSpace(place(e) + " " + e.Task.Cell.Name())
}

func place(e controller.Progress) string { return fmt.Sprintf("[%d/%s%d]", e.N, bound(e.AtMost), e.Of) }

// bound returns the prefix of a number of tasks that is an upper bound, in its short form.
func bound(open bool) string {
	if open {
		return "≤"
	}
	return ""
}

// ending summarises a task's outcome.
func ending(o plan.Outcome) string {
	parts := []string{o.Verdict.Word()}
	if v, ok := o.Values["capacity"]; ok && v.NA == "" {
		parts = append(parts, fmt.Sprintf("capacity %s/s", display.Decimals(v.Number, 0)))
	}
	for _, name := range []string{"publish.rate", "consume.rate"} {
		if v, ok := o.Values[name]; ok && v.NA == "" {
			parts = append(parts, fmt.Sprintf("%s %s/s", strings.TrimSuffix(name, ".rate"),
				display.Decimals(v.Number, 0)))
		}
	}
	if o.Verdict != plan.Valid && len(o.Reasons) > 0 {
		parts = append(parts, o.Reasons[0])
	}
	return strings.Join(parts, ", ")
}

// print prints a line above the live metrics. It is safe for concurrent use.
func (p *progress) print(format string, args ...any) {
	fmt.Fprintln(p.to, display.Clean(fmt.Sprintf(format, args...)))
}

// close removes the live metrics.
func (p *progress) close() { p.to.plain() }

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
