package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"lockstep/internal/plan"
)

// bucketBaselines holds baselines by name.
const bucketBaselines = "LOCKSTEP_BASELINES"

// ErrNoBaseline is wrapped by the error of what is done to a baseline that is not there.
var ErrNoBaseline = errors.New("there is no baseline of that name on the control plane: ctl baseline list shows those there, with --runs DIR those of a folder")

type (
	// BaselineQuery asks for a run to be a baseline. The name is optional: without one it is that of the run's matrix.
	BaselineQuery struct{ Name, Run, By string }
	// BaselineAnswer is the baseline that was stored. Note says which part of the run has nothing to compare with.
	BaselineAnswer struct {
		Baseline plan.Baseline
		Note     string
	}
)

// PutBaseline stores a baseline; it replaces the one of its name.
func (l *Lease) PutBaseline(ctx context.Context, b plan.BaselineRecord) error {
	kv, err := l.conn.bucket(ctx, bucketBaselines)
	var value []byte
	if err == nil {
		value, err = pack(b)
	}
	switch limit := l.conn.limit(); {
	case err != nil:
	case len(value) > limit:
		err = fmt.Errorf("%w: %d bytes, and its limit is %d (max_payload of its NATS server); give a run with fewer cells",
			ErrTooLarge, len(value), limit)
	default:
		_, err = kv.Put(ctx, token(b.Baseline.Name), value)
	}
	if err != nil {
		return fmt.Errorf("store baseline %s: %w", b.Baseline.Name, err)
	}
	return nil
}

// Baseline reads a baseline. The error wraps ErrNoBaseline if there is none of that name, and ErrUnreadable if its value
// cannot be read.
func (c *Conn) Baseline(ctx context.Context, name string) (b plan.BaselineRecord, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	kv, err := c.bucket(ctx, bucketBaselines)
	if err != nil {
		return b, err
	}
	e, err := kv.Get(ctx, token(name))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		err = ErrNoBaseline
	case err == nil:
		if err = unzip(e.Value(), "the controller", &b); err != nil {
			err = fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
	}
	if err != nil {
		return b, fmt.Errorf("read baseline %s: %w", name, err)
	}
	return b, nil
}

// baselines lists all of them by name. One that cannot be read has only its name.
func (c *Conn) baselines(ctx context.Context) (all []plan.Baseline, err error) {
	kv, err := c.bucket(ctx, bucketBaselines)
	if err == nil {
		err = each(ctx, kv, ">", func(e jetstream.KeyValueEntry) {
			var b struct{ Baseline plan.Baseline }
			if unzip(e.Value(), "the controller", &b) != nil {
				b.Baseline.Name, _ = untoken(e.Key())
			}
			all = append(all, b.Baseline)
		})
	}
	slices.SortFunc(all, func(a, b plan.Baseline) int { return cmp.Compare(a.Name, b.Name) })
	return all, err
}

// removeBaseline deletes a baseline; its run stays.
func (c *Conn) removeBaseline(ctx context.Context, name string) error {
	kv, err := c.bucket(ctx, bucketBaselines)
	if err != nil {
		return err
	}
	if _, err := kv.Get(ctx, token(name)); errors.Is(err, jetstream.ErrKeyNotFound) {
		return ErrNoBaseline
	}
	return kv.Delete(ctx, token(name))
}

// SetBaseline makes a run that has ended a baseline; it replaces the one of its name.
func (c *Client) SetBaseline(ctx context.Context, q BaselineQuery) (BaselineAnswer, error) {
	return serviceBaselineSet.call(ctx, c, "", q)
}

// Baselines lists all of them by name.
func (c *Client) Baselines(ctx context.Context) ([]plan.Baseline, error) {
	return serviceBaselines.call(ctx, c, "", empty{})
}

// RemoveBaseline deletes a baseline; its run stays. The error wraps ErrNoBaseline if there is none of that name.
func (c *Client) RemoveBaseline(ctx context.Context, name string) error {
	_, err := serviceBaselineRemove.call(ctx, c, "", named{name})
	return err
}
