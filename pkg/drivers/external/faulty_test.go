package external

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// ledger counts a publisher's callbacks.
type ledger struct {
	mu       sync.Mutex
	accepted map[uint64]bool
	confirms map[uint64]error
	again    int
}

func newLedger() *ledger { return &ledger{accepted: map[uint64]bool{}, confirms: map[uint64]error{}} }

func (l *ledger) onConfirms(tokens []uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, token := range tokens {
		if _, twice := l.confirms[token]; twice {
			l.again++
		}
		l.confirms[token] = err
	}
}

func (l *ledger) spec() drivers.PublisherSpec {
	return drivers.PublisherSpec{Topology: oneQueue, Mode: drivers.ConfirmWindow, MaxInFlight: 1000,
		OnConfirms: l.onConfirms}
}

// A process that violates the protocol or ends is the end of its session. Every accepted message has one confirm, which
// fails if it must. Publishers and consumers are notified once, with the reason, and no process remains.
func TestFaultyWhilePublishing(t *testing.T) {
	noLeaks(t)
	for how, want := range map[string][]string{
		"dies":           {"exit status 7", "segmentation fault, as it were"},
		"garbage":        {"broke the protocol", "nojs", "not the start of a frame"},
		"json":           {"broke the protocol", "read header"},
		"giant":          {"broke the protocol", "not the start of a frame"},
		"cut":            {"broke the protocol", "ends within its header"},
		"twice":          {"broke the protocol", "message 0 is confirmed twice"},
		"ghost":          {"broke the protocol", "were sent"},
		"takes too much": {"broke the protocol", "taken has 1000000 messages"},
		"stranger":       {"broke the protocol", "there never were"},
		"word":           {"broke the protocol", `no message of type "hooray"`},
		"answers twice":  {"broke the protocol", "which is not open"},
		"refuses":        {"broke the protocol", "want closed or rejected"},
		"floods":         {"broke the protocol", "the window is 1024"},
		"asks on":        {"broke the protocol", "a session gets at most 1000"},
		"size":           {"broke the protocol", "bytes left"},
		"lasting":        {"broke the protocol", "last (0 or 1)"},
		"unretries":      {"broke the protocol", "retried has the count -1"},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := openChild(t, how, quick)
			block := make(chan struct{})
			c := consume(t, s, drivers.ConsumerSpec{Topology: oneQueue, Batch: 10, Ack: drivers.AckEach},
				func([]drivers.Delivery) { <-block })
			l := newLedger()
			p := publish(t, s, l.spec())
			var err error
			for n := uint64(0); err == nil && n < 1_000_000; n++ {
				if err = p.Publish(t.Context(), drivers.Message{Token: 1000 + n, Body: []byte("body")}); err == nil {
					l.accepted[1000+n] = true
				}
			}
			if !errors.Is(err, drivers.ErrClosed) {
				t.Errorf("Publish ends with %v, not ErrClosed", err)
			}
			why := ended(t, p, "publisher")
			for _, part := range want {
				if !strings.Contains(why.Error(), part) {
					t.Errorf("%q is not in the error: %v", part, why)
				}
			}
			if err := ended(t, c, "consumer"); !errors.Is(err, drivers.ErrClosed) {
				t.Errorf("the consumer ends with %v, not ErrClosed", err)
			}
			close(block)
			if err := errors.Join(p.Close(), c.Close()); err != nil {
				t.Error(err)
			}
			l.check(t)
			if _, err := s.Connect(t.Context(), drivers.ConnSpec{Topology: oneQueue}); !errors.Is(err, drivers.ErrClosed) {
				t.Errorf("another connection gives %v, not ErrClosed", err)
			}
		})
	}
}

// ended waits for the end of a part and returns its reason.
func ended(t *testing.T, part drivers.Ended, what string) error {
	t.Helper()
	select {
	case <-part.Done():
		return part.Err()
	case <-time.After(60 * time.Second):
		t.Fatalf("end of the %s: not within a minute", what)
		return nil
	}
}

func (l *ledger) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.confirms) != len(l.accepted) || l.again > 0 {
		t.Errorf("%d messages were accepted, %d have a confirm, %d more than one", len(l.accepted), len(l.confirms),
			l.again)
	}
	failed := 0
	for token, err := range l.confirms {
		if !l.accepted[token] {
			t.Errorf("a message that was not accepted has a confirm")
		}
		if err != nil {
			failed++
			if !errors.Is(err, drivers.ErrClosed) {
				t.Errorf("a confirm fails with %v, not ErrClosed", err)
			}
		}
	}
	t.Logf("%d accepted, %d failed", len(l.accepted), failed)
}

