package wire

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"lockstep/internal/plan"
)

// What begins the subjects of services of the controller that leads: of those that clients may request, of those that
// viewers may, too, and of those of agents, for which see subjectHeartbeat.
const (
	clientServices = root + "client."
	viewServices   = root + "view."
	agentServices  = root + "agent."
)

// The services for clients, and then those for clients and viewers.
var (
	serviceSubmit         = clientService[submitQuery, empty]{subject: clientServices + "submit", size: MaxMessage, timeout: slowTimeout}
	serviceCancel         = clientService[cancelQuery, empty]{subject: clientServices + "cancel"}
	serviceSchedulePut    = clientService[storedSchedule, empty]{subject: clientServices + "schedule.put", size: MaxMessage}
	serviceScheduleRemove = clientService[storedSchedule, empty]{subject: clientServices + "schedule.remove"}
	serviceBaselineSet    = clientService[BaselineQuery, BaselineAnswer]{
		subject: clientServices + "baseline.set", parallel: 1, timeout: slowTimeout}
	serviceBaselineRemove = clientService[named, empty]{subject: clientServices + "baseline.remove"}

	serviceLeader    = clientService[empty, LeaderInfo]{subject: viewServices + "leader"}
	serviceAgents    = clientService[empty, []AgentInfo]{subject: viewServices + "agents"}
	serviceRuns      = clientService[empty, []RunState]{subject: viewServices + "runs"}
	serviceRun       = clientService[named, RunState]{subject: viewServices + "run"}
	serviceRead      = clientService[recordQuery, batch]{subject: viewServices + "read", parallel: maxReads, timeout: slowTimeout}
	serviceRoom      = clientService[empty, roomAnswer]{subject: viewServices + "room"}
	serviceHistory   = clientService[historyQuery, plan.HistoryAnswer]{subject: viewServices + "history", parallel: 1, timeout: slowTimeout}
	serviceSchedules = clientService[empty, []string]{subject: viewServices + "schedules"}
	serviceSchedule  = clientService[named, storedSchedule]{subject: viewServices + "schedule"}
	serviceHooks     = clientService[empty, []string]{subject: viewServices + "hooks"}
	serviceBaselines = clientService[empty, []plan.Baseline]{subject: viewServices + "baselines", parallel: 1, timeout: slowTimeout}
)

// Requests and answers of services. A request is checked before it is handled.
type (
	empty struct{}
	// named asks for a run, a schedule or a baseline.
	named       struct{ Name string }
	submitQuery struct {
		Run        string
		Key        string // of the submission: one that is repeated has the same
		Submission []byte // packed
	}
	cancelQuery    struct{ Run, By string }
	historyQuery   plan.HistoryQuery
	roomAnswer     struct{ Used, Limit uint64 }
	storedSchedule struct {
		Name     string
		Revision uint64
		Value    []byte // packed
	}
)

func (empty) check() error            { return nil }
func (q named) check() error          { return checkName(q.Name) }
func (q submitQuery) check() error    { return errors.Join(checkName(q.Run), checkName(q.Key)) }
func (q cancelQuery) check() error    { return errors.Join(checkName(q.Run), checkNames(q.By)) }
func (q historyQuery) check() error   { return nil }
func (q storedSchedule) check() error { return checkName(q.Name) }
func (q recordQuery) check() error    { return checkName(q.Run) }
func (q BaselineQuery) check() error  { return errors.Join(checkName(q.Run), checkNames(q.Name, q.By)) }

// Limits of requests: their size in bytes, and how many of one service are handled at the same time.
const (
	smallRequest = 64 << 10
	agentRequest = 256 << 10 // an arrival describes a broker
	fewRequests  = 16
	maxReads     = 512 // most of them wait for something to read
)

// minPoints is what an answer has room for on any server.
const minPoints = 500

// clientService is a service of the controller that leads, for clients: they request Q, and A is the answer.
type clientService[Q interface{ check() error }, A any] struct {
	subject  string
	size     int           // bytes of a request; 0: smallRequest
	parallel int           // requests that are handled at the same time; 0: fewRequests
	timeout  time.Duration // of a client; 0: requestTimeout
}

