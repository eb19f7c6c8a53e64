package wire

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"lockstep/internal/schedule"
)

// ErrNoSchedule is wrapped by the error of what is done to a schedule that is not there.
var ErrNoSchedule = errors.New("there is no schedule of that name")

// ErrChanged is wrapped by the error of a change to a schedule that somebody else has changed since it was read. Nothing is changed then.
var ErrChanged = errors.New("it was changed meanwhile")

// ErrNoRun is wrapped by the error of following a run that the control plane does not know, or no more.
var ErrNoRun = errors.New("the control plane knows no such run")

// KeptSchedule is a schedule as the control plane keeps it, or why it cannot be used.
type KeptSchedule struct {
	Name     string
	Revision uint64 // of the value: grows with each change; 0: it was removed
	Schedule schedule.Schedule
	Err      error
}

// keyHooks is beside the lease, out of clients' reach.
const keyHooks = "hooks"

func keySchedule(name string) string { return token(name) }

// mostSchedule bounds what a stored schedule may grow to: a matrix, its history, comparisons.
const mostSchedule = 8 << 20

// AddSchedule stores a new schedule. The error wraps ErrChanged if there is one of its name.
func (c *Conn) AddSchedule(ctx context.Context, s schedule.Schedule) error {
	_, err := c.putSchedule(ctx, s, 0)
	return err
}

// PutSchedule stores a changed schedule and returns its new revision. The error wraps ErrChanged if its revision is another by now, ErrNoSchedule if it is gone.
func (c *Conn) PutSchedule(ctx context.Context, s schedule.Schedule, revision uint64) (uint64, error) {
	return c.putSchedule(ctx, s, revision)
}

func (c *Conn) putSchedule(ctx context.Context, s schedule.Schedule, revision uint64) (now uint64, err error) {
	value, err := squeeze(s)
	if limit := c.limit(); err == nil && len(value) > limit {
		err = fmt.Errorf("%d bytes, and the limit is %d (max_payload of its NATS server): %w", len(value), limit, ErrTooLarge)
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var kv jetstream.KeyValue
	if err == nil {
		kv, err = c.schedules(ctx)
	}
	switch {
	case err != nil:
	case revision == 0:
		now, err = kv.Create(ctx, keySchedule(s.Name), value)
	default:
		now, err = kv.Update(ctx, keySchedule(s.Name), value, revision)
	}
	if conflict(err) {
		err = ErrChanged
	}
	if err != nil {
		return 0, fmt.Errorf("store schedule %s: %w", s.Name, err)
	}
	return now, nil
}

// Schedule reads a schedule. The error wraps ErrNoSchedule if there is none of that name.
func (c *Conn) Schedule(ctx context.Context, name string) (KeptSchedule, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	kv, err := c.schedules(ctx)
	if err != nil {
		return KeptSchedule{}, fmt.Errorf("read schedule %s: %w", name, err)
	}
	e, err := kv.Get(ctx, keySchedule(name))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		err = ErrNoSchedule
	}
	if err != nil {
		return KeptSchedule{}, fmt.Errorf("read schedule %s: %w", name, err)
	}
	kept := readSchedule(e.Key(), e.Value(), e.Revision())
	return kept, kept.Err
}

// Schedules lists all of them by name.
func (c *Conn) Schedules(ctx context.Context) ([]KeptSchedule, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var all []KeptSchedule
	kv, err := c.schedules(ctx)
	if err == nil {
		err = each(ctx, kv, ">", func(e jetstream.KeyValueEntry) {
			all = append(all, readSchedule(e.Key(), e.Value(), e.Revision()))
		})
	}
	if err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	slices.SortFunc(all, func(a, b KeptSchedule) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// EditSchedule changes a schedule, and returns it as it is then. What the controller notes meanwhile is no obstacle; what another person changes is: the
// error then wraps ErrChanged, and the schedule returned is that person's. The error of change ends it.
func (c *Conn) EditSchedule(ctx context.Context, name string, change func(*schedule.Schedule) error) (schedule.Schedule, error) {
	for first := 0; ; {
		kept, err := c.Schedule(ctx, name)
		if err != nil {
			return kept.Schedule, err
		}
		s := kept.Schedule
		if first != 0 && s.Edit != first {
			return s, fmt.Errorf("change schedule %s: %w", name, ErrChanged)
		}
		first = s.Edit
		if err := change(&s); err != nil {
			return s, err
		}
		if _, err = c.PutSchedule(ctx, s, kept.Revision); !errors.Is(err, ErrChanged) {
			return s, err
		}
	}
}

// RemoveSchedule deletes a schedule with its history. A run in flight goes on.
func (c *Conn) RemoveSchedule(ctx context.Context, name string, revision uint64) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	kv, err := c.schedules(ctx)
	if err == nil && revision == 0 { // to the library: any
		err = ErrChanged
	}
	if err == nil {
		err = kv.Delete(ctx, keySchedule(name), jetstream.LastRevision(revision))
	}
	if conflict(err) {
		err = ErrChanged
	}
	if err != nil {
		return fmt.Errorf("remove schedule %s: %w", name, err)
	}
	return nil
}

// WatchSchedules hands every schedule to handle, and again whenever it has changed or was removed, until ctx ends. One goroutine calls handle.
func (c *Conn) WatchSchedules(ctx context.Context, handle func(KeptSchedule)) error {
	return c.follow(ctx, scheduleStream, []string{scheduleKeys + ">"}, func(m jetstream.Msg, seq uint64) bool {
		key := strings.TrimPrefix(m.Subject(), scheduleKeys)
		if m.Headers().Get(jetstream.MarkerReasonHeader) != "" || m.Headers().Get("KV-Operation") != "" {
			name, err := untoken(key)
			if err == nil {
				handle(KeptSchedule{Name: name})
			}
			return true
		}
		_ = Guard(c.log, m.Subject(), func() error { handle(readSchedule(key, m.Data(), seq)); return nil }) // the others fire
		return true
	})
}

func readSchedule(key string, value []byte, revision uint64) KeptSchedule {
	kept := KeptSchedule{Revision: revision}
	if kept.Name, kept.Err = untoken(key); kept.Err != nil {
		kept.Name = key[:min(len(key), MaxName)]
		return kept
	}
	if !bytes.HasPrefix(value, gzipMagic) {
		kept.Err = fmt.Errorf("read schedule %s: %w", kept.Name, ErrForeign)
		return kept
	}
	text, err := expand(value)
	if err == nil {
		kept.Schedule, err = schedule.Read(text)
	}
	if err == nil && kept.Schedule.Name != kept.Name {
		err = fmt.Errorf("read schedule %s: it calls itself %s: %w", kept.Name, kept.Schedule.Name, ErrForeign)
	}
	kept.Err = err
	return kept
}

// gzipMagic begins every schedule's value.
var gzipMagic = []byte{0x1f, 0x8b}

func squeeze(v any) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := json.NewEncoder(z).Encode(v); err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return b.Bytes(), nil
}

