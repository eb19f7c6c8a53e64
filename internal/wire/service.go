package wire

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
)

// mostRequests bounds the requests of one service that are handled at the same time. Further ones wait in the
// subscription; the client library drops what exceeds its limits, and requests have deadlines.
const mostRequests = 1024

// headerCode names the error of a refusal that callers distinguish: see codes.
const headerCode = "Lockstep-Code"

// codes are the errors that keep their identity across a request: errors.Is holds for them on both sides.
var codes = map[string]error{
	"changed":     ErrChanged,
	"fenced":      ErrFenced,
	"full":        ErrFull,
	"no-attempt":  ErrNoAttempt,
	"no-leader":   ErrNoController,
	"no-record":   ErrNoRecord,
	"no-run":      ErrNoRun,
	"no-schedule": ErrNoSchedule,
	"not-stored":  ErrNotStored,
	"protocol":    ErrProtocol,
	"too-large":   ErrTooLarge,
	"unreadable":  ErrUnreadable,
}

// refused is an error that a service answered, with the identity that codes gives it.
type refused struct {
	text string
	is   error // nil: none that callers distinguish
}

func (r *refused) Error() string { return r.text }
func (r *refused) Unwrap() error { return r.is }

// request sends q to a service and returns its answer. Without a controller that leads the error wraps ErrNoController,
// at once. ctx bounds the wait for the answer.
func request[Q, A any](ctx context.Context, c *Conn, subject string, q Q) (a A, err error) {
	m, err := c.encode(subject, q)
	if err != nil {
		return a, err
	}
	answer, err := c.ask(ctx, m)
	if errors.Is(err, nats.ErrNoResponders) {
		return a, ErrNoController
	}
	if err != nil {
		return a, err
	}
	if text := answer.Header.Get(headerError); text != "" {
		return a, &refused{text: text, is: codes[answer.Header.Get(headerCode)]}
	}
	return a, c.decode(answer.Header, answer.Data, "the controller", &a)
}

// serve answers requests on a subject until stop is called, which also waits for the requests in progress and ends their
// context. handle is called from several goroutines; subject is that of the request, whose words may name who asks: the
// server checks them against the permissions of the user. An answer that exceeds the message limit is an error.
func serve[Q, A any](c *Conn, subject string, handle func(ctx context.Context, subject string, q Q) (A, error)) (stop func(), err error) {
	return serveUpTo(c, subject, MaxMessage, mostRequests, handle)
}

// serveUpTo is serve with limits: of the bytes of a request, and of the requests that are handled at the same time.
func serveUpTo[Q, A any](c *Conn, subject string, size, parallel int,
	handle func(ctx context.Context, subject string, q Q) (A, error)) (stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	slots := make(chan struct{}, parallel)
	unsubscribe, err := c.subscribe(subject, func(m *nats.Msg) (*nats.Msg, error) {
		if len(m.Data) > size {
			return nil, fmt.Errorf("a request of %d bytes: want at most %d", len(m.Data), size)
		}
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			var answer *nats.Msg
			err := Guard(c.log, m.Subject, func() error {
				var q Q
				if err := c.decode(m.Header, m.Data, "the peer", &q); err != nil {
					return err
				}
				a, err := handle(ctx, m.Subject, q)
				if err == nil {
					answer, err = c.encode(m.Reply, a)
				}
				return err
			})
			if err != nil {
				answer = c.refusal(m.Reply, err)
			}
			c.reply(m.Reply, answer)
		})
		return nil, nil
	})
	if err != nil {
		cancel()
		return nil, err
	}
	return func() {
		unsubscribe()
		cancel()
		running.Wait()
	}, nil
}