// offer answers a service. handle's context ends with the lease, and after the longest time that a client waits.
func (v clientService[Q, A]) offer(s *services, handle func(context.Context, Q) (A, error)) {
	limits := service{subject: v.subject, size: cmp.Or(v.size, smallRequest), parallel: cmp.Or(v.parallel, fewRequests)}
	s.add(serve(s.lease.conn, limits, func(ctx context.Context, _ string, q Q) (a A, err error) {
		if err := q.check(); err != nil {
			return a, err
		}
		ctx, cancel := s.lease.bound(ctx)
		defer cancel()
		ctx, late := context.WithTimeout(ctx, slowTimeout)
		defer late()
		a, err = handle(ctx, q)
		if err != nil && errors.Is(ctx.Err(), context.Canceled) {
			err = ErrNoController // no more: another one answers
		}
		return a, err
	}))
}

// call requests a service and returns its answer. It ends early if the link was lost: the answer is, too. Its errors begin
// with what the caller does, unless that is empty.
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
			err = errRelinked
		case errors.Is(err, ErrNotAllowed):
			err = fmt.Errorf("%w: they are those of %s; give --creds client.nk, which \"ctl fleet init\" made",
				err, cmp.Or(conn.holder, "another role"))
		case errors.Is(err, context.DeadlineExceeded) && !conn.Linked():
			err = fmt.Errorf("the control plane does not answer: %w", err)
		case errors.Is(err, context.DeadlineExceeded):
			err = &refused{fmt.Sprintf("no controller answered within %v: see its log, or start one with \"controller\"", timeout), ErrNoController}
		}
	}
	if err != nil && doing != "" {
		err = fmt.Errorf("%s: %w", doing, err)
	}
	return a, err
}

// services are those that a leader has begun to answer.
type services struct {
	lease *Lease
	stops []func()
	err   error
}

func (s *services) add(stop func(), err error) {
	if s.err = errors.Join(s.err, err); err == nil {
		s.stops = append(s.stops, stop)
	}
}

// started returns what ends the services, or why not all of them could be begun: none is then.
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

// acknowledged is the handler of a service whose answer says nothing but that handle has returned.
func acknowledged[Q any](handle func(context.Context, Q) error) func(context.Context, Q) (empty, error) {
	return func(ctx context.Context, q Q) (empty, error) { return empty{}, handle(ctx, q) }
}

