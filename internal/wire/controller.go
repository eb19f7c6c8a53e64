package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"lockstep/internal/plan"
)

// headerRef names the task of an assignment, so that an agent that cannot read it can still answer.
const headerRef = "Lockstep-Ref"

// readRef reads what Ref.tokens wrote; what cannot be read names nothing.
func readRef(text string) (r Ref) {
	words := strings.Split(text, ".")
	if len(words) != 3 {
		return Ref{}
	}
	for i, to := range []*string{&r.Run, &r.Task, &r.Try} {
		var err error
		if *to, err = untoken(words[i]); err != nil {
			return Ref{}
		}
	}
	return r
}

// Limits of the streams. Beyond them publishing fails, and says so: nothing is dropped silently.
const (
	queueBytes  = 512 << 20
	tasksBytes  = 256 << 20
	recordBytes = 1 << 30
	tasksAge    = 24 * time.Hour
	recordAge   = 7 * 24 * time.Hour
	dedupe      = 2 * time.Minute
)

// Prepare makes the streams that the control plane needs; it does nothing to those that are there.
func (c *Conn) Prepare(ctx context.Context) error {
	storage := jetstream.MemoryStorage
	if c.files {
		storage = jetstream.FileStorage
	}
	for _, cfg := range []jetstream.StreamConfig{
		{Name: streamQueue, Subjects: []string{root + "queue.>"}, MaxBytes: queueBytes, Storage: storage},
		// Assignments hold secrets where options do: never on disk.
		{Name: streamTasks, Subjects: []string{root + "task.>"}, MaxBytes: tasksBytes, MaxAge: tasksAge, Storage: jetstream.MemoryStorage},
		{Name: streamRecord, Subjects: []string{root + "record.>"}, MaxBytes: recordBytes, MaxAge: recordAge, Storage: storage},
	} {
		cfg.Discard, cfg.Duplicates, cfg.AllowDirect = jetstream.DiscardNew, dedupe, true
		_, err := c.js.CreateStream(ctx, cfg)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // made by another release, with other limits: it serves
			continue
		}
		if err != nil {
			return fmt.Errorf("prepare the control plane (does its NATS server have JetStream on?): make stream %s: %w", cfg.Name, err)
		}
	}
	return nil
}

// Request is one message of the queue: a submission, a cancellation (both fields empty), or one that cannot be read.
type Request struct {
	Run        string
	Seq        uint64 // numbers submissions
	Submission *Submission
	Err        error
}

// Queue hands the queue to handle, from its beginning, until ctx ends.
func (c *Conn) Queue(ctx context.Context, handle func(Request)) error {
	return c.follow(ctx, streamQueue, []string{root + "queue.>"}, func(m jetstream.Msg, seq uint64) bool {
		words := strings.Split(m.Subject(), ".")
		r := Request{Seq: seq}
		if r.Run, r.Err = untoken(words[len(words)-1]); r.Err != nil {
			return true // nobody to tell
		}
		if len(words) == 4 && words[2] == "submit" {
			var s Submission
			if r.Err = c.unpack(m.Headers(), m.Data(), "the client", &s); r.Err == nil {
				r.Submission = &s
				if s.Run.ID != r.Run {
					r.Submission, r.Err = nil, fmt.Errorf("read submission: it holds run %q", s.Run.ID)
				}
			}
		} else {
			r.Err = c.check(m.Headers(), "the client")
		}
		handle(r)
		return true
	})
}

// Unqueue deletes a run's submission and cancellations, with the secrets they may hold.
func (c *Conn) Unqueue(ctx context.Context, run string, upTo uint64) error {
	return c.purge(ctx, streamQueue, upTo, subjectSubmit(run), subjectCancel(run))
}

func (c *Conn) purge(ctx context.Context, stream string, upTo uint64, subjects ...string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	s, err := c.js.Stream(ctx, stream)
	for _, subject := range subjects {
		if err != nil {
			break
		}
		opts := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject(subject)}
		if upTo > 0 {
			opts = append(opts, jetstream.WithPurgeSequence(upTo+1))
		}
		err = s.Purge(ctx, opts...)
	}
	if err != nil {
		return fmt.Errorf("clear %s: %w", stream, err)
	}
	return nil
}

// Heartbeats hands every heartbeat to handle, one at a time, until stop is called; a text returned refuses the agent.
func (c *Conn) Heartbeats(handle func(Heartbeat) (refuse string)) (stop func(), err error) {
	return c.subscribe(subjectHeartbeat("")[:len(subjectHeartbeat(""))-1]+"*", func(m *nats.Msg) {
		var h Heartbeat
		who := "agent " + m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		refuse := ""
		if err := c.decode(m.Header, m.Data, who, &h); err != nil {
			refuse = err.Error()
		} else if subjectHeartbeat(h.Agent) != m.Subject {
			refuse = who + " speaks for another"
		} else {
			refuse = handle(h)
		}
		if refuse != "" && m.Reply != "" {
			_ = c.nc.PublishMsg(c.refusal(m.Reply, refuse)) // said again at its next heartbeat
		}
	})
}

// AnswerAgents answers Agents with list until stop is called.
func (c *Conn) AnswerAgents(list func() []Agent) (stop func(), err error) {
	return c.subscribe(subjectAgents, func(m *nats.Msg) {
		if err := c.check(m.Header, "the client"); err != nil {
			_ = m.RespondMsg(c.refusal(m.Reply, err.Error()))
			return
		}
		answer, err := c.encode(m.Reply, list())
		if err != nil {
			answer = c.refusal(m.Reply, err.Error())
		}
		_ = m.RespondMsg(answer) // the client's deadline covers a lost answer
	})
}