// A connection ends with all its publishers and consumers, and no others: when the driver reports its end, and by Cut,
// although the driver accepts nothing.
func TestEndOfAConnection(t *testing.T) {
	noLeaks(t)
	for how, want := range map[string]string{"disconnects": "reset by broker:1", "takes nothing": "was cut"} {
		t.Run(how, func(t *testing.T) {
			s := openChild(t, how, quick)
			other := consume(t, s, drivers.ConsumerSpec{Topology: oneQueue, Batch: 1, Ack: drivers.AckEach},
				func([]drivers.Delivery) {})
			conn := connect(t, s, drivers.PublisherRole, oneQueue)
			if conn.Node() != "broker:1" {
				t.Errorf("its node is %q, want broker:1", conn.Node())
			}
			l, second := newLedger(), newLedger()
			p, err := conn.Publisher(t.Context(), l.spec())
			if err != nil {
				t.Fatal(err)
			}
			q, err := conn.Publisher(t.Context(), second.spec())
			if err != nil {
				t.Fatal(err)
			}
			blocked := make(chan error)
			go func() {
				for n := uint64(0); ; n++ {
					if err := p.Publish(t.Context(), drivers.Message{Token: n}); err != nil {
						blocked <- err
						return
					}
					l.accepted[n] = true
				}
			}()
			if how == "takes nothing" {
				conn.Cut()
			}
			if err := <-blocked; !errors.Is(err, drivers.ErrClosed) {
				t.Errorf("Publish ends with %v, not ErrClosed", err)
			}
			for _, part := range []drivers.Ended{conn, p, q} {
				if err := ended(t, part, "connection or publisher"); !errors.Is(err, drivers.ErrClosed) ||
					!strings.Contains(err.Error(), want) {
					t.Errorf("the reason is %v, not ErrClosed with %q", err, want)
				}
			}
			l.check(t)
			if _, err := conn.Publisher(t.Context(), l.spec()); !errors.Is(err, drivers.ErrClosed) {
				t.Errorf("another publisher gives %v, not ErrClosed", err)
			}
			if err := errors.Join(p.Close(), q.Close(), conn.Close()); err != nil {
				t.Error(err)
			}
			if err := other.Err(); err != nil {
				t.Errorf("another connection ended: %v", err)
			}
			if err := other.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A process that cannot even describe itself is rejected.
func TestFaultyHello(t *testing.T) {
	hurried := quick
	hurried.hello = 300 * time.Millisecond
	for how, want := range map[string][]string{
		"silent": {"driver child", "does not answer hello within 300ms"},
		"quits":  {"driver child", "exit status 3", "first words | no module named broker"},
		"prints": {"Hello, w", "write only frames to standard output"},
		"version": {"protocol 9", "doc is empty", "#Options", "without when", `there is no "mood"`, `there is no "x"`,
			`metric "Heat": invalid name`, `metric "lag": it differs`},
	} {
		t.Run(how, func(t *testing.T) {
			noLeaks(t)
			limit := quick
			if how == "silent" {
				limit = hurried
			}
			_, err := newDriver(t.Context(), "child", childCommand(how), limit, nil)
			for _, part := range want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in the error: %v", part, err)
				}
			}
		})
	}
	if _, err := newDriver(t.Context(), "other", childCommand("good"), quick, nil); err == nil ||
		!strings.Contains(err.Error(), `it calls itself "child"`) {
		t.Errorf("another name gives %v", err)
	}
	if _, err := newDriver(t.Context(), "none", Command{Command: []string{"/there/is/none"}}, quick, nil); err == nil ||
		!strings.Contains(err.Error(), "/there/is/none") {
		t.Errorf("a missing program gives %v", err)
	}
}

// The environment of this program contains secrets, which a driver process must not receive.
func TestEnvironmentIsKept(t *testing.T) {
	t.Setenv("LOCKSTEP_TOKEN", "top-secret")
	c := childCommand("environment")
	c.Env["MINE"] = "yes"
	l, _, err := begin(t.Context(), "child", c, quick, testLog(t))
	if err == nil {
		l.end()
		t.Fatal("it did not leave")
	}
	if strings.Contains(err.Error(), "top-secret") {
		t.Errorf("the driver has this program's secrets: %v", err)
	}
	if env := strings.Join(c.environment(), "\n"); !strings.Contains(env, "MINE=yes") ||
		strings.Contains(env, "top-secret") || !strings.Contains(env, "PATH=") {
		t.Errorf("the environment is %s", env)
	}
}

// A hanging process is killed after several pings without a response.
func TestHangingIsKilled(t *testing.T) {
	noLeaks(t)
	limit := quick
	limit.ping, limit.pings = 60*time.Millisecond, 50
	s := openChild(t, "hangs", limit)
	p := publish(t, s, newLedger().spec())
	if err := ended(t, p, "publisher of a driver that hangs"); !strings.Contains(err.Error(),
		"no word on a ping") {
		t.Errorf("it ends with %v", err)
	}
}

// A request without a response ends with its context, and the session continues.
func TestUnansweredRequest(t *testing.T) {
	noLeaks(t)
	s := openChild(t, "mute", quick)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Probe(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Probe gives %v, not the end of its context", err)
	}
	if err := s.Setup(t.Context(), oneQueue); err != nil {
		t.Errorf("Setup after it: %v", err)
	}
}

// Metrics have the names and units of the description. Other names are errors.
func TestMetrics(t *testing.T) {
	noLeaks(t)
	s := openChild(t, "measures", quick)
	want := []drivers.MetricInfo{drivers.SharedMetrics(drivers.MetricQueueDepth)[0],
		{Name: "segments", Unit: "count", Doc: "open segments"}}
	if got := s.driver.Info().Metrics; !slices.Equal(got, want) {
		t.Errorf("the driver declares %+v, want %+v", got, want)
	}
	got, err := s.Probe(t.Context())
	if want := []drivers.Metric{{Name: "segments", Node: "a", Value: 4}, {Name: "segments", Node: "b", Value: 5},
		{Name: drivers.MetricQueueDepth, Value: 7}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("Probe gives %+v and %v, want %+v", got, err, want)
	}
	for how, want := range map[string]string{"undeclared": `"lag" is not declared`, "negative": `"segments" is -1`} {
		if _, err := openChild(t, how, quick).Probe(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Probe gives %v, want %s", how, err, want)
		}
	}
}

// A driver that accepts no messages blocks Publish at the maximum in flight, until its context ends.
func TestBackpressure(t *testing.T) {
	noLeaks(t)
	s := openChild(t, "takes nothing", quick)
	for _, size := range []int{1, 64 << 10} {
		p := publish(t, s, newLedger().spec())
		var err error
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		n := 0
		for err == nil {
			if err = p.Publish(ctx, drivers.Message{Body: make([]byte, size)}); err == nil {
				n++
			}
		}
		cancel()
		if limit := min(windowMessages, windowBytes/size); n > limit || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("of %d bytes, %d messages were accepted, at most %d; then %v", size, n, limit, err)
		}
		_ = p.Close()
	}
	p := publish(t, s, newLedger().spec())
	if err := p.Publish(t.Context(), drivers.Message{Body: make([]byte, maxMessage+1)}); err == nil ||
		!strings.Contains(err.Error(), "accepts at most") {
		t.Errorf("a message beyond the bound gives %v", err)
	}
}

// An unknown kind of error is a protocol error. "unsupported" is the kind for undeclared features.
func TestUnsupported(t *testing.T) {
	if _, err := openChild(t, "good", quick).Describe(t.Context()); !errors.Is(err, drivers.ErrUnsupported) {
		t.Errorf("Describe gives %v, not ErrUnsupported", err)
	}
	s := openChild(t, "kind", quick)
	if _, err := s.Describe(t.Context()); err == nil {
		t.Error("Describe gives no error")
	}
	if err := s.Setup(t.Context(), oneQueue); err == nil || !strings.Contains(err.Error(), `"weird"`) {
		t.Errorf("after an error of an unknown kind Setup gives %v", err)
	}
}

// Closing a session ends a process that does not end by itself, and its child processes.
func TestNothingIsLeft(t *testing.T) {
	noLeaks(t)
	for _, how := range []string{"good", "stays", "orphan", "chatty"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := openChild(t, how, quick)
			pid := s.link.proc.number()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if there, words := group(t, pid); there {
				t.Errorf("something of the driver's process group %d is left: %s", pid, words)
			}
			if last := s.link.proc.tail.last(); len(last) > lastLines*(maxLine+3) {
				t.Errorf("%d bytes of its words are kept", len(last))
			}
		})
	}
}

// number returns the process number, or 0 after its end.
func (p *process) number() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// group searches for running processes of a process group.
func group(t *testing.T, pgid int) (bool, string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(files) == 0 {
		t.Skip("this host has no /proc")
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest) // state, parent, process group
		if len(fields) > 2 && fields[0] != "Z" && fields[2] == itoa(pgid) {
			return true, string(text)
		}
	}
	return false, ""
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }
