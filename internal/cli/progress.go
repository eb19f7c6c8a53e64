package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"lockstep/internal/controller"
	"lockstep/internal/matrix"
	"lockstep/internal/plan"
)

// progress tells a person how a run goes: one line that is rewritten on a terminal, one plain line a task elsewhere.
type progress struct {
	out      io.Writer
	terminal bool
	columns  int
	run      plan.Run
	done     int // tasks that had an outcome before
	began    time.Time
	ended    int
	mu       sync.Mutex
	written  bool // a line stands that has to be cleared
}

func newProgress(out io.Writer, run plan.Run, done int) *progress {
	p := &progress{out: out, run: run, done: done, began: time.Now()}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.terminal, p.columns = true, 80
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			p.columns = w
		}
	}
	if run.ID != "" {
		p.begin(run)
	}
	return p
}

// begin says what is run.
func (p *progress) begin(run plan.Run) {
	p.run = run
	p.say("%s: %d tasks, about %v, run %s", run.Name, len(run.Cells)*run.Repeat-p.done, p.left(), run.ID)
}

// show is called with everything that happens in the run.
func (p *progress) show(e controller.Progress) {
	switch e.Kind {
	case controller.RunAccepted:
		if p.run.ID == "" && e.Run != nil { // followed from elsewhere
			p.begin(*e.Run)
		}
	case controller.TaskStarted:
		p.line(fmt.Sprintf("%s %s", p.place(e), p.what(e)))
	case controller.LiveRates:
		p.line(fmt.Sprintf("%s %s  %s/s out %s/s in  %v left", p.place(e), p.what(e), thousands(e.Rates.Send), thousands(e.Rates.Receive), p.left()))
	case controller.TaskEnded:
		p.ended++
		p.say("%s %s: %s", p.place(e), e.Task.Cell.Name(), ending(e.Outcome))
	case controller.TaskRetried:
		p.say("%s %s: tried again: %s", p.place(e), e.Task.Cell.Name(), e.Detail)
	case controller.TaskInterrupted, controller.TakenOver, controller.AgentLost, controller.WaitingAgents:
		p.say("%s %s: %s", p.place(e), e.Kind, e.Detail)
	}
}

// what is the task and, of a search, the step that is under way.
func (p *progress) what(e controller.Progress) string {
	if e.Detail == "" {
		return e.Task.Cell.Name()
	}
	return e.Task.Cell.Name() + " " + e.Detail
}

func (p *progress) place(e controller.Progress) string { return fmt.Sprintf("[%d/%d]", e.N, e.Of) }

// ending is a task's outcome in a few words.
func ending(o plan.Outcome) string {
	parts := []string{string(o.Verdict)}
	if v, ok := o.Values["capacity"]; ok && v.NA == "" {
		parts = append(parts, fmt.Sprintf("capacity %s/s", thousands(v.Number)))
	}
	for _, name := range []string{"send.rate", "receive.rate"} {
		if v, ok := o.Values[name]; ok && v.NA == "" {
			parts = append(parts, fmt.Sprintf("%s %s/s", strings.TrimSuffix(name, ".rate"), thousands(v.Number)))
		}
	}
	if o.Verdict != plan.Valid && len(o.Reasons) > 0 {
		parts = append(parts, o.Reasons[0])
	}
	return strings.Join(parts, ", ")
}

// left is how long the rest takes if it goes on like this; before the first task has ended, as planned.
func (p *progress) left() time.Duration {
	rest := len(p.run.Cells)*p.run.Repeat - p.done - p.ended
	each := matrix.Estimate(p.run) / time.Duration(max(1, len(p.run.Cells)*p.run.Repeat))
	if p.ended > 0 {
		each = time.Since(p.began) / time.Duration(p.ended)
	}
	return (each * time.Duration(rest)).Round(time.Second)
}

// line shows what will be overwritten, on a terminal only.
func (p *progress) line(text string) {
	if !p.terminal {
		return
	}
	if r := []rune(text); len(r) >= p.columns {
		text = string(r[:max(0, p.columns-2)]) + "…"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "\r\x1b[2K%s", text)
	p.written = true
}

// say prints a line that stays. Safe for concurrent use.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.out, format+"\n", args...)
}

// close clears the line that stands.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

// clear is close for one who holds mu.
func (p *progress) clear() {
	if p.written {
		fmt.Fprint(p.out, "\r\x1b[2K")
		p.written = false
	}
}

// thousands groups digits: 1234567.8 is "1,234,568".
func thousands(v float64) string {
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
