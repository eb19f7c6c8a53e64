package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrNoController is wrapped by the error of what only a controller that leads can answer.
var ErrNoController = errors.New("no controller leads on this control plane: start one with \"controller\"")

// headerLook asks for the answer to a list of agents without the list: whether a controller leads at all.
const headerLook = "Lockstep-Look"

// Led returns nil if a controller leads, ErrNoController, wrapped, if none answers, and another error if the control plane itself does not. It takes
// two seconds at most.
func (c *Conn) Led(ctx context.Context) error {
	if !c.nc.IsConnected() {
		return errors.New("the control plane does not answer")
	}
	ask, err := c.message(subjectAgents, nil)
	if err != nil {
		return err
	}
	ask.Header.Set(headerLook, "1")
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = c.ask(ctx, ask)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrPermissionViolation):
		return err
	case errors.Is(err, nats.ErrNoResponders):
		return ErrNoController
	case errors.Is(err, context.DeadlineExceeded) && c.nc.IsConnected():
		return fmt.Errorf("%w (none answered within %v)", ErrNoController, requestTimeout)
	}
	return fmt.Errorf("the control plane does not answer: %w", err)
}

// LastLeader is who leads, or led last; the zero value if nobody ever did.
func (c *Conn) LastLeader(ctx context.Context) (l LeaderInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	kv, err := c.state(ctx)
	if err != nil {
		return l, err
	}
	e, err := kv.Get(ctx, keyLeader)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(e.Value(), &l)
	}
	if err != nil {
		return l, fmt.Errorf("look who leads: %w", err)
	}
	return l, nil
}

// ErrNoRecord is wrapped by the error of Copy for a run whose record is not on the control plane: it has not begun, or was deleted there.
var ErrNoRecord = errors.New("the control plane has no record of it")

// Copy hands the record of a run, as far as it is there, to handle, like Follow, without waiting for more. It returns how the run ended; nil, if it
// has not ended since it was last submitted.
func (c *Conn) Copy(ctx context.Context, run string, handle func(Entry) error) (*End, error) {
	last, err := c.endOf(ctx, run)
	var begun uint64
	if err == nil {
		begun, err = c.last(ctx, streamRecord, subjectPlan(run))
	}
	if err == nil && begun == 0 {
		err = ErrNoRecord
	}
	if err != nil {
		return nil, fmt.Errorf("copy run %s: %w", run, err)
	}
	var end *End
	var failed error
	err = c.follow(ctx, streamRecord, recordOf(run), func(m jetstream.Msg, seq uint64) bool {
		e := c.entry(m, seq)
		if failed = handle(e); failed != nil {
			return false
		}
		if e.Event != nil && e.Event.Kind == RunEnded && e.Event.End != nil && last(e.Event.End, seq) {
			end = e.Event.End
		}
		meta, err := m.Metadata()
		return err == nil && meta.NumPending > 0
	})
	if err = errors.Join(failed, err); err != nil {
		return nil, fmt.Errorf("copy run %s: %w", run, err)
	}
	return end, nil
}

// Outline hands the plan, the events and the outcomes of a run, as far as they are there, to handle, like Copy: the record without its snapshots, which are
// nearly all of it. It returns the sequence number of the last that it handed; Onward goes on behind it.
func (c *Conn) Outline(ctx context.Context, run string, handle func(Entry)) (last uint64, err error) {
	begun, err := c.last(ctx, streamRecord, subjectPlan(run))
	if err == nil && begun == 0 {
		err = ErrNoRecord
	}
	if err == nil {
		err = c.follow(ctx, streamRecord, outlineOf(run), func(m jetstream.Msg, seq uint64) bool {
			handle(c.entry(m, seq))
			last = seq
			meta, err := m.Metadata()
			return err == nil && meta.NumPending > 0
		})
	}
	if err != nil {
		return 0, fmt.Errorf("look at run %s: %w", run, err)
	}
	return last, nil
}

// Onward hands what is stored of a run's record behind a sequence number to handle, like Follow, until ctx ends, whose error it returns. Entries say whether
// they are the Last that there is for the moment.
func (c *Conn) Onward(ctx context.Context, run string, behind uint64, handle func(Entry)) error {
	err := c.followFrom(ctx, streamRecord, behind+1, recordOf(run), func(m jetstream.Msg, seq uint64) bool {
		e := c.entry(m, seq)
		if meta, err := m.Metadata(); err == nil {
			e.Last = meta.NumPending == 0
		}
		handle(e)
		return true
	})
	return fmt.Errorf("follow run %s: %w", run, err)
}

// outlineOf matches what of a run's record is no snapshot.
func outlineOf(run string) []string {
	return []string{subjectPlan(run), subjectEvent(run), subjectsOf(run, "outcome")}
}

// recordOf matches what a follower of a run is handed.
func recordOf(run string) []string {
	return append(outlineOf(run), subjectsOf(run, "snapshot"))
}
