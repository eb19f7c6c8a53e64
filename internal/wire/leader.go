package wire

import (
	"cmp"
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
	"golang.org/x/sync/semaphore"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire/lease"
	"example.org/lockstep/lockstep/internal/wire/subject"
)

// Request is one message of the queue: a submission or a cancellation. Err is set if it cannot be read.
type Request struct {
	Run        string
	Seq        uint64 // sequence number in the queue
	At         time.Time
	Submits    bool // it is a submission, even if it cannot be read
	Submission *Submission
	Key        string // of the submission
	By         string // user that cancels; empty: unknown
	Err        error
}

// queueEvery is the maximum interval at which the queue is read. The leader reads a message that it has stored at once.
const queueEvery = 5 * time.Second

// maxHeartbeat is the maximum size of a heartbeat in bytes, which the controller keeps in memory.
const maxHeartbeat = 16 << 10

// maxError is the maximum length of an agent's error in bytes, which outcomes contain.
const maxError = 4 << 10

// endingWait is how long a submission waits for an earlier submission of the same run that is about to end.
const endingWait = time.Second

// minPoints is the number of history points that an answer can contain on any server.
const minPoints = 500

// Leader is one leadership of a controller: its lease, and all its requests and writes. Safe for concurrent use.
type Leader struct {
	Lease *lease.Lease
	store *Store
	conn  *Conn // of the store
	who   lease.Holder
	ctx   context.Context // of the lease

	// queued and edited have a value after this leader has stored a message of the queue or a schedule.
	queued, edited chan struct{}

	mu    sync.Mutex
	sizes map[string]int // of the runs in the queue, in bytes of memory: see admit
}

// Epoch is the number of the leadership. Later leaderships have greater numbers.
func (l *Leader) Epoch() uint64 { return l.who.Epoch }

// Context ends with the cause lease.ErrLost when the leadership is lost, or given back: see lease.Lease.Context.
func (l *Leader) Context() context.Context { return l.ctx }

