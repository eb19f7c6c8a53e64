package cli

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// programOutput is the output of a program so far.
type programOutput struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (w *programOutput) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.Write(p)
}

func (w *programOutput) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

func (w *programOutput) await(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		output := w.String()
		if strings.Contains(output, text) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no %q in the output:\n%s", text, output)
		}
	}
}

// A follower of a queued run is told which run it waits for, also without attaching. Resuming a running run is reported
// at once, with the commands to follow and cancel it. After it was cancelled, earlier events are not printed.
func TestQueuedRunsPrintTheirReason(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().String()
	_ = free.Close()
	start := func() (ctx context.Context, do func(func() int), end func()) {
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		return ctx, func(program func() int) { all.Go(func() { program() }) }, func() { stop(); all.Wait() }
	}
	ctx, daemon, end := start()
	defer end()
	following, follower, leave := start() // before the daemons start
	defer leave()
	var log programOutput
	daemon(func() int { return Controller(ctx, []string{"--open", "--listen", at}, nil, &log, &log) })
	daemon(func() int {
		return Agent(ctx, []string{"--server", "nats://" + at, "--name", "a", "--slots", "2"}, nil, &log, &log)
	})
	log.await(t, "agent=a.2")

	dir := t.TempDir()
	file := filepath.Join(dir, "x.cue")
	if err := os.WriteFile(file,
		[]byte("package matrix\nname: \"x\"\nbrokers: loop: driver: \"loopback\"\ncell: {publishers: rate: 10, measure: \"1h\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctl := func(args ...string) (output *programOutput) {
		output = &programOutput{}
		follower(func() int {
			return Ctl(following, append(args, "--server", "nats://"+at), nil, output, output)
		})
		return output
	}
	ctl("run", "--detach", file).await(t, "-x-")
	log.await(t, "run started")
	defer func() {
		if code := Ctl(ctx, []string{"runs", "cancel", "--server", "nats://" + at, id(log.String())}, nil, &log,
			&log); code != ExitOK {
			t.Errorf("cancel: exit code %d", code)
		}
	}()
	output := ctl("run", "--runs", filepath.Join(dir, "runs"), file)
	output.await(t, "is queued: broker loop, used by run ")
	if text := output.String(); strings.Count(text, "is queued") != 1 {
		t.Errorf("a line is printed more than once:\n%s", text)
	}
	ctl("runs", "attach", "--runs", filepath.Join(dir, "copies"), "latest").await(t,
		"is queued: broker loop, used by run ")

	executed, copies := id(log.String()), filepath.Join(dir, "copies")
	ctl("runs", "attach", "--runs", copies, executed).await(t, "x: 1 task")
	resumed := ctl("run", "--runs", copies, "--resume", executed)
	flags := executed + " --runs " + copies + " --server nats://" + at
	resumed.await(t, "stop it: ctl runs cancel "+executed+" --server nats://"+at)
	if want := "submit run " + executed + ": it is already queued or active; follow it: ctl runs attach " +
		flags; !strings.Contains(resumed.String(), want) {
		t.Errorf("got\n%swant\n%s", resumed, want)
	}
	ctl("runs", "cancel", executed).await(t, "has ended: interrupted")
	resumed = ctl("run", "--runs", copies, "--resume", executed)
	resumed.await(t, "is queued: broker loop, used by run ") // behind the run that waited for it
	ctl("runs", "cancel", executed).await(t, "run "+executed)
	resumed.await(t, "interrupted; resume:")
	if text := resumed.String(); strings.Contains(text, "] interrupted: run was cancelled") {
		t.Errorf("it prints what happened before it was resumed:\n%s", text)
	}
}

// id returns the first run id in a controller's log.
func id(log string) string {
	_, after, _ := strings.Cut(log, " run=")
	name, _, _ := strings.Cut(after, " ")
	return name
}