func (c *Conn) subscribe(subject string, handle nats.MsgHandler) (stop func(), err error) {
	sub, err := c.nc.Subscribe(subject, handle)
	if err == nil {
		err = c.nc.FlushTimeout(connectTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("listen to %s: %w", subject, err)
	}
	return func() { _ = sub.Unsubscribe() }, nil // fails only when the connection is closed
}

// Roll asks every agent for a heartbeat now.
func (c *Conn) Roll() error {
	m, err := c.message(subjectRoll, nil)
	if err != nil {
		return err
	}
	return c.nc.PublishMsg(m)
}

// Assign stores an assignment for one agent process.
func (c *Conn) Assign(ctx context.Context, instance string, a Assignment) error {
	m, err := c.encode(subjectAssign(a.Agent, instance), a)
	if err != nil {
		return fmt.Errorf("assign %s to %s: %w", a.Task.ID, a.Agent, err)
	}
	m.Header.Set(headerRef, a.Ref().tokens())
	return c.store(ctx, m, nuid.Next())
}

// Release sends the agents of a task on.
func (c *Conn) Release(ctx context.Context, ref Ref, r Release) error {
	m, err := c.encode(subjectRelease(ref), r)
	if err != nil {
		return fmt.Errorf("release %s to %s: %w", ref.Task, r.Step, err)
	}
	return c.store(ctx, m, nuid.Next())
}

// Unassign deletes the assignments of agent processes (names to instances).
func (c *Conn) Unassign(ctx context.Context, agents map[string]string) error {
	subjects := make([]string, 0, len(agents))
	for name, instance := range agents {
		subjects = append(subjects, subjectAssign(name, instance))
	}
	return c.purge(ctx, streamTasks, 0, subjects...)
}

// Unrelease deletes the releases of a task that every agent has left.
func (c *Conn) Unrelease(ctx context.Context, ref Ref) error {
	return c.purge(ctx, streamTasks, 0, subjectRelease(ref))
}

// Watch hands arrivals and snapshots of a run to handle, in order, until ctx ends.
func (c *Conn) Watch(ctx context.Context, run string, handle func(Entry)) error {
	filters := []string{subjectsOf(run, "arrive"), subjectsOf(run, "snapshot")}
	return c.follow(ctx, streamRecord, filters, func(m jetstream.Msg, seq uint64) bool {
		handle(c.entry(m, seq))
		return true
	})
}

// Plan stores a run's plan, without secrets, as the beginning of its record.
func (c *Conn) Plan(ctx context.Context, run plan.Run) error {
	m, err := c.pack(subjectPlan(run.ID), run.Redacted())
	if err != nil {
		return fmt.Errorf("record plan of run %s: %w", run.ID, err)
	}
	return c.store(ctx, m, nuid.Next())
}

// Event stores an event of a run.
func (c *Conn) Event(ctx context.Context, run string, e RunEvent) error {
	m, err := c.encode(subjectEvent(run), e)
	if err != nil {
		return fmt.Errorf("record event of run %s: %w", run, err)
	}
	return c.store(ctx, m, nuid.Next())
}

// Outcome stores what came of a task.
func (c *Conn) Outcome(ctx context.Context, o plan.Outcome) error {
	m, err := c.encode(subjectOutcome(o.Run, o.Task), o)
	if err != nil {
		return fmt.Errorf("record outcome of task %s: %w", o.Task, err)
	}
	return c.store(ctx, m, nuid.Next())
}

// Finished lists the ids of a run's tasks that have an outcome in the record.
func (c *Conn) Finished(ctx context.Context, run string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	s, err := c.js.Stream(ctx, streamRecord)
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", streamRecord, err)
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(subjectsOf(run, "outcome")))
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", streamRecord, err)
	}
	var tasks []string
	for subject := range info.State.Subjects {
		if task, err := untoken(subject[strings.LastIndexByte(subject, '.')+1:]); err == nil {
			tasks = append(tasks, task)
		}
	}
	return tasks, nil
}

// MakeRoom deletes the records of earlier runs, oldest first, when more than half of the record's room is used.
func (c *Conn) MakeRoom(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	s, err := c.js.Stream(ctx, streamRecord)
	if err != nil {
		return fmt.Errorf("look at %s: %w", streamRecord, err)
	}
	info := s.CachedInfo()
	if info.Config.MaxBytes <= 0 || info.State.Bytes < uint64(info.Config.MaxBytes)/2 {
		return nil
	}
	if err := s.Purge(ctx, jetstream.WithPurgeSequence((info.State.FirstSeq+info.State.LastSeq)/2)); err != nil {
		return fmt.Errorf("clear %s: %w", streamRecord, err)
	}
	return nil
}

// Forget deletes the arrivals and snapshots of a task, once a follower has them.
func (c *Conn) Forget(ctx context.Context, ref Ref) error {
	task := token(ref.Run) + ".%s." + token(ref.Task) + ".>"
	return c.purge(ctx, streamRecord, 0, root+"record."+fmt.Sprintf(task, "arrive"), root+"record."+fmt.Sprintf(task, "snapshot"))
}
