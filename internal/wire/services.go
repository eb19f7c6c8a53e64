package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"lockstep/internal/plan"
)

// The services of the controller that leads: what clients may request, what viewers may, too, and what agents may: see
// subjectHeartbeat.
const (
	clientServices = root + "client."
	viewServices   = root + "view."
	agentServices  = root + "agent."

	serviceSubmit         = clientServices + "submit"
	serviceCancel         = clientServices + "cancel"
	serviceSchedulePut    = clientServices + "schedule.put"
	serviceScheduleRemove = clientServices + "schedule.remove"
	serviceBaselineSet    = clientServices + "baseline.set"
	serviceBaselineRemove = clientServices + "baseline.remove"

	serviceLeader    = viewServices + "leader"
	serviceAgents    = viewServices + "agents"
	serviceRuns      = viewServices + "runs"
	serviceRun       = viewServices + "run"
	serviceRead      = viewServices + "read"
	serviceRoom      = viewServices + "room"
	serviceHistory   = viewServices + "history"
	serviceSchedules = viewServices + "schedules"
	serviceSchedule  = viewServices + "schedule"
	serviceHooks     = viewServices + "hooks"
	serviceBaselines = viewServices + "baselines"
)

type (
	// named asks for a run or a schedule.
	named       struct{ Name string }
	submitQuery struct {
		Run        string
		Key        string // of the submission: one that is repeated has the same
		Submission []byte // packed
	}
	cancelQuery    struct{ Run, By string }
	roomAnswer     struct{ Used, Limit uint64 }
	storedSchedule struct {
		Name     string
		Revision uint64
		Value    []byte // packed
	}
)

// Limits of requests: their size in bytes, and how many of one service are handled at the same time.
const (
	smallRequest = 64 << 10
	agentRequest = 256 << 10 // an arrival describes a broker
	largeRequest = MaxMessage
	fewRequests  = 16
	maxReads     = 512 // most of them wait for something to read
)

// minPoints is what an answer has room for on any server.
const minPoints = 500

// services are those that a leader has begun to answer.
type services struct {
	lease *Lease
	stops []func()
	err   error
}

func (s *services) stop() {
	for _, stop := range s.stops {
		stop()
	}
}

// offer answers a service. handle's context ends with the lease, and after the longest time that a client waits.
func offer[Q, A any](s *services, subject string, size, parallel int, handle func(context.Context, Q) (A, error)) {
	if s.err != nil {
		return
	}
	stop, err := serve(s.lease.conn, service{subject: subject, size: size, parallel: parallel}, func(ctx context.Context, _ string, q Q) (A, error) {
		ctx, cancel := s.lease.bound(ctx)
		defer cancel()
		ctx, late := context.WithTimeout(ctx, slowTimeout)
		defer late()
		a, err := handle(ctx, q)
		if err != nil && errors.Is(ctx.Err(), context.Canceled) {
			err = ErrNoController // no more: another one answers
		}
		return a, err
	})
	if s.err = err; err == nil {
		s.stops = append(s.stops, stop)
	}
}