// ServeClients answers clients and viewers until stop is called. agents lists the agents, history answers for the runs
// that have ended, hooks are the names of those that schedules may call, baseline makes a run a baseline.
func (l *Lease) ServeClients(agents func() []AgentInfo, history func(plan.HistoryQuery) (plan.HistoryAnswer, error),
	hooks []string, baseline func(context.Context, BaselineQuery) (BaselineAnswer, error)) (stop func(), err error) {
	c, s := l.conn, &services{lease: l}
	var unpacking sync.Mutex // one submission at a time: it may be large
	serviceSubmit.offer(s, acknowledged(func(ctx context.Context, q submitQuery) error {
		unpacking.Lock()
		var submission Submission
		err := unzip(q.Submission, "the client", &submission)
		unpacking.Unlock()
		if err == nil {
			err = submission.check(q.Run)
		}
		if err == nil {
			err = l.enqueue(ctx, q.Run, q.Key, q.Submission)
		}
		return err
	}))
	serviceCancel.offer(s, acknowledged(func(ctx context.Context, q cancelQuery) error {
		m, err := c.encode(subjectCancel(q.Run), cancellation{By: oneLine(q.By)})
		if err == nil {
			err = c.store(ctx, m, onceID())
		}
		signal(c.queued)
		return err
	}))
	serviceSchedulePut.offer(s, acknowledged(func(ctx context.Context, q storedSchedule) error {
		err := readSchedule(keySchedule(q.Name), q.Value, q.Revision).Err
		if err == nil {
			_, err = c.putValue(ctx, q.Name, q.Value, q.Revision)
		}
		signal(c.edited)
		return err
	}))
	serviceScheduleRemove.offer(s, acknowledged(func(ctx context.Context, q storedSchedule) error {
		defer signal(c.edited)
		return c.removeSchedule(ctx, q.Name, q.Revision)
	}))
	serviceBaselineSet.offer(s, func(ctx context.Context, q BaselineQuery) (BaselineAnswer, error) {
		q.By = oneLine(q.By)
		return baseline(ctx, q)
	})
	serviceBaselineRemove.offer(s, acknowledged(func(ctx context.Context, q named) error { return c.removeBaseline(ctx, q.Name) }))

	serviceLeader.offer(s, func(context.Context, empty) (LeaderInfo, error) { return l.who, nil })
	serviceAgents.offer(s, func(context.Context, empty) ([]AgentInfo, error) { return agents(), nil })
	serviceHooks.offer(s, func(context.Context, empty) ([]string, error) { return hooks, nil })
	serviceRuns.offer(s, func(ctx context.Context, _ empty) ([]RunState, error) { return c.Runs(ctx) })
	serviceRun.offer(s, func(ctx context.Context, q named) (RunState, error) { return c.RunState(ctx, q.Name) })
	serviceRead.offer(s, func(ctx context.Context, q recordQuery) (batch, error) {
		if c.local && q.Delete && q.Behind.Snapshots > 0 {
			err := c.purge(ctx, nameOf(streamSnapshots, q.Run), q.Behind.Snapshots, rootSnapshots+token(q.Run)+".snapshot.>")
			if err != nil {
				return batch{}, err
			}
		}
		return c.read(ctx, q)
	})
	serviceRoom.offer(s, func(ctx context.Context, _ empty) (roomAnswer, error) {
		streams, err := c.runStreams(ctx)
		answer := roomAnswer{Limit: uint64(c.recordLimit)}
		for _, s := range streams {
			answer.Used += s.bytes()
		}
		return answer, err
	})
	serviceHistory.offer(s, func(_ context.Context, q historyQuery) (plan.HistoryAnswer, error) {
		for { // with fewer points, if the answer is too large for the server
			a, err := history(plan.HistoryQuery(q))
			if err != nil {
				return a, err
			}
			text, err := json.Marshal(a)
			points := 0
			for _, cell := range a.Cells {
				points += len(cell.Points)
			}
			if err != nil || len(text) <= c.limit() || points <= minPoints {
				return a, err
			}
			q.Most = points / 2
		}
	})
	serviceBaselines.offer(s, func(ctx context.Context, _ empty) ([]plan.Baseline, error) { return c.baselines(ctx) })
	serviceSchedules.offer(s, func(ctx context.Context, _ empty) (names []string, err error) {
		all, err := c.Schedules(ctx)
		for _, s := range all {
			names = append(names, s.Name)
		}
		return names, err
	})
	serviceSchedule.offer(s, func(ctx context.Context, q named) (storedSchedule, error) {
		value, revision, err := c.scheduleValue(ctx, q.Name)
		return storedSchedule{Name: q.Name, Value: value, Revision: revision}, err
	})
	return s.started()
}

// endingWait is how long a submission waits for an earlier one of the same run that is just ending.
const endingWait = time.Second

// enqueue stores a packed submission in the queue, once for each key. The error is ErrQueued if an earlier one of the same
// run does not end.
func (l *Lease) enqueue(ctx context.Context, run, key string, packed []byte) error {
	c := l.conn
	m, err := c.message(subjectSubmit(run), packed)
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, endingWait)
	defer cancel()
	for {
		state, err := c.RunState(ctx, run)
		if err != nil && !errors.Is(err, ErrUnreadable) {
			return err
		}
		queued, err := c.lastMessage(ctx, streamQueue, m.Subject)
		switch {
		case err != nil:
			return err
		case state.Key == key || queued.Seq > 0 && queued.Header.Get(jetstream.MsgIDHeader) == key:
			return nil
		case queued.Seq == 0:
			err := c.store(ctx, m, key, jetstream.WithExpectLastSequencePerSubject(0))
			signal(c.queued)
			if !conflict(err) {
				return err
			}
		}
		if wait(waiting, retryWait) != nil {
			return ErrQueued
		}
	}
}

// SubmitOnce queues the run of a slot, whose id is the slot's. Nothing happens if the run is known.
func (l *Lease) SubmitOnce(ctx context.Context, s Submission) error {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, storeTimeout)
	defer stop()
	queued, err := l.conn.last(ctx, streamQueue, subjectSubmit(s.Run.ID))
	var known RunState
	if err == nil {
		known, err = l.conn.RunState(ctx, s.Run.ID)
	}
	if err == nil && queued == 0 && known.Run == "" {
		var packed []byte
		if packed, err = pack(s); err == nil {
			err = l.enqueue(ctx, s.Run.ID, onceID(), packed)
		}
	}
	if err != nil {
		return fmt.Errorf("submit run %s: %w", s.Run.ID, err)
	}
	return nil
}
