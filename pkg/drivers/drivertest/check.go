package drivertest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.org/lockstep/lockstep/pkg/drivers"
)

const (
	checkLimit   = 6 * time.Minute // for one check
	restartLimit = 8 * time.Minute // for the check that waits until the broker has restarted
	waitLimit    = time.Minute     // for "a few seconds" in the contract, generously; awaited events have twice that
	leakLimit    = time.Minute     // for goroutines to end after Close
)

// result is the result of one check.
type result struct {
	failures, logs []string
	inapplicable   string // why the check does not apply to this driver or harness; "": it applies
}

// report reports the result to a test.
func (r result) report(t *testing.T) {
	t.Helper()
	for _, line := range r.logs {
		t.Log(line)
	}
	for _, line := range r.failures {
		t.Error(line)
	}
	if r.inapplicable != "" {
		t.Logf("does not apply: %s", r.inapplicable)
	}
}

// check is one running check. Only its own goroutine may call fatalf or notApplicable. Its more than 25 methods are
// what several checks do: report, wait, use the driver, and break its connections.
type check struct {
	h    Harness
	t    *testing.T // only for Restart
	ctx  context.Context
	dial *dialer
	wait time.Duration // Harness.wait or waitLimit

	mu       sync.Mutex
	over     bool // the result was returned: errorf and logf have no effect
	result   result
	cleanups []func()
	retried  atomic.Int64 // requests that the driver's library repeated
	broke    atomic.Bool  // the check breaks connections
}

// prove runs one check in its own goroutine, so that a driver that hangs does not block the suite.
func prove(t *testing.T, h Harness, n named) result {
	began := time.Now()
	limit := cmp.Or(n.limit, checkLimit)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c := &check{h: h, t: t, ctx: ctx, dial: newDialer(), wait: cmp.Or(h.wait, waitLimit)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, f := range slices.Backward(c.cleanups) {
				f()
			}
		}()
		n.run(c)
	}()
	select {
	case <-done:
		c.dial.close()
	case <-time.After(limit + c.wait):
		c.errorf("the check hangs; goroutines:\n%s", stacks())
	}
	c.logf("the check took %v", time.Since(began).Round(time.Millisecond))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return c.result
}

func stacks() []byte {
	buf := make([]byte, 64<<10)
	return buf[:runtime.Stack(buf, true)]
}

// checkLeaks reports goroutines that are left. If a check has failed, they are only logged, because the failed check
// may have caused them.
func checkLeaks(before goleak.Option, limit time.Duration, failed bool) (r result) {
	var err error
	for deadline := time.Now().Add(limit); ; {
		if err = goleak.Find(before); err == nil {
			return result{}
		}
		if failed || time.Now().After(deadline) {
			break
		}
	}
	line := fmt.Sprintf("goroutines are left after everything was closed: %v", err)
	if failed {
		return result{logs: []string{line}}
	}
	return result{failures: []string{line}}
}

func (c *check) errorf(format string, a ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over && len(c.result.failures) < 20 {
		c.result.failures = append(c.result.failures, fmt.Sprintf(format, a...))
	}
}

func (c *check) fatalf(format string, a ...any) {
	c.errorf(format, a...)
	runtime.Goexit()
}

// notApplicable ends a check that does not apply to the driver's declaration or to the harness.
func (c *check) notApplicable(format string, a ...any) {
	c.mu.Lock()
	c.result.inapplicable = fmt.Sprintf(format, a...)
	c.mu.Unlock()
	runtime.Goexit()
}

func (c *check) logf(format string, a ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.result.logs = append(c.result.logs, fmt.Sprintf(format, a...))
	}
}

// must ends the check if err is not nil.
func (c *check) must(err error, doing string) {
	if err != nil {
		c.fatalf("%s: %v", doing, err)
	}
}

// within calls f, which may hang. It reports whether f returned in time. If not, the check has failed.
func (c *check) within(limit time.Duration, doing string, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return true
	case <-time.After(limit):
		c.errorf("%s does not return within %v; goroutines:\n%s", doing, limit, stacks())
		return false
	}
}

// eventually waits until ok returns true. what describes what is missing. The wait starts again as long as this
// description changes, because a broker on a busy machine may be slow.
func (c *check) eventually(ok func() bool, what func() string) bool {
	missing, deadline := what(), time.Now().Add(2*c.wait)
	for pause := 50 * time.Microsecond; !ok(); pause = min(2*pause, 5*time.Millisecond) {
		if c.ctx.Err() != nil || time.Now().After(deadline) {
			now := what()
			if now == missing || c.ctx.Err() != nil {
				c.errorf("not within %v: %s", 2*c.wait, now)
				return false
			}
			missing, deadline = now, time.Now().Add(2*c.wait)
		}
		time.Sleep(pause)
	}
	return true
}

// linger gives events that must not happen time to happen.
func (c *check) linger() { time.Sleep(c.quiet()) }

// quiet is the time without an event after which the suite assumes that it will not happen.
func (c *check) quiet() time.Duration {
	switch {
	case c.h.Slow:
		return 300 * time.Millisecond
	case c.h.NoNetwork:
		return 25 * time.Millisecond
	}
	return 80 * time.Millisecond
}

// count is the number of messages of a check that does not need a specific number.
func (c *check) count() int {
	if c.h.Slow {
		return 60
	}
	return 300
}

// env returns the environment of a session of this check.
func (c *check) env() drivers.Env {
	dir, err := os.MkdirTemp("", "drivertest-")
	c.must(err, "make a folder for the session")
	c.cleanups = append(c.cleanups, func() { _ = os.RemoveAll(dir) })
	return drivers.Env{
		Dial: c.dial.dial, Forward: c.dial.forward, Dir: dir,
		Log:     slog.New(slog.NewTextHandler(io.Discard, nil)),
		Access:  drivers.FullAccess(),
		Event:   func(kind drivers.EventKind, detail string) { c.logf("event of the driver: %s: %s", kind, detail) },
		Retried: func(requests int64) { c.retried.Add(requests) },
	}
}

// session opens a session. It is closed at the end of the check.
func (c *check) session() drivers.Session { return c.sessionWith(c.h.Options) }

func (c *check) sessionWith(options []byte) drivers.Session {
	s, err := drivers.Checked(c.ctx, c.h.Driver, options, c.env())
	c.must(err, "open a session")
	c.cleanups = append(c.cleanups, func() {
		c.within(c.wait, "Session.Close", func() { _ = s.Close() })
	})
	return s
}

// topology returns the topology for a use, with a unique name.
func topology(u drivers.Use) drivers.Topology {
	id := make([]byte, 6)
	_, _ = rand.Read(id)
	return drivers.Topology{
		Name:   "drivertest-" + hex.EncodeToString(id),
		Queues: u.Queues, Subscriptions: u.Subscriptions, Bindings: u.Bindings,
		QueueNode: u.QueueNode, Persistent: u.Persistent, Publishers: u.Publishers, Consumers: u.Consumers,
	}
}

// refused reports whether err wraps ErrUnsupported.
func refused(err error) bool { return errors.Is(err, drivers.ErrUnsupported) }
