package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/semaphore"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire/lease"
	"example.org/lockstep/lockstep/internal/wire/subject"
)

// The services for clients, followed by the services for clients and viewers.
var (
	serviceSubmit = clientService[submitQuery, empty]{subject: subject.ClientServices + "submit",
		size: MaxMessage, timeout: slowTimeout}
	serviceCancel      = clientService[cancelQuery, empty]{subject: subject.ClientServices + "cancel"}
	serviceSchedulePut = clientService[storedSchedule, empty]{subject: subject.ClientServices + "schedule.put",
		size: MaxMessage}
	serviceScheduleRemove = clientService[storedSchedule, empty]{subject: subject.ClientServices + "schedule.remove"}
	serviceBaselineSet    = clientService[BaselineQuery, BaselineAnswer]{
		subject: subject.ClientServices + "baseline.set", parallel: 1, timeout: slowTimeout}
	serviceBaselineRemove = clientService[named, empty]{subject: subject.ClientServices + "baseline.remove"}

	serviceLeader = clientService[empty, lease.Holder]{subject: subject.ViewServices + "leader"}
	serviceAgents = clientService[empty, []AgentInfo]{subject: subject.ViewServices + "agents"}
	serviceRuns   = clientService[empty, []RunState]{subject: subject.ViewServices + "runs", timeout: slowTimeout}
	serviceRun    = clientService[named, RunState]{subject: subject.ViewServices + "run"}
	serviceRead   = clientService[RecordQuery, batch]{subject: subject.ViewServices + "read", parallel: maxReads,
		timeout: slowTimeout}
	serviceStorage = clientService[empty, storageAnswer]{subject: subject.ViewServices + "storage"}
	serviceHistory = clientService[plan.HistoryQuery, plan.HistoryAnswer]{subject: subject.ViewServices + "history",
		parallel: 1, timeout: slowTimeout}
	serviceSchedules = clientService[empty, []string]{subject: subject.ViewServices + "schedules"}
	serviceSchedule  = clientService[named, storedSchedule]{subject: subject.ViewServices + "schedule"}
	serviceHooks     = clientService[empty, []string]{subject: subject.ViewServices + "hooks"}
	serviceBaselines = clientService[empty, []plan.Baseline]{subject: subject.ViewServices + "baselines", parallel: 1,
		timeout: slowTimeout}
)

// Requests and answers of services. A request is checked before it is handled.
type (
	empty struct{}
	// named requests a run, a schedule or a baseline.
	named       struct{ Name string }
	submitQuery struct {
		Run        string
		Key        string // of the submission; repetitions of a request have the same
		Submission []byte // compressed by pack
	}
	cancelQuery    struct{ Run, By string } // By: user@host
	storageAnswer  struct{ Used, Limit uint64 }
	storedSchedule struct {
		Name     string
		Revision uint64
		Value    []byte // compressed by pack
	}
)

func (q named) check() error { return subject.CheckName(q.Name) }

func (q submitQuery) check() error {
	return errors.Join(subject.CheckName(q.Run), subject.CheckName(q.Key))
}

func (q cancelQuery) check() error {
	return errors.Join(subject.CheckName(q.Run), subject.CheckNames(q.By))
}

func (q storedSchedule) check() error { return subject.CheckName(q.Name) }

// Limits of requests: the size in bytes, and the number of concurrent requests of one service.
const (
	smallRequest = 64 << 10
	agentRequest = 512 << 10 // of an arrival, with the nodes of a cluster and the description of a broker
	fewRequests  = 16
	maxReads     = 512 // most of them find nothing new
)

// clientService is a service of the leader for clients. Q is the request and A the answer.
type clientService[Q, A any] struct {
	subject  string
	size     int           // maximum size of a request in bytes; 0: smallRequest
	parallel int           // maximum number of concurrent requests; 0: fewRequests
	timeout  time.Duration // deadline of a client's request; 0: requestTimeout
}

