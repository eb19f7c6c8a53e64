package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/lockstep/lockstep/internal/cli"
	_ "example.org/lockstep/lockstep/pkg/drivers/loopback"
	"example.org/lockstep/lockstep/test/process"
)

// pty is a pseudo-terminal. written has everything that a program has written to file.
type pty struct {
	file    *os.File // the program's side
	master  *os.File
	mu      sync.Mutex
	written bytes.Buffer
	done    chan struct{}
}

func newPTY(t *testing.T, columns int) *pty {
	t.Helper()
	file, master := process.Terminal(t)
	p := &pty{file: file, master: master, done: make(chan struct{})}
	p.resize(t, columns)
	go p.read()
	t.Cleanup(func() { p.text() })
	return p
}

func (p *pty) resize(t *testing.T, columns int) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(p.file.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Row: 24, Col: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
}

func (p *pty) read() {
	defer close(p.done)
	buffer := make([]byte, 1<<16)
	for {
		n, err := p.master.Read(buffer)
		p.mu.Lock()
		p.written.Write(buffer[:n])
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// await waits until a text was written.
func (p *pty) await(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		p.mu.Lock()
		all := p.written.String()
		p.mu.Unlock()
		if strings.Contains(all, text) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q was not written, but at last: %q", text, all[max(0, len(all)-1000):])
		}
	}
}

// text closes the program's side and returns all of its output.
func (p *pty) text() string {
	_ = p.file.Close() // closed again at the end of the test
	<-p.done
	_ = p.master.Close()
	return p.written.String()
}

const tiny = `package matrix
name: "tiny"
brokers: loop: driver: "loopback"
axes: {broker: ["loop"], label: ["兎🐇"]}
cell: {
	axis: _
	labels: label: axis.label
	publishers: {mode: "confirm-window", maxInFlight: 10, rate: 200}
	warmup: "0s"
	measure: %q
	drain: {idle: "2m", timeout: "2m"} // until all is in
}
`

// ctlRun starts ctl run with a small matrix on a terminal. The returned function waits for the exit code.
func ctlRun(t *testing.T, ctx context.Context, p *pty, measure string) func() int {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "tiny.cue")
	if err := os.WriteFile(file, fmt.Appendf(nil, tiny, measure), 0o600); err != nil {
		t.Fatal(err)
	}
	code := make(chan int, 1)
	go func() {
		code <- cli.Ctl(ctx, []string{"run", "--runs", filepath.Join(dir, "runs"), file}, strings.NewReader(""),
			&bytes.Buffer{}, p.file)
	}()
	return func() int { return <-code }
}

const (
	hide   = "\x1b[?25l"
	show   = "\x1b[?25h"
	colour = "\x1b[36m"
)

// restored fails the test unless the cursor is visible, on an empty last line.
func restored(t *testing.T, text string) {
	t.Helper()
	if strings.LastIndex(text, hide) > strings.LastIndex(text, show) || !strings.HasSuffix(text, "\n"+show) &&
		!strings.HasSuffix(text, "\x1b[J"+show) && !strings.HasSuffix(text, "\n") {
		t.Errorf("the terminal is left as %q", text[max(0, len(text)-200):])
	}
}

// TestLiveViewAtTheEnd proves that the live view is removed at the end of a run.
func TestLiveViewAtTheEnd(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	p := newPTY(t, 100)
	if code := ctlRun(t, t.Context(), p, "1s")(); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	text := p.text()
	if !strings.Contains(text, hide) || !strings.Contains(text, "broker=loop label=兎🐇") {
		t.Errorf("nothing was drawn, or no name: %q", text)
	}
	restored(t, text)
}

// TestLiveView proves that a terminal shows the metrics of the task in colours below the permanent lines, on more lines
// if it is narrow, and that they are removed after Ctrl-C.
func TestLiveView(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("NO_COLOR", "")
	p := newPTY(t, 100)
	ctx, interrupt := context.WithCancel(t.Context())
	end := ctlRun(t, ctx, p, "3m")
	p.await(t, colour) // of the progress bar, after a thirtieth of the run
	p.resize(t, 40)
	p.await(t, " Consume msg/s ") // on its own line
	interrupt()
	if code := end(); code != cli.ExitInterrupted {
		t.Errorf("exit code %d", code)
	}
	text := p.text()
	if !strings.Contains(text, colour) || !strings.Contains(text, "broker=loop label=兎🐇") {
		t.Errorf("no colours, or no name: %q", text)
	}
	for n, drawn := range strings.Split(text, hide)[1:] {
		if strings.Count(drawn, show) != 1 {
			t.Fatalf("frame %d ends with a cursor that is not seen: %q", n, drawn)
		}
	}
	restored(t, text)
}

// TestLiveViewIsRemoved proves that the live view is removed after Ctrl-C, and that the message about it stays.
func TestLiveViewIsRemoved(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("NO_COLOR", "1")
	p := newPTY(t, 80)
	ctx, interrupt := context.WithCancel(t.Context())
	end := ctlRun(t, ctx, p, "1h")
	p.await(t, "measuring")
	interrupt()
	if code := end(); code != cli.ExitInterrupted {
		t.Errorf("exit code %d", code)
	}
	text := p.text()
	if strings.Contains(text, colour) || strings.Contains(text, "\x1b[2m") || strings.Contains(text, "\x1b[1m") {
		t.Errorf("colours, though NO_COLOR is set: %q", text)
	}
	if !strings.Contains(text, "stopping:") {
		t.Errorf("the stop was not announced: %q", text)
	}
	restored(t, text)
}

// TestPlainLines proves that a terminal without cursor movement gets one line per task, without sequences.
func TestPlainLines(t *testing.T) {
	t.Setenv("TERM", "dumb")
	p := newPTY(t, 80)
	if code := ctlRun(t, t.Context(), p, "1s")(); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	text := p.text()
	if strings.ContainsRune(text, '\x1b') || strings.Count(text, "[1/1] broker=loop label=兎🐇: valid") != 1 {
		t.Errorf("%q", text)
	}
}