func expand(value []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(value))
	if err != nil {
		return nil, fmt.Errorf("read schedule: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(z, mostSchedule+1))
	if err == nil && len(text) > mostSchedule {
		err = fmt.Errorf("more than %d bytes unpacked: %w", mostSchedule, ErrTooLarge)
	}
	if err != nil {
		return nil, fmt.Errorf("read schedule: %w", err)
	}
	return text, nil
}

// PutHooks stores the names of the hooks that the leader knows.
func (c *Conn) PutHooks(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	value, err := json.Marshal(names)
	if err != nil {
		return err
	}
	kv, err := c.state(ctx)
	if err == nil {
		_, err = kv.Put(ctx, keyHooks, value)
	}
	if err != nil {
		return fmt.Errorf("store the names of hooks: %w", err)
	}
	return nil
}

// Hooks lists the names of the hooks that the last leader knew; known is false if none has said.
func (c *Conn) Hooks(ctx context.Context) (names []string, known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	kv, err := c.state(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("list hooks: %w", err)
	}
	e, err := kv.Get(ctx, keyHooks)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, false, nil
	}
	if err == nil {
		err = json.Unmarshal(e.Value(), &names)
	}
	if err != nil {
		return nil, false, fmt.Errorf("list hooks: %w", err)
	}
	return names, true, nil
}

// SubmitOnce is Submit for a run whose id says where it comes from: if it waits, runs or has run already, or somebody else submits it at this very
// moment, nothing happens.
func (c *Conn) SubmitOnce(ctx context.Context, s Submission) error {
	known, err := c.knows(ctx, s.Run.ID)
	if err == nil && !known {
		ctx, cancel := context.WithTimeout(ctx, submitTimeout)
		defer cancel()
		m, packed := c.pack(subjectSubmit(s.Run.ID), s)
		if err = packed; err == nil {
			err = c.store(ctx, m, "once."+token(s.Run.ID))
		}
	}
	if err != nil {
		return fmt.Errorf("submit run %s: %w", s.Run.ID, err)
	}
	return nil
}

// knows tells whether a run was submitted, as far as the control plane still remembers.
func (c *Conn) knows(ctx context.Context, run string) (bool, error) {
	for _, at := range [][2]string{{streamQueue, subjectSubmit(run)}, {streamRecord, subjectEvent(run)}} {
		if last, err := c.last(ctx, at[0], at[1]); err != nil || last > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// Await hands the plan and the outcomes of a run to handle, in order, and returns the event of its end when it has ended (End is set), or ctx's error. The
// error wraps ErrNoRun if the control plane does not know the run, or no more. One goroutine calls handle.
func (c *Conn) Await(ctx context.Context, run string, handle func(Entry)) (RunEvent, error) {
	known, err := c.knows(ctx, run)
	if err == nil && !known {
		err = ErrNoRun
	}
	var last func(*End, uint64) bool
	if err == nil {
		last, err = c.endOf(ctx, run)
	}
	if err != nil {
		return RunEvent{}, fmt.Errorf("await run %s: %w", run, err)
	}
	ctx, stop := c.whileKnown(ctx, run)
	defer stop()
	var end RunEvent
	err = c.follow(ctx, streamRecord, outlineOf(run), func(m jetstream.Msg, seq uint64) bool {
		e := c.entry(m, seq)
		switch {
		case e.Plan != nil, e.Outcome != nil:
			handle(e)
		case e.Event != nil && e.Event.Kind == RunEnded && e.Event.End != nil && last(e.Event.End, seq):
			end = *e.Event
			return false
		}
		return true
	})
	if err != nil {
		return RunEvent{}, fmt.Errorf("await run %s: %w", run, cmp.Or(context.Cause(ctx), err))
	}
	return end, nil
}

// knownEvery is how often is looked whether a run that is awaited is still known.
const knownEvery = 5 * time.Second

// whileKnown is a context that ends with the cause ErrNoRun when the control plane knows the run no more: what is copied is deleted when room is needed, and
// whoever has not read the end by then would wait for it for ever.
func (c *Conn) whileKnown(ctx context.Context, run string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for wait(ctx, knownEvery) == nil {
			if known, err := c.knows(ctx, run); err == nil && !known {
				cancel(ErrNoRun)
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}
