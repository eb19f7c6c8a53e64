package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Request is one message of the queue: a submission, or a cancellation; or one that cannot be read, which Err says.
type Request struct {
	Run        string
	Seq        uint64 // numbers submissions
	At         time.Time
	Submits    bool // it is a submission, also if it cannot be read
	Submission *Submission
	Key        string // of the submission
	By         string // who cancels; empty: that is not known
	Err        error
}

// queueEvery is how often the queue is read at least. Its leader reads at once what it has stored.
const queueEvery = 5 * time.Second

// Queue hands the queue to handle, from its beginning, until ctx ends. It calls read when all that was there has been
// handed over. One goroutine calls both. An error means that the connection was closed or may not do this.
func (c *Conn) Queue(ctx context.Context, handle func(Request), read func()) error {
	read = sync.OnceFunc(read)
	said := ""
	for seq := uint64(0); ; {
		s, err := c.stream(ctx, streamQueue)
		for err == nil {
			var m *jetstream.RawStreamMsg
			if m, err = s.GetMsg(ctx, seq+1, jetstream.WithGetMsgSubject(">")); err == nil {
				seq = m.Sequence
				c.handleRequest(m, handle)
			}
		}
		pause := retryWait
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			read()
			pause = queueEvery
		case c.nc.IsClosed(), errors.Is(err, nats.ErrPermissionViolation):
			return fmt.Errorf("read the queue: %w", err)
		case err.Error() != said && ctx.Err() == nil:
			said = err.Error()
			c.log.Warn("read the queue: trying again", "err", err)
		}
		one, cancel := context.WithTimeout(ctx, pause)
		select {
		case <-c.queued:
		case <-one.Done():
		}
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// handleRequest reads a message of the queue. The submission of one that panics is refused.
func (c *Conn) handleRequest(m *jetstream.RawStreamMsg, handle func(Request)) {
	words := strings.Split(m.Subject, ".")
	r := Request{Seq: m.Sequence, At: m.Time, Submits: len(words) == 4 && words[2] == "submit"}
	if r.Run, r.Err = untoken(words[len(words)-1]); r.Err != nil {
		return // nobody to tell
	}
	err := Guard(c.log, m.Subject, func() error {
		if !r.Submits {
			r.By = canceller(m.Data)
		} else {
			var s Submission
			r.Key = m.Header.Get(jetstream.MsgIDHeader)
			if r.Err = c.unpack(m.Header, m.Data, "the client", &s); r.Err == nil {
				if r.Err = s.check(r.Run); r.Err == nil {
					r.Submission = &s
				}
			}
		}
		handle(r)
		return nil
	})
	if err != nil {
		r.Submission, r.Err = nil, err
		handle(r)
	}
}

// check returns an error unless the submission is of a run, and all its names may be parts of subjects.
func (s Submission) check(run string) error {
	if s.Run.ID != run {
		return fmt.Errorf("read submission: it holds run %.20q", s.Run.ID)
	}
	names := []string{s.Schedule, s.Run.Name, s.By}
	for _, t := range s.Run.Cells {
		names = append(names, t.ID+"-r"+strconv.Itoa(s.Run.Repeat)) // the longest of its tasks' names
	}
	if err := checkNames(names...); err != nil {
		return fmt.Errorf("read submission: %w", err)
	}
	return nil
}

// canceller is who cancels, as far as that is said.
func canceller(body []byte) string {
	var c cancellation
	if json.Unmarshal(body, &c) != nil || len(c.By) > MaxName {
		return ""
	}
	return oneLine(c.By)
}

// maxHeartbeat bounds what an agent may say of itself, which the controller keeps.
const maxHeartbeat = 16 << 10

// AnswerHeartbeats hands every heartbeat to handle, one at a time, until stop is called. handle returns whether the attempt
// that the agent works on is over, and why the agent is refused, if it is. refused is told of each that is, with what it
// said of itself as far as that can be read.
func (l *Lease) AnswerHeartbeats(handle func(Heartbeat) (over bool, refuse error), refused func(h Heartbeat, why string)) (stop func(), err error) {
	c := l.conn
	return c.subscribe(subjectHeartbeat("*"), func(m *nats.Msg) (*nats.Msg, error) {
		var h Heartbeat
		var over bool
		who := "agent " + m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		var refuse error
		if len(m.Data) > maxHeartbeat {
			refuse = fmt.Errorf("a heartbeat of %d bytes: want at most %d; give it fewer labels and targets", len(m.Data), maxHeartbeat)
		} else {
			refuse = c.decode(m.Header, m.Data, who, &h)
		}
		if refuse == nil && subjectHeartbeat(h.Agent) != m.Subject {
			refuse = errors.New(who + " speaks for another")
		}
		if refuse == nil {
			refuse = checkNames(h.Instance, h.Process, h.Busy, h.Try.Run, h.Try.Task, h.Try.Try)
		}
		if refuse == nil {
			over, refuse = handle(h)
		}
		var answer *nats.Msg
		if refuse == nil {
			answer, refuse = c.encode(m.Reply, HeartbeatAnswer{Over: over})
		}
		if refuse != nil {
			refused(introduced(m), oneLine(refuse.Error()))
			answer = c.refusal(m.Reply, refuse)
		}
		stamp(answer, l.who.Epoch)
		return answer, nil
	})
}

// introduced is who sent a heartbeat that was refused: its name by the subject, and what else can be read of it, whatever protocol it speaks.
func introduced(m *nats.Msg) Heartbeat {
	var said struct{ Host, Version string }
	if len(m.Data) <= maxHeartbeat {
		_ = json.Unmarshal(m.Data, &said) // the name is enough
	}
	name, err := untoken(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
	if err != nil {
		name = "?"
	}
	cut := func(text string) string { return strings.ToValidUTF8(text[:min(len(text), MaxName)], "") }
	protocol, _ := strconv.Atoi(m.Header.Get(headerProtocol))
	return Heartbeat{Agent: cut(name), Host: cut(said.Host), Version: cut(said.Version), Protocol: protocol}
}

// subscribe calls handle for each message on a subject, one at a time, until stop is called. It replies with the answer
// that handle returns, or with a refusal that has the text of its error; with neither it does not reply.
func (c *Conn) subscribe(subject string, handle func(m *nats.Msg) (answer *nats.Msg, err error)) (stop func(), err error) {
	sub, err := c.nc.Subscribe(subject, func(m *nats.Msg) {
		var answer *nats.Msg
		err := Guard(c.log, m.Subject, func() (err error) { answer, err = handle(m); return err })
		if err != nil {
			answer = c.refusal(m.Reply, err)
		}
		c.reply(m.Reply, answer)
	})
	if err == nil {
		err = sub.SetPendingLimits(nats.DefaultSubPendingMsgsLimit, maxPendingBytes)
	}
	if err == nil {
		err = c.flush(context.Background(), connectTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("listen to %s: %w", subject, err)
	}
	return func() { _ = sub.Unsubscribe() }, nil // fails only when the connection is closed
}

// reply sends an answer, if there is one. This is the only place in which a controller replies to a peer, and it
// replies only to inboxes, and to the subjects by which the server replaces those of other accounts: a peer may name
// any reply subject, also one of the JetStream API, and the server would accept the reply with the controller's
// permissions. Replies may get lost: whoever requested one has a deadline.
func (c *Conn) reply(inbox string, answer *nats.Msg) {
	if answer != nil && (strings.HasPrefix(inbox, inboxes) || strings.HasPrefix(inbox, borderReplies)) {
		_ = c.nc.PublishMsg(answer)
	}
}

// flush waits until the server has all that was sent. It is not nats.Conn.FlushTimeout: the whole process shares the
// timers of that, and tests in virtual time cannot share timers.
func (c *Conn) flush(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.nc.FlushWithContext(ctx)
}
