package wire

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/semaphore"

	"example.org/lockstep/lockstep/internal/wire/lease"
)

// Limits of the concurrent requests of one service. Further ones wait in the subscription, within its limits.
const (
	maxRequests  = 1024
	maxBytes     = 4 * MaxMessage // of their bodies, each counted decodedSize times
	decodedSize  = 4
	pendingBytes = 2 * MaxMessage // that wait in the subscription of a service for large requests, or for agents
	pendingSmall = 2 << 20        // the same for other services
	maxHeaders   = 16 << 10       // bytes of subjects and headers
	maxUnread    = 64 << 20       // bytes of answers that clients of a server in this process have not read
)

// errUnanswered means that another process must answer the request.
var errUnanswered = errors.New("request for another process")

// headerCode identifies the error of a refusal, so that callers can distinguish it: see codes.
const headerCode = "Lockstep-Code"

// codes are the errors whose identity is transferred with an answer: errors.Is works on both sides.
var codes = map[string]error{
	"changed":     ErrChanged,
	"fenced":      lease.ErrFenced,
	"full":        ErrFull,
	"no-attempt":  ErrNoAttempt,
	"no-leader":   ErrNoController,
	"no-record":   ErrNoRecord,
	"no-run":      ErrNoRun,
	"no-baseline": ErrNoBaseline,
	"no-schedule": ErrNoSchedule,
	"not-stored":  ErrNotStored,
	"protocol":    ErrProtocol,
	"queued":      ErrQueued,
	"too-large":   ErrTooLarge,
	"unreadable":  ErrUnreadable,
}

// refused is an error that a service returned, with the identity from codes.
type refused struct {
	text string
	is   error // nil: callers do not distinguish it
}

func (r *refused) Error() string { return r.text }

func (r *refused) Unwrap() error { return r.is }

// request sends q to a service and returns its answer. The error wraps ErrNoController, without a wait, if no
// controller leads. ctx bounds the wait for the answer. obey checks the epoch of the answer; nil: any.
func request[Q, A any](ctx context.Context, c *Conn, obey func(epoch uint64) error, to string, q Q) (a A, err error) {
	m, err := c.codec.encode(to, q)
	if err != nil {
		return a, err
	}
	answer, err := c.ask(ctx, m)
	if errors.Is(err, nats.ErrNoResponders) {
		return a, ErrNoController
	}
	if err != nil {
		return a, c.unlinked(err)
	}
	if obey != nil {
		if err := obey(lease.Epoch(answer.Header)); err != nil {
			return a, err
		}
	}
	if text := answer.Header.Get(headerError); text != "" {
		return a, &refused{text: oneLine(text), is: codes[answer.Header.Get(headerCode)]}
	}
	return a, c.codec.decode(answer.Header, answer.Data, "the controller", &a)
}

// service configures how requests on a subject are answered.
type service struct {
	subject  string
	size     int    // maximum size of a request in bytes
	parallel int    // maximum number of concurrent requests
	epoch    uint64 // of the answers; 0: none
}

type answered struct{}

// afterAnswer calls do when the answer to the request of ctx was sent, or the request has failed.
func afterAnswer(ctx context.Context, do func()) {
	after := ctx.Value(answered{}).(*[]func())
	*after = append(*after, do)
}

// serve answers requests until stop is called. stop ends the context of the requests in progress and waits for them.
// handle is called from several goroutines. Its subject is that of the request: words of it may name the sender, as the
// server checks them against the permissions of the user. An answer that exceeds the message limit is an error.
func serve[Q, A any](c *Conn, s service, handle func(ctx context.Context, subject string, q Q) (A, error)) (stop func(),
	err error) {
	ctx, cancel := context.WithCancel(context.Background())
	quota := semaphore.NewWeighted(maxBytes)
	pending := pendingSmall
	if s.size > smallRequest || s.epoch > 0 {
		pending = pendingBytes
	}
	unsubscribe, err := c.subscribe(s.subject, pending, func(m *nats.Msg) (*nats.Msg, error) {
		if len(m.Data) > s.size {
			return nil, fmt.Errorf("a request of %d bytes exceeds the limit of %d", len(m.Data), s.size)
		}
		takes := int64(min(maxBytes, max(decodedSize*m.Size(), maxBytes/s.parallel)))
		if quota.Acquire(ctx, takes) != nil {
			return nil, nil // the service was stopped
		}
		go func() {
			defer quota.Release(takes)
			var after []func()
			defer func() {
				for _, do := range after {
					do()
				}
			}()
			var answer *nats.Msg
			err := Guard(c.log, m.Subject, func() error {
				var q Q
				if err := c.codec.decode(m.Header, m.Data, "the peer", &q); err != nil {
					return err
				}
				a, err := handle(context.WithValue(ctx, answered{}, &after), m.Subject, q)
				if err == nil {
					answer, err = c.codec.encode(m.Reply, a)
				}
				return err
			})
			if errors.Is(err, errUnanswered) {
				return
			}
			if err != nil {
				answer = c.codec.refusal(m.Reply, err)
			}
			if s.epoch > 0 {
				lease.Stamp(answer.Header, s.epoch)
			} else if c.awaitReaders(ctx) != nil {
				return
			}
			c.reply(m.Reply, answer)
		}()
		return nil, nil
	})
	if err != nil {
		cancel()
		return nil, err
	}
	return func() {
		unsubscribe()
		cancel()
		_ = quota.Acquire(context.Background(), maxBytes) // waits for all requests
	}, nil
}