// Queue passes the messages of the queue to handle, from its first one, until ctx ends. It calls read once, after the
// messages that existed. One goroutine calls both. An error means that ctx ended, or the connection cannot be used.
func (l *Leader) Queue(ctx context.Context, handle func(Request), read func()) error {
	read = sync.OnceFunc(read)
	logged := ""
	for seq := uint64(0); ; {
		queue, err := l.store.stream(ctx, subject.QueueStream)
		for err == nil {
			var m *jetstream.RawStreamMsg
			if m, err = queue.GetMsg(ctx, seq+1, jetstream.WithGetMsgSubject(">")); err == nil {
				seq = m.Sequence
				l.handleRequest(m, handle)
			}
		}
		pause := retryWait
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			read()
			pause = queueEvery
		case l.conn.nc.IsClosed(), errors.Is(err, nats.ErrPermissionViolation):
			return fmt.Errorf("read the queue: %w", err)
		case err.Error() != logged && ctx.Err() == nil:
			logged = err.Error()
			l.conn.log.Warn("cannot read the queue; retrying", "err", err)
		}
		select {
		case <-l.queued:
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// handleRequest decodes a message of the queue and passes it to handle. If that panics, the submission is refused.
func (l *Leader) handleRequest(m *jetstream.RawStreamMsg, handle func(Request)) {
	tokens := strings.Split(m.Subject, ".")
	r := Request{Seq: m.Sequence, At: m.Time, Submits: len(tokens) == 4 && tokens[2] == "submit"}
	if r.Run, r.Err = subject.DecodeToken(tokens[len(tokens)-1]); r.Err != nil {
		return // no run to report it for
	}
	err := Guard(l.conn.log, m.Subject, func() error {
		if !r.Submits {
			var q cancelQuery
			if json.Unmarshal(m.Data, &q) == nil && len(q.By) <= MaxName {
				r.By = oneLine(q.By)
			}
		} else {
			r.Key = strings.TrimPrefix(m.Header.Get(jetstream.MsgIDHeader), submissionID(r.Run, ""))
			if r.Err = l.conn.codec.check(m.Header, "the client"); r.Err == nil {
				var size int
				if r.Submission, size, r.Err = readSubmission(r.Run, m.Data); r.Err == nil {
					_ = l.admit(r.Run, size, false)
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

// Edited receives after a client has stored or removed a schedule. It is for one reader.
func (l *Leader) Edited() <-chan struct{} { return l.edited }

// AnswerClock makes this process's clock the reference for all agents until stop is called.
func (l *Leader) AnswerClock() (stop func(), err error) {
	return l.conn.subscribe(subject.Clock("*"), pendingBytes, func(m *nats.Msg) (*nats.Msg, error) {
		arrived := clock.Now()
		if err := l.conn.codec.check(m.Header, "an agent"); err != nil {
			return nil, err
		}
		slew, bound := clock.Slew()
		answer, err := l.conn.codec.encode(m.Reply,
			clockAnswer{Clock: clock.ID(), Arrived: arrived, Answered: clock.Now(), Slew: slew, SlewBound: bound})
		if err == nil {
			lease.Stamp(answer.Header, l.who.Epoch)
		}
		return answer, err
	})
}

// AnswerHeartbeats passes every heartbeat to handle, one at a time, until stop is called. handle returns whether the
// agent's attempt is over, or an error that refuses the agent. refused gets the readable fields of refused ones.
func (l *Leader) AnswerHeartbeats(handle func(Heartbeat) (over bool, refuse error),
	refused func(h Heartbeat, why string)) (stop func(), err error) {
	return l.conn.subscribe(subject.Heartbeat("*"), pendingBytes, func(m *nats.Msg) (answer *nats.Msg, _ error) {
		token := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		var h Heartbeat
		refuse := l.conn.codec.check(m.Header, "agent "+token)
		if len(m.Data) > maxHeartbeat {
			refuse = fmt.Errorf("a heartbeat of %d bytes exceeds the limit of %d; use fewer labels and targets",
				len(m.Data), maxHeartbeat)
		} else if err := json.Unmarshal(m.Data, &h); refuse == nil {
			refuse = wrap(err, "read message of agent %s", token)
		}
		if refuse == nil && subject.Heartbeat(h.Agent) != m.Subject {
			refuse = fmt.Errorf("agent %s sent the name of another agent", token)
		}
		if refuse == nil {
			refuse = subject.CheckNames(h.Instance, h.Process, h.Busy, h.Attempt.Run, h.Attempt.Task, h.Attempt.Attempt)
		}
		var over bool
		if refuse == nil {
			over, refuse = handle(h)
		}
		if refuse == nil {
			answer, refuse = l.conn.codec.encode(m.Reply, HeartbeatAnswer{Over: over})
		}
		if refuse != nil {
			name, err := subject.DecodeToken(token)
			if err != nil {
				name = "?"
			}
			protocol, _ := strconv.Atoi(m.Header.Get(headerProtocol))
			refused(Heartbeat{Agent: cut(name, MaxName), Host: cut(h.Host, MaxName), Version: cut(h.Version, MaxName),
				Protocol: protocol}, oneLine(refuse.Error()))
			answer = l.conn.codec.refusal(m.Reply, refuse)
		}
		lease.Stamp(answer.Header, l.who.Epoch)
		return answer, nil
	})
}

// AnswerReports passes arrivals and snapshots of agents to arrive and snapshot until stop is called. An agent gets its
// answer, or the error, when they return. Agents repeat reports that were not answered in time, so a report may come
// more than once. Both functions are called from several goroutines.
func (l *Leader) AnswerReports(arrive func(context.Context, Arrival) error,
	snapshot func(context.Context, Ref, record.Snapshot) error) (stop func(), err error) {
	s := &services{}
	arrivals := service{subject.Arrive("*"), agentRequest, maxRequests, l.who.Epoch}
	s.add(serve(l.conn, arrivals, func(ctx context.Context, from string, a Arrival) (empty, error) {
		if subject.Arrive(a.Agent) != from {
			return empty{}, fmt.Errorf("read arrival: it has the name of another agent, %.200q", a.Agent)
		}
		if err := a.check(); err != nil {
			return empty{}, fmt.Errorf("read arrival: %w", err)
		}
		a.Error = cut(a.Error, maxError)
		return empty{}, arrive(ctx, a)
	}))
	snapshots := service{subject.Report("*"), MaxMessage, maxRequests, l.who.Epoch}
	s.add(serve(l.conn, snapshots, func(ctx context.Context, from string, r snapshotReport) (empty, error) {
		if subject.Report(r.Snapshot.Agent) != from || r.Snapshot.Task != r.Ref.Task {
			return empty{}, fmt.Errorf("read snapshot: it has the name of another agent or task, %.200q %.200q",
				r.Snapshot.Agent, r.Snapshot.Task)
		}
		return empty{}, snapshot(ctx, r.Ref, r.Snapshot)
	}))
	return s.started()
}

// Command sends a command to an agent until the agent confirms or refuses it, ctx ends or the lease is lost.
func (l *Leader) Command(ctx context.Context, agent string, c Command) error {
	ctx, cancel := Either(ctx, l.ctx)
	defer cancel()
	c.Epoch = l.who.Epoch
	return repeat(ctx, l.conn, nil, subject.Command(agent), commandTimeout, c)
}

// ServeClients answers clients and viewers until stop is called. agents lists the agents. history answers queries for
// ended runs. hooks are the names of the hooks that schedules may use. baseline makes a run a baseline.
func (l *Leader) ServeClients(agents func() []AgentInfo, history func(plan.HistoryQuery) (plan.HistoryAnswer, error),
	hooks []string, baseline func(context.Context, BaselineQuery) (BaselineAnswer, error)) (stop func(), err error) {
	s := &services{leader: l}
	var unpacking sync.Mutex // one submission at a time, as it may be large
	serviceSubmit.offer(s, acknowledged(func(ctx context.Context, q submitQuery) error {
		unpacking.Lock()
		_, size, err := readSubmission(q.Run, q.Submission)
		unpacking.Unlock()
		if err == nil {
			err = l.enqueue(ctx, q.Run, q.Key, q.Submission, size)
		}
		return err
	}))
	serviceCancel.offer(s, acknowledged(func(ctx context.Context, q cancelQuery) error {
		submitted, err := l.store.lastMessage(ctx, subject.QueueStream, subject.Submit(q.Run))
		var cancelled stored
		if err == nil {
			cancelled, err = l.store.lastMessage(ctx, subject.QueueStream, subject.Cancel(q.Run))
		}
		if err != nil || submitted.Seq == 0 || cancelled.Seq > submitted.Seq { // nothing to cancel, or done already
			return err
		}
		m, err := l.conn.codec.encode(subject.Cancel(q.Run), cancelQuery{Run: q.Run, By: oneLine(q.By)})
		if err == nil {
			_, err = l.store.put(ctx, m, onceID())
		}
		signal(l.queued)
		return err
	}))
	serviceSchedulePut.offer(s, acknowledged(func(ctx context.Context, q storedSchedule) error {
		err := readSchedule(subject.EncodeToken(q.Name), q.Value, q.Revision).Err
		if err == nil && q.Revision == 0 {
			var names []string
			if names, err = l.store.scheduleNames(ctx); len(names) >= maxSchedules {
				err = fmt.Errorf("%w: there are %d schedules, the maximum; remove some", ErrFull, len(names))
			}
		}
		if err == nil {
			_, err = l.store.putSchedule(ctx, q.Name, q.Value, q.Revision)
		}
		signal(l.edited)
		return err
	}))
	serviceScheduleRemove.offer(s, acknowledged(func(ctx context.Context, q storedSchedule) error {
		defer signal(l.edited)
		if q.Revision == 0 { // any
			return ErrChanged
		}
		err := l.store.bucket(subject.SchedulesBucket).remove(ctx, subject.EncodeToken(q.Name), q.Revision)
		if lease.IsConflict(err) {
			return ErrChanged
		}
		return err
	}))
	serviceBaselineSet.offer(s, func(ctx context.Context, q BaselineQuery) (BaselineAnswer, error) {
		q.By = oneLine(q.By)
		return baseline(ctx, q)
	})
	serviceBaselineRemove.offer(s, acknowledged(func(ctx context.Context, q named) error {
		if err := l.Lease.Confirm(ctx); err != nil {
			return err
		}
		return l.store.removeBaseline(ctx, q.Name)
	}))

	serviceLeader.offer(s, func(context.Context, empty) (lease.Holder, error) { return l.who, nil })
	serviceAgents.offer(s, func(context.Context, empty) ([]AgentInfo, error) { return agents(), nil })
	serviceHooks.offer(s, func(context.Context, empty) ([]string, error) { return hooks, nil })
	serviceRuns.offer(s, func(ctx context.Context, _ empty) ([]RunState, error) {
		runs, err := l.store.Runs(ctx)
		if text, _ := json.Marshal(runs); len(text) > l.conn.codec.limit() { // plain data always marshals
			for i := range runs {
				r := &runs[i]
				for _, text := range []*string{&r.Detail, &r.Waiting, &r.Name, &r.By, &r.Schedule} {
					*text = cut(*text, listText)
				}
			}
		}
		return runs, err
	})
	serviceRun.offer(s, func(ctx context.Context, q named) (RunState, error) { return l.store.RunState(ctx, q.Name) })
	slots := semaphore.NewWeighted(maxBatches)
	serviceRead.offer(s, func(ctx context.Context, q RecordQuery) (batch, error) {
		if l.conn.local && q.Delete && q.Behind.Snapshots > 0 {
			err := l.store.purge(ctx, subject.RunStream(subject.SnapshotsStream, q.Run), q.Behind.Snapshots,
				subject.Snapshots+subject.EncodeToken(q.Run)+".snapshot.>")
			if err != nil {
				return batch{}, err
			}
		}
		return recordReader{l.store, slots}.read(ctx, q)
	})
	serviceStorage.offer(s, func(ctx context.Context, _ empty) (storageAnswer, error) {
		streams, err := l.store.runStreams(ctx)
		answer := storageAnswer{Limit: uint64(l.store.recordLimit)}
		for _, s := range streams {
			answer.Used += s.bytes()
		}
		return answer, err
	})
	serviceHistory.offer(s, func(_ context.Context, q plan.HistoryQuery) (plan.HistoryAnswer, error) {
		for { // retry with fewer points if the answer is too large for the server
			a, err := history(q)
			if err != nil {
				return a, err
			}
			text, err := json.Marshal(a)
			points := 0
			for _, cell := range a.Cells {
				points += len(cell.Points)
			}
			if err != nil || len(text) <= l.conn.codec.limit() || points <= minPoints {
				return a, err
			}
			q.Max = points / 2
		}
	})
	serviceBaselines.offer(s, func(ctx context.Context, _ empty) ([]plan.Baseline, error) { return l.store.baselines(ctx) })
	serviceSchedules.offer(s, func(ctx context.Context, _ empty) ([]string, error) { return l.store.scheduleNames(ctx) })
	serviceSchedule.offer(s, func(ctx context.Context, q named) (storedSchedule, error) {
		value, revision, err := l.store.schedule(ctx, q.Name)
		return storedSchedule{Name: q.Name, Value: value, Revision: revision}, err
	})
	return s.started()
}

// enqueue stores a compressed submission in the queue, once per key. The error is ErrQueued if an earlier submission of
// the run does not end within endingWait.
func (l *Leader) enqueue(ctx context.Context, run, key string, packed []byte, size int) error {
	m, err := l.conn.codec.encode(subject.Submit(run), packed)
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, endingWait)
	defer cancel()
	for {
		state, err := l.store.RunState(ctx, run)
		if err != nil && !errors.Is(err, ErrUnreadable) {
			return err
		}
		queued, err := l.store.lastMessage(ctx, subject.QueueStream, m.Subject)
		switch {
		case err != nil:
			return err
		case state.Key == key || queued.Seq > 0 && queued.Header.Get(jetstream.MsgIDHeader) == submissionID(run, key):
			return nil
		case queued.Seq == 0:
			if err := l.admit(run, size, true); err != nil {
				return err
			}
			_, err := l.store.put(ctx, m, submissionID(run, key), jetstream.WithExpectLastSequencePerSubject(0))
			signal(l.queued)
			if err != nil { // the reader of the queue counts the run again, if it was stored
				l.mu.Lock()
				delete(l.sizes, run)
				l.mu.Unlock()
			}
			if !lease.IsConflict(err) {
				return err
			}
		}
		if Wait(waiting, retryWait) != nil {
			return ErrQueued
		}
	}
}

// submissionID returns the id of the message with a submission. Submissions of different runs are different messages,
// even if a client uses one key for both.
func submissionID(run, key string) string { return run + " " + key }

// Limits of the runs in the queue, which the leader has in memory: their number, and the bytes that all of them use.
const (
	maxQueued      = 1000
	maxQueuedBytes = 96 << 20
)

// admit counts the memory of a run in the queue until Dequeue. With limited, the error is ErrFull if the queue is full.
func (l *Leader) admit(run string, size int, limited bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	queued, all := 0, size
	for other, n := range l.sizes {
		if other != run {
			queued++
			all += n
		}
	}
	if limited && (queued >= maxQueued || all > maxQueuedBytes) {
		return fmt.Errorf("%w: the queue has %d runs, which use %d MiB of memory with this one; the maximum is %d runs and %d MiB; "+
			"wait until runs have ended, or cancel some", ErrFull, queued, all>>20, maxQueued, maxQueuedBytes>>20)
	}
	if l.sizes == nil {
		l.sizes = map[string]int{}
	}
	l.sizes[run] = size
	return nil
}

// SubmitOnce queues the run of a slot. Nothing happens if a run with its id, which is the slot's, exists.
func (l *Leader) SubmitOnce(ctx context.Context, s Submission) error {
	ctx, cancel := Either(ctx, l.ctx)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, storeTimeout)
	defer stop()
	queued, err := l.store.lastMessage(ctx, subject.QueueStream, subject.Submit(s.Run.ID))
	var known RunState
	if err == nil {
		known, err = l.store.RunState(ctx, s.Run.ID)
	}
	if err == nil && queued.Seq == 0 && known.Run == "" {
		var packed []byte
		if packed, err = pack(s); err == nil {
			var size int
			if _, size, err = readSubmission(s.Run.ID, packed); err == nil {
				err = l.enqueue(ctx, s.Run.ID, onceID(), packed, size)
			}
		}
	}
	return wrap(err, "submit run %s", s.Run.ID)
}

// Dequeue deletes a run's submissions and cancellations up to a sequence number, once it confirmed that it leads.
func (l *Leader) Dequeue(ctx context.Context, run string, upTo uint64) error {
	ctx, cancel := Either(ctx, l.ctx)
	defer cancel()
	if err := l.Lease.Confirm(ctx); err != nil {
		return fmt.Errorf("clear %s: %w", subject.QueueStream, err)
	}
	err := l.store.purge(ctx, subject.QueueStream, upTo, subject.Submit(run), subject.Cancel(run))
	if err == nil {
		l.mu.Lock()
		delete(l.sizes, run)
		l.mu.Unlock()
	}
	return err
}

// Acquire opens the record of a run for this leadership and closes it to earlier ones. It creates missing streams.
func (l *Leader) Acquire(ctx context.Context, run string) (*Recorder, error) {
	ctx, cancel := Either(ctx, l.ctx)
	defer cancel()
	r := &Recorder{leader: l, run: run}
	r.events, r.snapshots = newRunStreams(l.store, run)
	for {
		err := r.open(ctx)
		if err == nil {
			return r, nil
		}
		// the stream of a cluster was just created and has no leader yet
		forming := errors.Is(err, nats.ErrNoResponders) && Wait(ctx, retryWait) == nil
		if !lease.IsConflict(err) && !forming || ctx.Err() != nil {
			return nil, fmt.Errorf("acquire run %s: %w", run, err)
		}
	}
}

// FreeStorage deletes the streams of the oldest runs that have ended and were copied. It stops when the total size is
// below the limit, and the number of runs with streams is at most maxRuns. run is a run that is about to begin and
// counts, too; empty: none. Runs for which needed is true are kept. Without run, FreeStorage also deletes the states of
// the oldest ended runs without streams, beyond the newest 1,000.
//
// FreeStorage returns why run must wait; empty: it need not. On a local control plane the follower is the copy. The
// streams of other ended runs are reduced to the size of their contents.
func (l *Leader) FreeStorage(ctx context.Context, run string, needed func(run string) bool) (waiting string, err error) {
	ctx, cancel := Either(ctx, l.ctx)
	defer cancel()
	ctx, late := context.WithTimeout(ctx, storeTimeout) // no other controller leads before
	defer late()
	streams, err := l.store.runStreams(ctx)
	var runs []RunState
	if err == nil {
		runs, err = l.store.Runs(ctx)
	}
	if err != nil {
		return "", err
	}
	count, used, limit := len(streams), uint64(0), uint64(l.store.recordLimit)
	for _, s := range streams {
		used += s.bytes()
	}
	if run != "" && streams[run] == nil {
		count++
	}
	if err := l.Lease.Confirm(ctx); err != nil {
		return "", fmt.Errorf("free storage for newer runs: %w", err)
	}
	active := 0           // queued and executed runs with streams
	var unforgotten error // the first state that cannot be deleted; a run that begins need not wait for it
	old := -maxEnded
	for _, r := range runs {
		if r.Over() {
			old++
		}
	}
	for _, r := range runs {
		held, ended := streams[r.Run], r.Over() && !needed(r.Run)
		if r.Over() {
			old--
		}
		switch {
		case held == nil && (!ended || old < 0 || run != ""):
		case held == nil:
			failed := l.store.bucket(subject.StateBucket).remove(ctx, keyRun(r.Run), r.revision)
			if !lease.IsConflict(failed) { // else it has changed since it was read
				unforgotten = cmp.Or(unforgotten, failed)
			}
		case !ended:
			active++
		case (count > maxRuns || used >= limit) && (r.Copied || l.conn.local):
			if err = held.remove(ctx, l.store.js); err == nil {
				count, used = count-1, used-held.bytes()
			}
		default:
			err = held.release(ctx, l.store.js)
		}
		if err != nil {
			return "", fmt.Errorf("free storage for newer runs: %w", err)
		}
	}
	help := "no ended run has been copied; start a controller with --dir"
	if active == count-1 {
		help = "all runs are queued or executed; wait until one has ended, or cancel one"
	}
	switch {
	case run == "":
		return "", wrap(unforgotten, "delete old runs")
	case streams[run] != nil:
		return "", nil
	case count > maxRuns:
		return fmt.Sprintf("storage on the control plane: it has the streams of %d runs, the maximum, and %s", count-1,
			help), nil
	case used >= limit:
		return fmt.Sprintf("storage on the control plane: the streams of %d runs use %.1f MiB of at most %.1f MiB (lockstep-controller --record-limit), and %s",
			count-1, float64(used)/(1<<20), float64(limit)/(1<<20), help), nil
	}
	return "", nil
}

// PutRun stores the state of a run, unless a later leader has stored one: the error then wraps lease.ErrFenced.
func (l *Leader) PutRun(ctx context.Context, s RunState) error {
	Progress(ctx, storeTimeout)
	ctx, cancel := Either(ctx, l.ctx)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, storeTimeout)
	defer stop()
	s.Epoch, s.Detail, s.Waiting = l.who.Epoch, cut(s.Detail, maxText), cut(s.Waiting, maxText)
	value, err := json.Marshal(s)
	for err == nil {
		var there RunState
		there, err = l.store.RunState(ctx, s.Run)
		switch {
		case err != nil && !errors.Is(err, ErrUnreadable):
		case there.Epoch > s.Epoch:
			err = lease.ErrFenced
		default:
			if _, err = l.store.bucket(subject.StateBucket).put(ctx, keyRun(s.Run), value, there.revision); err == nil {
				return nil
			}
			if lease.IsConflict(err) {
				err = Wait(ctx, retryWait)
			}
		}
	}
	return fmt.Errorf("store the state of run %s: %w", s.Run, err)
}

// PutBaseline stores or replaces a baseline. It first confirms that this controller leads, as baselines have no fence.
func (l *Leader) PutBaseline(ctx context.Context, b plan.BaselineRecord) error {
	value, err := pack(b)
	if limit := l.conn.codec.limit(); err == nil && len(value) > limit {
		err = fmt.Errorf("%w: %d bytes exceed the limit of %d (max_payload of its NATS server); use a run with fewer cells",
			ErrTooLarge, len(value), limit)
	}
	if err == nil {
		err = l.Lease.Confirm(ctx)
	}
	if err == nil {
		err = l.store.bucket(subject.BaselinesBucket).use(ctx, func(ctx context.Context, kv jetstream.KeyValue) error {
			_, err := kv.Put(ctx, subject.EncodeToken(b.Baseline.Name), value)
			return err
		})
	}
	return wrap(err, "store baseline %s", b.Baseline.Name)
}