// offer starts to answer a service. handle's context ends with the lease, and after the longest deadline of a client.
func (v clientService[Q, A]) offer(s *services, handle func(context.Context, Q) (A, error)) {
	limits := service{subject: v.subject, size: cmp.Or(v.size, smallRequest), parallel: cmp.Or(v.parallel, fewRequests)}
	s.add(serve(s.leader.conn, limits, func(ctx context.Context, _ string, q Q) (a A, err error) {
		if q, checks := any(q).(interface{ check() error }); checks {
			if err := q.check(); err != nil {
				return a, err
			}
		}
		ctx, cancel := Either(ctx, s.leader.ctx)
		defer cancel()
		ctx, late := context.WithTimeout(ctx, slowTimeout)
		defer late()
		a, err = handle(ctx, q)
		if err != nil && errors.Is(ctx.Err(), context.Canceled) {
			err = ErrNoController // this controller no longer leads: the next one answers
		}
		return a, err
	}))
}

// call requests a service and returns its answer. It ends early if the link was lost and restored, as the answer was
// lost with it. doing is the beginning of its errors; empty: none.
func (v clientService[Q, A]) call(ctx context.Context, c *Client, doing string, q Q) (a A, err error) {
	timeout := cmp.Or(v.timeout, requestTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := c.link(ctx)
	if err == nil {
		asking, stop := conn.again.within(ctx)
		a, err = request[Q, A](asking, conn, nil, v.subject, q)
		lost := asking.Err() != nil && ctx.Err() == nil
		stop()
		switch {
		case err == nil:
		case lost:
			err = errors.New("the connection to the control plane was lost")
		case errors.Is(err, errNotAllowed):
			err = fmt.Errorf("%w: they are those of %s; pass --creds with the client.nk of \"ctl fleet init\"",
				err, cmp.Or(conn.holder, "another role"))
		case errors.Is(err, context.DeadlineExceeded) && !conn.Linked():
			err = fmt.Errorf("no response of the control plane: %w", err)
		case errors.Is(err, context.DeadlineExceeded):
			err = &refused{fmt.Sprintf("no response of a controller within %v; check its log, or start one with \"lockstep-controller\"", timeout), ErrNoController}
		}
	}
	if err != nil && doing != "" {
		err = fmt.Errorf("%s: %w", doing, err)
	}
	return a, err
}

// services are the services that a leader has started to answer.
type services struct {
	leader *Leader
	stops  []func()
	err    error
}

func (s *services) add(stop func(), err error) {
	if s.err = errors.Join(s.err, err); err == nil {
		s.stops = append(s.stops, stop)
	}
}

// started returns the function that stops the services. If one could not be started, it stops the others.
func (s *services) started() (stop func(), err error) {
	stop = func() {
		for _, stop := range s.stops {
			stop()
		}
	}
	if s.err != nil {
		stop()
		return nil, s.err
	}
	return stop, nil
}

func acknowledged[Q any](handle func(context.Context, Q) error) func(context.Context, Q) (empty, error) {
	return func(ctx context.Context, q Q) (empty, error) { return empty{}, handle(ctx, q) }
}

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
// controller leads. ctx bounds the wait for the answer. checkEpoch checks the epoch of the answer; nil: any.
func request[Q, A any](ctx context.Context, c *Conn, checkEpoch func(uint64) error, to string, q Q) (a A, err error) {
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
	if _, none := any(a).(empty); none && answer.Size() > smallRequest { // of an agent to a command, for example
		return a, fmt.Errorf("an answer of %d bytes exceeds the limit of %d: %w", answer.Size(), smallRequest, ErrTooLarge)
	}
	if checkEpoch != nil {
		if err := checkEpoch(lease.Epoch(answer.Header)); err != nil {
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
// handle is called from several goroutines. Its subject is that of the request: tokens of it may name the sender, as
// the server checks them against the permissions of the user. An answer that exceeds the message limit is an error.
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
