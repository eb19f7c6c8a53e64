package wire

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"

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
	Revision uint64 // of the value: grows with each change; 0: nothing was read yet
	Schedule schedule.Schedule
	Err      error
}

func keySchedule(name string) string { return token(name) }

// PutSchedule stores a changed schedule and returns its new revision. The error wraps ErrChanged if its revision is another
// by now, or it is gone.
func (c *Conn) PutSchedule(ctx context.Context, s schedule.Schedule, revision uint64) (uint64, error) {
	value, err := pack(s)
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
	if err == nil {
		now, err = replaceValue(ctx, kv, keySchedule(name), value, revision)
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

// Schedules lists all of them, also those that cannot be used.
func (c *Conn) Schedules(ctx context.Context) (all []KeptSchedule, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	kv, err := c.schedules(ctx)
	if err == nil {
		err = each(ctx, kv, ">", func(e jetstream.KeyValueEntry) {
			kept := KeptSchedule{Name: e.Key(), Revision: e.Revision()}
			if err := Guard(c.log, e.Key(), func() error { kept = readSchedule(e.Key(), e.Value(), e.Revision()); return nil }); err != nil {
				kept.Err = err
			}
			all = append(all, kept)
		})
	}
	return all, err
}

// Edited receives when a client has stored or removed a schedule, if this controller leads. It is for one reader.
func (c *Conn) Edited() <-chan struct{} { return c.edited }

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

func readSchedule(key string, value []byte, revision uint64) KeptSchedule {
	kept := KeptSchedule{Revision: revision}
	if kept.Name, kept.Err = untoken(key); kept.Err != nil {
		kept.Name = key[:min(len(key), MaxName)]
		return kept
	}
	z, err := gzip.NewReader(bytes.NewReader(value))
	if err == nil {
		kept.Schedule, err = schedule.Read(z)
	}
	if err == nil && kept.Schedule.Name != kept.Name {
		err = fmt.Errorf("read schedule %s: it calls itself %s", kept.Name, kept.Schedule.Name)
	}
	kept.Err = err
	return kept
}
