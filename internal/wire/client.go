package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/wire/lease"
	"example.org/lockstep/lockstep/internal/wire/subject"
)

// Deadlines of a client's requests. A submission is repeated until submitTimeout while no controller leads.
const (
	requestTimeout = 5 * time.Second
	// of requests that may wait for writes, or whose content may be large: history, lists, attempts of a submission
	slowTimeout   = 15 * time.Second
	submitTimeout = 30 * time.Second
)

// ErrNoController is wrapped by the error of a request that no controller answers.
var ErrNoController = errors.New("no controller leads on this control plane; start one with \"lockstep-controller\" (a standby takes over within 10 s)")

// ErrQueued is wrapped by the error of a submission whose run is queued or executed.
var ErrQueued = errors.New("it is already queued or active")

// Client is the control plane for ctl, the web page and the metrics: requests to the leader, one method per request. If
// the server closed the connection, the next request dials again. Safe for concurrent use.
type Client struct {
	dial func(context.Context) (*Conn, error)

	mu     sync.Mutex
	conn   *Conn
	closed bool
	epoch  uint64 // of the newest leader that Leader returned; 0: none
}

// NewClient dials. The client owns the connections that dial returns.
func NewClient(ctx context.Context, dial func(context.Context) (*Conn, error)) (*Client, error) {
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	return &Client{dial: dial, conn: conn}, nil
}

// DialClient connects a client to the control plane of a fleet.
func DialClient(ctx context.Context, url string, auth Auth) (*Client, error) {
	return NewClient(ctx, func(ctx context.Context) (*Conn, error) { return Dial(ctx, url, auth) })
}

// Close closes the connection at once.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.conn.Close()
}

// Linked reports whether the link to the control plane is up.
func (c *Client) Linked() bool { return c.connection().Linked() }

// Local reports whether the control plane ends with this process and has one follower.
func (c *Client) Local() bool { return c.connection().Local() }

func (c *Client) connection() *Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn
}

// link returns the connection. It dials a new one if the server closed the old one.
func (c *Client) link(ctx context.Context) (*Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn.Closed() && !c.closed {
		conn, err := c.dial(ctx)
		if err != nil {
			if Unaccepted(err) {
				err = c.conn.unlinked(err)
			}
			return nil, err
		}
		c.conn = conn
	}
	return c.conn, nil
}

// Submit queues a run once. It repeats the request for up to 30 s while no controller leads or the control plane is
// away. If a request had no answer, the error reports that the run may be queued.
func (c *Client) Submit(ctx context.Context, s Submission) error {
	packed, err := pack(s)
	if err == nil && s.Run.ID == "" {
		err = errors.New("no run id")
	}
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	sent := false    // a request had no answer
	var before error // of the request before
	for q := (submitQuery{Run: s.Run.ID, Key: onceID(), Submission: packed}); err == nil && ctx.Err() == nil; {
		_, failed := serviceSubmit.call(ctx, c, "", q)
		if failed == nil {
			return nil
		}
		var answered *refused
		final := errors.As(failed, &answered) && !errors.Is(failed, ErrNoController) || permanent(failed)
		// the error itself: no controller was there to receive the request
		sent = !final && (sent || failed != ErrNoController)
		if !final && before != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			failed = before // the deadline cut this request off
		}
		before = failed
		if final || Wait(ctx, retryWait) != nil {
			err = failed
		}
	}
	if end := ctx.Err(); err == nil || errors.Is(end, context.Canceled) {
		err = end
	}
	if sent {
		err = fmt.Errorf("%w; the run may still be queued: see ctl runs list", err)
	}
	return fmt.Errorf("submit run %s: %w", s.Run.ID, err)
}

// Cancel ends a run. The task in flight is closed, torn down and left without an outcome. A queued run is removed from
// the queue. Cancel returns when the cancellation is stored; the run's record gets its end later. by: user@host.
func (c *Client) Cancel(ctx context.Context, run, by string) error {
	_, err := serviceCancel.call(ctx, c, "cancel run "+run, cancelQuery{Run: run, By: by})
	return err
}

