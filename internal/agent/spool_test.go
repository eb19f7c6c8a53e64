package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/wire"
	"lockstep/pkg/drivers"
)

// childURL makes this test an agent of its own, that can be killed.
const childURL, childDir = "LOCKSTEP_TEST_AGENT", "LOCKSTEP_TEST_AGENT_DIR"

func child(url string) int {
	probes["child"] = &probe{}
	conn, err := wire.Dial(context.Background(), url, wire.Auth{})
	if err == nil {
		dir := os.Getenv(childDir)
		err = Serve(context.Background(), conn, Config{Name: "a1", Dir: dir, Spool: filepath.Join(dir, "spool"), Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Access: drivers.FullAccess()})
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// outage is a control plane that can go away and come back, on files.
type outage struct {
	t      *testing.T
	cfg    wire.ServerConfig
	server *wire.Server
	conn   *wire.Conn
	bench  bench
	dir    string // of the agent
}

func newOutage(t *testing.T) *outage {
	t.Helper()
	o := &outage{t: t, cfg: wire.ServerConfig{Listen: "127.0.0.1:0", Dir: t.TempDir()}, dir: t.TempDir()}
	o.back()
	o.cfg.Listen = strings.TrimPrefix(o.server.URL(), "nats://")
	t.Cleanup(func() { o.server.Close() })
	return o
}

// back starts the server again; conn is a new connection to it.
func (o *outage) back() {
	o.t.Helper()
	var err error
	for range 50 { // the port may be in use for a moment
		if o.server, err = wire.Embedded(o.t.Context(), o.cfg); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		o.t.Fatal(err)
	}
	if o.conn, err = wire.Dial(o.t.Context(), o.server.URL(), wire.Auth{}); err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(o.conn.Close)
	if err := o.conn.Prepare(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
}

// begin has an agent that is about to come do a task, until it has sent something of its measurement.
func (o *outage) begin(probe string, deadline time.Duration, start func()) wire.Ref {
	o.t.Helper()
	instances := make(chan string, 1)
	deaf, err := o.conn.Heartbeats(func(h wire.Heartbeat) string {
		select {
		case instances <- h.Instance:
		default:
		}
		return ""
	}, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	start()
	o.bench = bench{t: o.t, instance: <-instances, record: lead(o.t, o.conn), entries: make(chan wire.Entry, 1024)}
	deaf()
	ctx, stop := context.WithCancel(o.t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		_ = o.conn.Watch(ctx, "r", 1, func(e wire.Entry) { o.bench.entries <- e })
	}()
	ref := o.bench.assignTo(probe, "t1", func(a *wire.Assignment) {
		brief(0, time.Minute)(a)
		a.Deadline = plan.Duration(deadline)
	})
	o.bench.begin(ref)
	for e := range o.bench.entries {
		if e.Snapshot != nil && e.Snapshot.At > 0 {
			break
		}
	}
	stop()
	<-watched
	return ref
}

// stored reads what the control plane has of a try.
func (o *outage) stored(ref wire.Ref, until func([]record.Snapshot, []wire.Arrival) bool) (snapshots []record.Snapshot, arrivals []wire.Arrival) {
	o.t.Helper()
	ctx, stop := context.WithTimeout(o.t.Context(), 40*time.Second)
	defer stop()
	_ = o.conn.Watch(ctx, "r", 1, func(e wire.Entry) {
		if e.Ref != ref {
			return
		}
		if e.Snapshot != nil {
			snapshots = append(snapshots, *e.Snapshot)
		}
		if e.Arrival != nil {
			arrivals = append(arrivals, *e.Arrival)
		}
		if until(snapshots, arrivals) {
			stop()
		}
	})
	var numbers []uint64
	for i, s := range snapshots {
		if numbers = append(numbers, s.Seq); s.Seq != uint64(i+1) {
			o.t.Errorf("snapshots came as %v: want each once, in order", numbers)
		}
	}
	return snapshots, arrivals
}

// kept lists the files of the agent's spool.
func (o *outage) kept() []string {
	files, _ := filepath.Glob(filepath.Join(o.dir, "spool", "*", "*.json"))
	return files
}

func (o *outage) await(what string, ok func() bool) {
	o.t.Helper()
	for deadline := time.Now().Add(40 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			o.t.Fatalf("waited for %s; the spool has %v", what, o.kept())
		}
	}
}

// TestThePartSurvivesAKilledAgent: what the control plane did not take is on disk while the load runs, and the next process hands it over.
func TestThePartSurvivesAKilledAgent(t *testing.T) {
	o := newOutage(t)
	var process *exec.Cmd
	start := func() {
		process = exec.Command(os.Args[0])
		process.Env = append(os.Environ(), childURL+"="+o.server.URL(), childDir+"="+o.dir)
		if testing.Verbose() {
			process.Stderr = os.Stderr
		}
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
	}
	kill := func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	}
	ref := o.begin("child", time.Minute, start)
	o.server.Close()
	o.await("a snapshot on disk", func() bool { return len(o.kept()) > 1 })
	kill()
	kept := len(o.kept())
	torn := filepath.Join(filepath.Dir(o.kept()[0]), "torn.json.tmp")
	if err := os.WriteFile(torn, []byte("{"), 0o600); err != nil { // as if it had been writing
		t.Fatal(err)
	}
	o.back()
	start()
	defer kill()
	o.await("it to be handed over", func() bool { return len(o.kept()) == 0 })
	all, _ := o.stored(ref, func(all []record.Snapshot, _ []wire.Arrival) bool { return len(all) > kept })
	if len(all) <= kept {
		t.Errorf("%d snapshots are stored, and %d files of them were on disk besides those sent before", len(all), kept)
	}
	if _, err := os.Stat(torn); err == nil {
		t.Error("a file that was not finished is still there")
	}
}

// TestWithoutAControlPlaneTheAgentEndsItsTaskAndKeepsItsPart: it stops by itself at the deadline, removes what it declared, and hands in later.
func TestWithoutAControlPlaneTheAgentEndsItsTaskAndKeepsItsPart(t *testing.T) {
	o := newOutage(t)
	d := &probe{}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	ref := o.begin(d.register(), 5*time.Second, func() {
		conn, err := wire.Dial(t.Context(), o.server.URL(), wire.Auth{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		go func() {
			ended <- Serve(ctx, conn, Config{Name: "a1", Dir: o.dir, Spool: filepath.Join(o.dir, "spool"), answer: time.Second, Access: drivers.FullAccess()})
		}()
	})
	o.server.Close()
	o.await("the end of its task", func() bool { return d.open.Load() == 0 })
	o.await("its teardown", func() bool { return d.teardowns.Load() == 1 }) // after the session's end, where a starved driver did not obey in time
	o.await("its part on disk", func() bool { return len(o.kept()) > 0 })
	o.back()
	all, arrivals := o.stored(ref, func(_ []record.Snapshot, a []wire.Arrival) bool {
		return slices.ContainsFunc(a, func(a wire.Arrival) bool { return a.Step == wire.StepFinish })
	})
	if len(all) == 0 || !all[len(all)-1].Final {
		t.Errorf("%d snapshots, the last of which is not final: the part is not whole", len(all))
	}
	if len(arrivals) == 0 || !strings.Contains(arrivals[len(arrivals)-1].Error, "deadline") {
		t.Errorf("arrivals %+v: want that the deadline ended the task", arrivals)
	}
	o.await("an empty spool", func() bool { return len(o.kept()) == 0 })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestARecordThatIsFullInMidTask: the agent goes on and keeps on disk what it measures, ends when it is told to, and hands over all of it when there is room.
func TestARecordThatIsFullInMidTask(t *testing.T) {
	o := newOutage(t)
	d := &probe{}
	ref := o.begin(d.register(), time.Minute, func() {
		conn, err := wire.Dial(t.Context(), o.server.URL(), wire.Auth{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- Serve(ctx, conn, Config{Name: "a1", Dir: o.dir, Spool: filepath.Join(o.dir, "spool"), answer: time.Second, Access: drivers.FullAccess()})
		}()
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			conn.Close()
		})
	})
	o.limit(1)
	o.await("two parts on disk", func() bool { return len(o.kept()) > 1 })
	o.bench.release(ref, wire.Release{Step: wire.StepFinish})
	o.bench.release(ref, wire.Release{Step: wire.StepTeardown, Agent: "a1"})
	o.bench.release(ref, wire.Release{Step: wire.StepDone})
	o.await("the end of the task", func() bool { return d.open.Load() == 0 })
	if len(o.kept()) < 2 {
		t.Fatalf("the spool has %v when the task has ended: want what the record did not take", o.kept())
	}
	o.limit(1 << 30)
	all, _ := o.stored(ref, func(_ []record.Snapshot, a []wire.Arrival) bool {
		return slices.ContainsFunc(a, func(a wire.Arrival) bool { return a.Step == wire.StepFinish })
	})
	m, final := record.NewMerge(), false
	for _, s := range all {
		m.Add(s)
		final = final || s.Final
	}
	if sent := m.Total(record.Sent); !final || sent != d.sent.Load() {
		t.Errorf("the record has %d snapshots with %d messages, the last of them there: %v; %d messages were sent", len(all), sent, final, d.sent.Load())
	}
	o.await("an empty spool", func() bool { return len(o.kept()) == 0 })
}

// limit says how many bytes the record may have from now on; nothing is deleted.
func (o *outage) limit(bytes int64) {
	o.t.Helper()
	o.conn.LimitRecord(bytes)
	if err := o.conn.Prepare(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
}

func TestADiskThatTakesNothingDoesNotEndATask(t *testing.T) {
	spool := t.TempDir()
	b, d := newBench(t, func(c *Config) { c.Spool, c.room = spool, 1 }), &probe{}
	ref := b.assign("t1", d, brief(0, 50*time.Millisecond))
	b.begin(ref)
	b.arrival(ref, wire.StepStart)
	b.release(ref, wire.Release{Step: wire.StepFinish})
	if a := b.arrival(ref, wire.StepFinish); a.Error != "" || !strings.Contains(a.Remark, "kept in memory alone") || !strings.Contains(a.Remark, "spool is full") {
		t.Errorf("the agent finished with %+v: want a remark, and no error", a)
	}
	b.release(ref, wire.Release{Step: wire.StepDone})
	b.arrival(ref, wire.StepDone)
}

// A disk that is really full, beside a control plane that takes everything.
func TestAFullDiskDoesNotEndATask(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", dir).CombinedOutput(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("mount a small disk (as root): %v: %s", err, out)
		}
		t.Skipf("a small disk cannot be mounted, which root may: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	b, d := newBench(t, func(c *Config) { c.Spool = dir }), &probe{}
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 2<<20), 0o600); err == nil {
		t.Fatal("the disk is larger than it should be")
	}
	ref := b.assign("t1", d, brief(0, 50*time.Millisecond))
	b.begin(ref)
	b.arrival(ref, wire.StepStart)
	b.release(ref, wire.Release{Step: wire.StepFinish})
	if a := b.arrival(ref, wire.StepFinish); a.Error != "" || !strings.Contains(a.Remark, "kept in memory alone") || !strings.Contains(a.Remark, "no space left on device") {
		t.Errorf("the agent finished with %+v: want a remark, and no error", a)
	}
	b.release(ref, wire.Release{Step: wire.StepDone})
	b.arrival(ref, wire.StepDone)
	if left, _ := filepath.Glob(filepath.Join(dir, "*", "*")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

func TestAFullSpoolRefusesTasks(t *testing.T) {
	spool := t.TempDir()
	folder := filepath.Join(spool, "a1")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(folder, "r.t0.x@a1-000000000007.json")
	if err := os.WriteFile(broken, []byte("not what an agent writes"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, d := newBench(t, func(c *Config) { c.Spool, c.room = spool, 10 }), &probe{}
	ref := b.assign("t1", d, func(a *wire.Assignment) { a.Deadline = plan.Duration(500 * time.Millisecond) })
	if a := b.arrival(ref, wire.StepOpen); !strings.Contains(a.Error, "the spool is full") || !strings.Contains(a.Error, folder) {
		t.Errorf("the agent says %q: want that its spool is full, and where it is", a.Error)
	}
	b.arrival(ref, wire.StepDone)
	if _, err := os.Stat(broken + ".unreadable"); err != nil {
		t.Errorf("what cannot be read was not put aside: %v", err)
	}
}

// TestNothingIsKeptOfWhatWasTaken: the spool is empty again after each task.
func TestNothingIsKeptOfWhatWasTaken(t *testing.T) {
	spool := t.TempDir()
	b, d := newBench(t, func(c *Config) { c.Spool = spool }), &probe{}
	ref := b.assign("t1", d, brief(0, 50*time.Millisecond))
	b.begin(ref)
	b.arrival(ref, wire.StepStart)
	if said := b.end(ref); said != "" {
		t.Error(said)
	}
	if left, _ := filepath.Glob(filepath.Join(spool, "*", "*")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}