// ServeClients answers clients and viewers until stop is called. agents lists the agents, history answers for the runs
// that have ended, hooks are the names of those that schedules may call, baseline makes a run a baseline.
func (l *Lease) ServeClients(agents func() []AgentInfo, history func(plan.HistoryQuery) (plan.HistoryAnswer, error),
	hooks []string, baseline func(context.Context, BaselineQuery) (BaselineAnswer, error)) (stop func(), err error) {
	c, s := l.conn, &services{lease: l}
	var unpacking sync.Mutex // one submission at a time: it may be large
	offer(s, serviceSubmit, largeRequest, fewRequests, func(ctx context.Context, q submitQuery) (struct{}, error) {
		unpacking.Lock()
		var submission Submission
		err := unzip(q.Submission, "the client", &submission)
		unpacking.Unlock()
		if err == nil {
			err = errors.Join(checkName(q.Run), checkName(q.Key), submission.check(q.Run))
		}
		if err == nil {
			err = l.enqueue(ctx, q.Run, q.Key, q.Submission)
		}
		return struct{}{}, err
	})
	offer(s, serviceCancel, smallRequest, fewRequests, func(ctx context.Context, q cancelQuery) (struct{}, error) {
		if err := errors.Join(checkName(q.Run), checkNames(q.By)); err != nil {
			return struct{}{}, err
		}
		m, err := c.encode(subjectCancel(q.Run), cancellation{By: oneLine(q.By)})
		if err == nil {
			err = c.store(ctx, m, onceID())
		}
		signal(c.queued)
		return struct{}{}, err
	})
	offer(s, serviceSchedulePut, largeRequest, fewRequests, func(ctx context.Context, q storedSchedule) (struct{}, error) {
		err := checkName(q.Name)
		if err == nil {
			err = readSchedule(keySchedule(q.Name), q.Value, q.Revision).Err
		}
		if err == nil {
			_, err = c.putValue(ctx, q.Name, q.Value, q.Revision)
		}
		signal(c.edited)
		return struct{}{}, err
	})
	offer(s, serviceScheduleRemove, smallRequest, fewRequests, func(ctx context.Context, q storedSchedule) (struct{}, error) {
		if err := checkName(q.Name); err != nil {
			return struct{}{}, err
		}
		defer signal(c.edited)
		return struct{}{}, c.removeSchedule(ctx, q.Name, q.Revision)
	})
	offer(s, serviceBaselineSet, smallRequest, 1, func(ctx context.Context, q BaselineQuery) (BaselineAnswer, error) {
		err := errors.Join(checkName(q.Run), checkNames(q.Name, q.By))
		if err == nil {
			q.By = oneLine(q.By)
			return baseline(ctx, q)
		}
		return BaselineAnswer{}, err
	})
	offer(s, serviceBaselineRemove, smallRequest, fewRequests, func(ctx context.Context, q named) (struct{}, error) {
		if err := checkName(q.Name); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, c.removeBaseline(ctx, q.Name)
	})

	offer(s, serviceLeader, smallRequest, fewRequests, func(context.Context, struct{}) (LeaderInfo, error) { return l.who, nil })
	offer(s, serviceAgents, smallRequest, fewRequests, func(context.Context, struct{}) ([]AgentInfo, error) { return agents(), nil })
	offer(s, serviceHooks, smallRequest, fewRequests, func(context.Context, struct{}) ([]string, error) { return hooks, nil })
	offer(s, serviceRuns, smallRequest, fewRequests, func(ctx context.Context, _ struct{}) ([]RunState, error) { return c.Runs(ctx) })
	offer(s, serviceRun, smallRequest, fewRequests, func(ctx context.Context, q named) (RunState, error) {
		if err := checkName(q.Name); err != nil {
			return RunState{}, err
		}
		return c.RunState(ctx, q.Name)
	})
	offer(s, serviceRead, smallRequest, maxReads, func(ctx context.Context, q recordQuery) (batch, error) {
		err := checkName(q.Run)
		if err == nil && c.local && q.Delete && q.Behind.Snapshots > 0 {
			err = c.purge(ctx, nameOf(streamSnapshots, q.Run), q.Behind.Snapshots, rootSnapshots+token(q.Run)+".snapshot.>")
		}
		if err != nil {
			return batch{}, err
		}
		return c.read(ctx, q)
	})
	offer(s, serviceRoom, smallRequest, fewRequests, func(ctx context.Context, _ struct{}) (roomAnswer, error) {
		streams, err := c.runStreams(ctx)
		answer := roomAnswer{Limit: uint64(c.recordLimit)}
		for _, s := range streams {
			answer.Used += s.bytes()
		}
		return answer, err
	})
	offer(s, serviceHistory, smallRequest, 1, func(_ context.Context, q plan.HistoryQuery) (json.RawMessage, error) {
		for { // with fewer points, if the answer is too large for the server
			a, err := history(q)
			if err != nil {
				return nil, err
			}
			text, err := json.Marshal(a)
			points := 0
			for _, cell := range a.Cells {
				points += len(cell.Points)
			}
			if err != nil || len(text) <= c.limit() || points <= minPoints {
				return text, err
			}
			q.Most = points / 2
		}
	})
	offer(s, serviceBaselines, smallRequest, 1, func(ctx context.Context, _ struct{}) ([]plan.Baseline, error) { return c.baselines(ctx) })
	offer(s, serviceSchedules, smallRequest, fewRequests, func(ctx context.Context, _ struct{}) (names []string, err error) {
		all, err := c.Schedules(ctx)
		for _, s := range all {
			names = append(names, s.Name)
		}
		return names, err
	})
	offer(s, serviceSchedule, smallRequest, fewRequests, func(ctx context.Context, q named) (storedSchedule, error) {
		if err := checkName(q.Name); err != nil {
			return storedSchedule{}, err
		}
		value, revision, err := c.scheduleValue(ctx, q.Name)
		return storedSchedule{Name: q.Name, Value: value, Revision: revision}, err
	})
	if s.err != nil {
		s.stop()
		return nil, s.err
	}
	return s.stop, nil
}

// enqueue stores a packed submission in the queue, once for each key. It waits a moment for a submission of the same
// run that is just ending.
func (l *Lease) enqueue(ctx context.Context, run, key string, packed []byte) error {
	c := l.conn
	m, err := c.message(subjectSubmit(run), packed)
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, requestTimeout/2)
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
			return fmt.Errorf("run %s is queued or executed already: cancel it first", run)
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