// Leader returns the controller that leads. The error wraps ErrNoController if none leads. If the leader has changed
// since the last call, Leader ends the waiting requests, as a former leader does not answer them. Some are repeated.
func (c *Client) Leader(ctx context.Context) (lease.Holder, error) {
	l, err := serviceLeader.call(ctx, c, "", empty{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.Epoch > c.epoch {
		if c.epoch > 0 {
			c.conn.again.report()
		}
		c.epoch = l.Epoch
	}
	return l, err
}

// Agents returns the living agents, sorted by name, followed by the agents refused in the last 30 s.
func (c *Client) Agents(ctx context.Context) ([]AgentInfo, error) {
	return serviceAgents.call(ctx, c, "list agents", empty{})
}

// Runs returns the runs of the control plane, in the order of submission: see Store.Runs.
func (c *Client) Runs(ctx context.Context) ([]RunState, error) {
	return serviceRuns.call(ctx, c, "list runs", empty{})
}

// RunState returns the stored state of a run; the zero value if the run is not known.
func (c *Client) RunState(ctx context.Context, run string) (RunState, error) {
	return serviceRun.call(ctx, c, "read the state of run "+run, named{run})
}

// StorageQuota returns the size of the streams of all runs, and their limit, in bytes.
func (c *Client) StorageQuota(ctx context.Context) (used, limit uint64, err error) {
	r, err := serviceStorage.call(ctx, c, "read the streams of runs", empty{})
	return r.Used, r.Limit, err
}

// History returns the values of cells over runs.
func (c *Client) History(ctx context.Context, q plan.HistoryQuery) (plan.HistoryAnswer, error) {
	return serviceHistory.call(ctx, c, "read the history", q)
}

// Read passes the record of a run to handle: see Store.Read. It continues after losses of the link and of the leader. A
// local run has only one follower: snapshots that a reader from its start with q.Wait has handled are deleted.
func (c *Client) Read(ctx context.Context, q RecordQuery, handle func(Entry) error) (*End, error) {
	q.Delete = q.Wait && !q.Summary && q.Behind == (Cursor{}) && c.Local()
	return readRecord(ctx, c.connection, func(ctx context.Context, q RecordQuery) (batch, error) {
		return serviceRead.call(ctx, c, "", q)
	}, q, handle)
}

// PutSchedule replaces a revision of a schedule; 0: it is new. The error wraps ErrChanged if there is another one.
func (c *Client) PutSchedule(ctx context.Context, s schedule.Schedule, revision uint64) error {
	value, err := pack(s)
	if err == nil {
		_, err = serviceSchedulePut.call(ctx, c, "", storedSchedule{Name: s.Name, Revision: revision, Value: value})
	}
	return wrap(err, "store schedule %s", s.Name)
}

// Schedule reads a schedule. The error wraps ErrNoSchedule if there is none of that name.
func (c *Client) Schedule(ctx context.Context, name string) (KeptSchedule, error) {
	a, err := serviceSchedule.call(ctx, c, "read schedule "+name, named{name})
	if err != nil {
		return KeptSchedule{}, err
	}
	kept := readSchedule(subject.EncodeToken(name), a.Value, a.Revision)
	return kept, kept.Err
}

// Schedules returns all schedules, sorted by name, including those that cannot be used.
func (c *Client) Schedules(ctx context.Context) ([]KeptSchedule, error) {
	names, err := serviceSchedules.call(ctx, c, "list schedules", empty{})
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var all []KeptSchedule
	for _, name := range names {
		kept, err := c.Schedule(ctx, name)
		switch {
		case errors.Is(err, ErrNoSchedule): // removed meanwhile
		case err != nil && kept.Err == nil:
			return nil, err
		default:
			all = append(all, kept)
		}
	}
	return all, nil
}

// EditSchedule changes a schedule and returns the new state. change is called again if the controller has updated the
// schedule meanwhile. If another user has edited it meanwhile, the error wraps ErrChanged, and the returned schedule is
// that user's. An error of change ends the edit.
func (c *Client) EditSchedule(ctx context.Context, name string,
	change func(*schedule.Schedule) error) (schedule.Schedule, error) {
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
		if err = c.PutSchedule(ctx, s, kept.Revision); !errors.Is(err, ErrChanged) {
			return s, err
		}
	}
}

// RemoveSchedule deletes a schedule with its history. A run in flight continues.
func (c *Client) RemoveSchedule(ctx context.Context, name string, revision uint64) error {
	_, err := serviceScheduleRemove.call(ctx, c, "remove schedule "+name,
		storedSchedule{Name: name, Revision: revision})
	return err
}

// Hooks returns the names of the controller's hooks.
func (c *Client) Hooks(ctx context.Context) ([]string, error) {
	return serviceHooks.call(ctx, c, "list hooks", empty{})
}

// SetBaseline makes an ended run a baseline. It replaces an existing baseline of the same name.
func (c *Client) SetBaseline(ctx context.Context, q BaselineQuery) (BaselineAnswer, error) {
	return serviceBaselineSet.call(ctx, c, "", q)
}

// Baselines returns all baselines, sorted by name.
func (c *Client) Baselines(ctx context.Context) ([]plan.Baseline, error) {
	return serviceBaselines.call(ctx, c, "", empty{})
}

// RemoveBaseline deletes a baseline. Its run stays. The error wraps ErrNoBaseline if there is none of that name.
func (c *Client) RemoveBaseline(ctx context.Context, name string) error {
	_, err := serviceBaselineRemove.call(ctx, c, "", named{name})
	return err
}
