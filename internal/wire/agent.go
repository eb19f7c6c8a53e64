package wire

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"lockstep/internal/record"
)

// Pulse sends a heartbeat now, once a second and whenever the controller asks, until ctx ends: then it says goodbye and returns nil. It
// returns an error when the controller refuses the agent, or the connection was closed. now is called from one goroutine.
func (c *Conn) Pulse(ctx context.Context, now func() Heartbeat) error {
	answers := make(chan *nats.Msg, 8)
	inbox := c.nc.NewInbox()
	for _, subject := range []string{inbox, subjectRoll} {
		sub, err := c.nc.ChanSubscribe(subject, answers)
		if err != nil {
			return fmt.Errorf("register with the controller: %w", err)
		}
		defer sub.Unsubscribe() //nolint:errcheck // fails only when the connection is closed
	}
	tick := time.NewTicker(HeartbeatEvery)
	defer tick.Stop()
	first := now()
	may, done := c.refused.watch(ctx, subjectHeartbeat(first.Agent))
	defer done()
	for due := true; ; {
		if due {
			if err := c.beat(now(), inbox); err != nil && c.nc.IsClosed() {
				return fmt.Errorf("send heartbeat: %w", err)
			}
		}
		select {
		case <-tick.C:
			due = true
		case m := <-answers:
			due = m.Subject == subjectRoll
			if err := c.answered(m); err != nil {
				return err
			}
		case <-may.Done():
			if ctx.Err() == nil {
				return c.unentitled(first)
			}
			last := now()
			last.Leaving = true
			_ = c.beat(last, "") // the controller notices without it, too
			_ = c.flush(time.Second)
			return nil
		}
	}
}

// unentitled says why the control plane has refused a heartbeat.
func (c *Conn) unentitled(h Heartbeat) error {
	if h.Agent != h.Process && (c.holder == "" || c.holder == User{Role: RoleAgent, Name: h.Process}.words()) {
		return fmt.Errorf("the credentials of agent %s do not hold for %s: they are for fewer than %d slots; give it less with --slots, or remove its credentials and make others: ctl fleet agent --slots %d DIR %s: %w",
			h.Process, h.Agent, h.Slots, h.Slots, h.Process, nats.ErrPermissionViolation)
	}
	of := "of another name"
	if c.holder != "" {
		of = "those of " + c.holder
	}
	return fmt.Errorf("the credentials of agent %s are %s: give it those of its own (ctl fleet agent DIR %s), or the --name that its credentials are for: %w",
		h.Process, of, h.Process, nats.ErrPermissionViolation)
}

// answered is the refusal that a message is, if it is one. NATS itself answers when no controller is there.
func (c *Conn) answered(m *nats.Msg) error {
	if m.Subject == subjectRoll {
		_ = c.obey(m.Header) // a former leader's call is answered like any
		return nil
	}
	if m.Header.Get(headerProtocol) == "" {
		return nil
	}
	return c.check(m.Header, "the controller")
}

func (c *Conn) beat(h Heartbeat, inbox string) error {
	m, err := c.encode(subjectHeartbeat(h.Agent), h)
	if err != nil {
		return err
	}
	m.Reply = inbox
	return c.nc.PublishMsg(m)
}

// Assignments hands the assignments of one agent process to handle, one after the other, until ctx ends or handle returns false. An
// assignment that cannot be read, of another protocol version, or of a former leader (ErrFenced) comes as an error with the Ref it was for.
func (c *Conn) Assignments(ctx context.Context, agent, instance string, handle func(Assignment, Ref, error) bool) error {
	return c.follow(ctx, streamTasks, []string{subjectAssigned(agent, instance)}, func(m jetstream.Msg, _ uint64) bool {
		if c.genuine(m.Headers(), m.Subject()) != nil {
			return true
		}
		ref := readRef(m.Headers().Get(headerRef))
		var a Assignment
		err := c.decode(m.Headers(), m.Data(), "the controller", &a)
		if err == nil {
			err = c.obey(m.Headers())
		}
		if err == nil && (a.Ref() != ref || a.Agent != agent) {
			err = fmt.Errorf("read assignment: it is for agent %q and task %s, and was sent to agent %q for task %s", a.Agent, a.Task.ID, agent, ref.Task)
		}
		return handle(a, ref, err)
	})
}

// Releases hands the releases of one try of a task to handle, from the first, until ctx ends or handle returns false. The error of one that a
// former leader sent wraps ErrFenced: it is to be passed over.
func (c *Conn) Releases(ctx context.Context, ref Ref, handle func(Release, error) bool) error {
	return c.follow(ctx, streamReleases, []string{subjectRelease(ref)}, func(m jetstream.Msg, _ uint64) bool {
		if c.genuine(m.Headers(), m.Subject()) != nil {
			return true
		}
		var r Release
		err := c.decode(m.Headers(), m.Data(), "the controller", &r)
		if err == nil {
			err = c.obey(m.Headers())
		}
		return handle(r, err)
	})
}

// Arrive stores an agent's arrival at a step, or its failure; once, however often it is called with one key. The key is the agent's own, see NewKey.
func (c *Conn) Arrive(ctx context.Context, key string, a Arrival) error {
	m, err := c.encode(subjectArrival(a.Ref, a.Agent), a)
	if err != nil {
		return fmt.Errorf("arrive at %s: %w", a.Step, err)
	}
	return c.store(ctx, m, messageID(key, "arrive", a.Ref.tokens(), token(a.Agent), string(a.Step), strconv.FormatBool(a.Error != "")))
}

// Snapshot stores a snapshot of one agent; once, however often it is called with one key. An error that wraps ErrTooLarge means that it must be sent in parts.
func (c *Conn) Snapshot(ctx context.Context, key string, ref Ref, s record.Snapshot) error {
	m, err := c.encode(subjectSnapshot(ref, s.Agent), s)
	if err != nil {
		return fmt.Errorf("send snapshot: %w", err)
	}
	return c.store(ctx, m, messageID(key, "snapshot", ref.tokens(), token(s.Agent), strconv.FormatUint(s.Seq, 10)))
}
