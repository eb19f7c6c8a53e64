package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// A contact reports whether a session could be opened, without secrets. The session is closed again. A driver call that
// does not return is abandoned.
func TestContact(t *testing.T) {
	t.Parallel() // it mostly waits
	var text syncBuffer
	b := newHarness(t, func(c *Config) {
		c.leave = 50 * time.Millisecond
		c.Log = slog.New(slog.NewTextHandler(&text, nil))
	})
	contact := func(driver string) wire.Arrival {
		ref := b.assign(driver, &probe{}, func(a *plan.Assignment) {
			a.Contact, a.Deadline = true, plan.Duration(50*time.Millisecond)
			a.Task.Cell.Broker.Driver = driver
			a.Task.Cell.Broker.Secret = []string{"password"}
			a.Task.Cell.Broker.Options = json.RawMessage(`{"password": "${env:PW}"}`)
		})
		return b.awaitArrival(ref, wire.StepOpen)
	}
	if got := contact("contact-open").Error; got != "" {
		t.Errorf("reachable broker: got error %q, want none", got)
	}
	if opened := contactSessions.opened; opened != 1 || contactSessions.open != 0 {
		t.Errorf("got %d opened sessions, %d still open, want 1, 0", opened, contactSessions.open)
	}
	const want = "open session on agent a1: no route for me:***"
	if got := contact("contact-refused").Error; got != want {
		t.Errorf("unreachable broker: got error %q, want %q", got, want)
	}
	if got := contact("contact-stuck").Error; !strings.Contains(got, "driver contact-stuck does not respond") {
		t.Errorf("driver that does not return: got error %q, want \"driver contact-stuck does not respond\"", got)
	}
	close(contactStuck)
	b.stopAgent()
	if err := <-b.served; err != nil {
		t.Error(err)
	}
	b.served <- nil
	if got := text.String(); !strings.Contains(got, "log of the driver: ***") || strings.Contains(got, "s3cr3t") {
		t.Errorf("log of the agent: got\n%s\nwant the driver's line without its secret", got)
	}
}

// contactDriver opens a session, fails, or ignores its context.
type contactDriver struct{ name string }

func init() {
	for _, name := range []string{"contact-open", "contact-refused", "contact-stuck"} {
		drivers.Register(contactDriver{name})
	}
}

var (
	contactSessions contactSession
	contactStuck    = make(chan struct{})
)

func (d contactDriver) Info() drivers.Info { return drivers.Info{Name: d.name, Declare: declareAll} }

func (d contactDriver) Open(_ context.Context, options json.RawMessage, env drivers.Env) (drivers.Session, error) {
	var o struct{ Password string }
	if err := json.Unmarshal(options, &o); err != nil {
		return nil, err
	}
	env.Log.Warn("log of the driver: " + o.Password)
	switch d.name {
	case "contact-refused":
		return nil, errors.New("no route for me:" + o.Password)
	case "contact-stuck":
		<-contactStuck
		return nil, errors.New("too late")
	}
	contactSessions.opened++
	contactSessions.open++
	return &contactSessions, nil
}

// contactSession counts its uses.
type contactSession struct {
	drivers.Session
	opened, open int
}

func (s *contactSession) Close() error {
	s.open--
	return nil
}

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
