package wire

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"lockstep/internal/schedule"
)

// ErrNoSchedule is wrapped by the error of what is done to a schedule that is not there.
var ErrNoSchedule = errors.New("there is no schedule of that name")

// ErrChanged is wrapped by the error of a change to a schedule that somebody else has changed since it was read. Nothing is changed then.
var ErrChanged = errors.New("it was changed meanwhile")

// KeptSchedule is a schedule as the control plane keeps it, or why it cannot be used.
type KeptSchedule struct {
	Name     string
	Revision uint64 // of the value: grows with each change; 0: it was removed
	Schedule schedule.Schedule
	Err      error
}

func keySchedule(name string) string { return token(name) }

// mostSchedule bounds what a stored schedule may grow to: a matrix, its history, comparisons.
const mostSchedule = 8 << 20

// PutSchedule stores a changed schedule and returns its new revision. The error wraps ErrChanged if its revision is another by now, ErrNoSchedule if it is gone.
func (c *Conn) PutSchedule(ctx context.Context, s schedule.Schedule, revision uint64) (uint64, error) {
	value, err := squeeze(s)
	if err == nil {
		revision, err = c.putValue(ctx, s.Name, value, revision)
	}
	if err != nil {
		return 0, fmt.Errorf("store schedule %s: %w", s.Name, err)
	}
	return revision, nil
}

// putValue stores a schedule, a new one if revision is 0, and returns its new revision.
func (c *Conn) putValue(ctx context.Context, name string, value []byte, revision uint64) (now uint64, err error) {
	if limit := c.limit() / 4 * 3; len(value) > limit { // readers get it in base64
		return 0, fmt.Errorf("%d bytes, and the limit is %d (max_payload of its NATS server): %w", len(value), limit, ErrTooLarge)
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	kv, err := c.schedules(ctx)
	switch {
	case err != nil:
	case revision == 0:
		now, err = kv.Create(ctx, keySchedule(name), value)
	default:
		now, err = kv.Update(ctx, keySchedule(name), value, revision)
	}
	if conflict(err) {
		err = ErrChanged
	}
	return now, err
}

// Schedule reads a schedule. The error wraps ErrNoSchedule if there is none of that name.
func (c *Conn) Schedule(ctx context.Context, name string) (KeptSchedule, error) {
	value, revision, err := c.scheduleValue(ctx, name)
	if err != nil {
		return KeptSchedule{}, fmt.Errorf("read schedule %s: %w", name, err)
	}
	kept := readSchedule(keySchedule(name), value, revision)
	return kept, kept.Err
}

func (c *Conn) scheduleValue(ctx context.Context, name string) (value []byte, revision uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	kv, err := c.schedules(ctx)
	if err != nil {
		return nil, 0, err
	}
	e, err := kv.Get(ctx, keySchedule(name))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		err = ErrNoSchedule
	}
	if err != nil {
		return nil, 0, err
	}
	return e.Value(), e.Revision(), nil
}

// scheduleNames lists the names of all schedules.
func (c *Conn) scheduleNames(ctx context.Context) (names []string, err error) {
	kv, err := c.schedules(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := kv.Keys(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoKeysFound) {
		return nil, err
	}
	for _, key := range keys {
		if name, err := untoken(key); err == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

func (c *Conn) removeSchedule(ctx context.Context, name string, revision uint64) error {
	if revision == 0 { // to the library: any
		return ErrChanged
	}
	kv, err := c.schedules(ctx)
	if err != nil {
		return err
	}
	if err = kv.Delete(ctx, keySchedule(name), jetstream.LastRevision(revision)); conflict(err) {
		return ErrChanged
	}
	return err
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
	text, err := expand(value)
	if err == nil {
		kept.Schedule, err = schedule.Read(text)
	}
	if err == nil && kept.Schedule.Name != kept.Name {
		err = fmt.Errorf("read schedule %s: it calls itself %s", kept.Name, kept.Schedule.Name)
	}
	kept.Err = err
	return kept
}

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
