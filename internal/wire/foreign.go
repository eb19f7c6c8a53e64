package wire

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrForeign is wrapped by the error of a stored message that no peer has written there. A NATS server puts its answers, and copies of messages that the asker
// may read, on whatever subject the asker names: also on one that he may not write to himself. Such a message is as if it were not there.
var ErrForeign = errors.New("no peer of Lockstep's has written it there")

// genuine refuses what was not written for the subject on which it is.
func (c *Conn) genuine(h nats.Header, subject string) error {
	version := h.Get(headerProtocol)
	if version != "" && version != strconv.Itoa(c.protocol) {
		return nil // check says so, to a person
	}
	if version == "" || h.Get(headerSubject) != subject {
		return fmt.Errorf("read message on %s: %w", subject, ErrForeign)
	}
	return nil
}

// lastMessage is a subject's last message that is not foreign; without a sequence number if there is none.
func (c *Conn) lastMessage(ctx context.Context, stream, subject string) (stored, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	top, err := c.top(ctx, stream, subject)
	if err != nil || top.Seq == 0 || c.genuine(top.Header, subject) == nil {
		return top, err
	}
	var last stored
	err = c.follow(ctx, stream, []string{subject}, func(m jetstream.Msg, seq uint64) bool {
		if seq <= top.Seq && c.genuine(m.Headers(), subject) == nil {
			last = stored{Seq: seq, Header: m.Headers()}
		}
		return seq < top.Seq
	})
	if err != nil {
		return stored{}, fmt.Errorf("look at %s: %w", stream, err)
	}
	return last, nil
}

// top is a subject's last message, whoever wrote it.
func (c *Conn) top(ctx context.Context, stream, subject string) (stored, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	s, err := c.stream(ctx, stream)
	if err != nil {
		return stored{}, fmt.Errorf("look at %s (is a controller there?): %w", stream, err)
	}
	m, err := s.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return stored{}, nil
	}
	if err != nil {
		return stored{}, fmt.Errorf("look at %s: %w", stream, err)
	}
	return stored{Seq: m.Sequence, Header: m.Header}, nil
}

// clean deletes foreign messages from the end of a subject, so that what peers expect there is there again. It reports whether it had to.
func (c *Conn) clean(ctx context.Context, stream, subject string) (cleaned bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for {
		top, err := c.top(ctx, stream, subject)
		if err != nil || top.Seq == 0 || c.genuine(top.Header, subject) == nil {
			return cleaned, err
		}
		s, err := c.js.Stream(ctx, stream)
		if err == nil {
			err = s.DeleteMsg(ctx, top.Seq)
		}
		if err != nil {
			return cleaned, fmt.Errorf("delete a foreign message of %s: %w", stream, err)
		}
		cleaned = true
	}
}

// held tells whether a lease's value is one that a controller writes.
func (l LeaderInfo) held() bool { return l.Epoch > 0 && l.Instance != "" }

// saw notes when a standby saw the lease renewed last. What is foreign does not renew it.
func (s *stand) saw(revision uint64, held LeaderInfo, at time.Time) {
	if revision == s.revision && !s.since.IsZero() {
		return
	}
	if s.revision == 0 && !held.Released && held.Instance != s.who.Instance {
		s.log.Info("standing by", "leader", held.Name, "host", held.Host, "epoch", held.Epoch)
	}
	if held.held() || s.since.IsZero() {
		s.since = at
	}
	s.revision = revision
}
