package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire/keys"
	"example.org/lockstep/lockstep/internal/wire/lease"
	"example.org/lockstep/lockstep/internal/wire/subject"
)

// LeaderGone is how long an agent continues an attempt without an answer from any controller.
const LeaderGone = 2 * time.Minute

// Limits of one request between an agent and a controller. A request without an answer is repeated.
const (
	commandTimeout = time.Second
	reportTimeout  = 5 * time.Second
	repeatAfter    = 250 * time.Millisecond
)

// ErrNoAttempt is wrapped by the error of a report about an attempt that the controller does not lead with this agent.
var ErrNoAttempt = errors.New("the controller does not lead this attempt with this agent")

// ErrNotStored is wrapped by the error of a report that was not stored, but may be stored at a later attempt.
var ErrNotStored = errors.New("not stored by the control plane")

// Agent sends requests of an agent, with all its slots, to the leader, and receives commands. Safe for concurrent use.
type Agent struct {
	conn *Conn

	mu     sync.Mutex
	epoch  uint64 // the highest epoch received so far from server
	server string // id of the server; empty: a cluster
}

// NewAgent returns the control plane for an agent. The caller keeps the ownership of conn.
func NewAgent(conn *Conn) *Agent { return &Agent{conn: conn} }

// LocalPort returns the port of the control plane if it is on this host, else 0. Network faults must not affect it.
func (a *Agent) LocalPort() int {
	at, err := net.ResolveTCPAddr("tcp", a.conn.nc.ConnectedAddr())
	if err != nil || at.IP == nil {
		return 0
	}
	if !at.IP.IsLoopback() {
		own, _ := net.InterfaceAddrs()
		if !slices.ContainsFunc(own, func(a net.Addr) bool { n, ok := a.(*net.IPNet); return ok && n.IP.Equal(at.IP) }) {
			return 0
		}
	}
	return at.Port
}

// acceptEpoch returns an error for epochs that no leader can have, and for epochs lower than the highest received one.
// A single server that was started again may have lost its data, and its clock may have been set back. Then lower
// epochs begin.
func (a *Agent) acceptEpoch(epoch uint64) error {
	if err := lease.CheckEpoch(epoch); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if id := a.conn.nc.ConnectedServerId(); id != "" && id != a.server && a.conn.nc.ConnectedClusterName() == "" {
		a.server, a.epoch = id, 0
	}
	if epoch < a.epoch {
		return fmt.Errorf("sent by the controller of epoch %d, but epoch %d leads: %w", epoch, a.epoch, lease.ErrFenced)
	}
	a.epoch = epoch
	return nil
}

// SendHeartbeats sends a heartbeat every HeartbeatEvery until ctx ends. Then it sends a leaving heartbeat and returns
// nil. It returns an error if the controller refuses the agent, or the connection was closed.
//
// end is called if the attempt in a heartbeat must be ended. The reason is ErrNoAttempt if no controller leads it, or
// ErrNoController if none has answered for LeaderGone. now and end are called from one goroutine.
func (a *Agent) SendHeartbeats(ctx context.Context, now func() Heartbeat, end func(attempt Ref, why error)) error {
	answered, last, logged := time.Now(), Ref{}, ""
	for {
		h, sent := now(), time.Now()
		if h.Attempt != last {
			answered, last = sent, h.Attempt // the time starts when the attempt does
		}
		answer, err := a.heartbeat(ctx, h)
		pause := repeatAfter
		switch {
		case err == nil:
			answered, pause = sent, HeartbeatEvery-time.Since(sent)
			if answer.Over {
				end(h.Attempt, ErrNoAttempt)
			}
		case ctx.Err() != nil:
		case errors.Is(err, nats.ErrPermissionViolation):
			return a.permissionHint(h)
		case rejected(err), a.conn.Closed():
			return fmt.Errorf("send heartbeat: %w", a.conn.unlinked(err))
		case h.Attempt != (Ref{}) && time.Since(answered) >= LeaderGone:
			end(h.Attempt, fmt.Errorf("no response of a controller for %v: %w", LeaderGone, ErrNoController))
		case errors.Is(err, lease.ErrAhead) && err.Error() != logged:
			logged = err.Error()
			a.conn.log.Warn("response to a heartbeat ignored", "err", err)
		}
		if Wait(ctx, pause) != nil {
			h = now()
			h.Leaving = true
			_, _ = a.heartbeat(context.WithoutCancel(ctx), h) // the controller also notices without it
			return nil
		}
	}
}

func (a *Agent) heartbeat(ctx context.Context, h Heartbeat) (answer HeartbeatAnswer, err error) {
	if !a.conn.Linked() {
		return answer, ErrNoController
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	return request[Heartbeat, HeartbeatAnswer](ctx, a.conn, a.acceptEpoch, subject.Heartbeat(h.Agent), h)
}

// permissionHint returns the error of a heartbeat that the credentials do not allow, with the probable fix.
func (a *Agent) permissionHint(h Heartbeat) error {
	holder := a.conn.holder
	if h.Agent != h.Process && (holder == "" || holder == keys.User{Role: keys.RoleAgent, Name: h.Process}.String()) {
		return fmt.Errorf("the credentials of agent %s do not include %s: they are for fewer than %d slots; reduce --slots, or remove the credentials and create new ones with ctl fleet add --slots %d DIR %s: %w",
			h.Process, h.Agent, h.Slots, h.Slots, h.Process, nats.ErrPermissionViolation)
	}
	of := "for another name"
	if holder != "" {
		of = "those of " + holder
	}
	return fmt.Errorf("the credentials of agent %s are %s; use its own (ctl fleet add DIR %s), or pass the --name of the credentials: %w",
		h.Process, of, h.Process, nats.ErrPermissionViolation)
}

// AskClock requests the controller's time once. It returns the four times of the exchange, by how much both clocks were
// slewed, and the id of the controller's clock.
func (a *Agent) AskClock(ctx context.Context, agent string) (reference string, x clock.Exchange, err error) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	x.Sent = clock.Now()
	answer, err := request[empty, clockAnswer](ctx, a.conn, a.acceptEpoch, subject.Clock(agent), empty{})
	x.Received = clock.Now()
	slew, bound := clock.Slew()
	if err == nil && answer.Clock == "" {
		err = errors.New("no clock in the response")
	}
	if err != nil {
		return "", x, fmt.Errorf("request the time of the controller: %w", err)
	}
	x.Arrived, x.Answered = answer.Arrived, answer.Answered
	x.Slew, x.OtherSlew, x.SlewBound = slew, answer.Slew, bound+answer.SlewBound
	return answer.Clock, x, nil
}

// Commands passes the commands for a process of an agent to handle until stop is called, one at a time and in order.
// The controller repeats a command until handle has returned. So handle must return soon, and a command may come more
// than once. Commands of a former leader are refused. Those for another process of the same name are not answered.
func (a *Agent) Commands(agent, instance string, handle func(Command) error) (stop func(), err error) {
	s := service{subject: subject.Command(agent), size: MaxMessage, parallel: 1}
	return serve(a.conn, s, func(_ context.Context, _ string, c Command) (empty, error) {
		if c.Instance != instance {
			return empty{}, errUnanswered
		}
		err := a.acceptEpoch(c.Epoch)
		if err == nil && (c.Assignment == nil) == (c.Release == nil) {
			err = errors.New("read command: neither an assignment nor a release, or both")
		}
		if err == nil && c.Assignment != nil && (RefOf(c.Assignment.Task) != c.Ref || c.Assignment.Agent != agent) {
			err = fmt.Errorf("read assignment: it is for agent %q and attempt %s, but was sent to agent %q for attempt %s",
				c.Assignment.Agent, RefOf(c.Assignment.Task), agent, c.Ref)
		}
		if err == nil {
			err = handle(c)
		}
		return empty{}, err
	})
}

// Arrive reports an agent's arrival at a step, or its failure. It retries until the controller has it or ctx ends.
func (a *Agent) Arrive(ctx context.Context, v Arrival) error {
	v.Error = cut(v.Error, maxError)
	return wrap(repeat(ctx, a.conn, a.acceptEpoch, subject.Arrive(v.Agent), reportTimeout, v), "arrive at %s", v.Step)
}

// Snapshot reports a snapshot. It retries until the snapshot is stored or ctx ends. The controller stores each number
// of an agent once. An agent must send its snapshots one after the other. ErrTooLarge means that it must be split.
func (a *Agent) Snapshot(ctx context.Context, ref Ref, s record.Snapshot) error {
	report := snapshotReport{ref, s}
	return wrap(repeat(ctx, a.conn, a.acceptEpoch, subject.Report(s.Agent), reportTimeout, report), "send snapshot")
}

// repeat sends a request, for timeout each, until ctx ends or there is an answer other than that it was not stored.
func repeat[Q any](ctx context.Context, c *Conn, checkEpoch func(uint64) error, subject string, timeout time.Duration,
	q Q) error {
	for {
		err := ErrNoController
		if c.Linked() { // else the library would buffer all of them until the link is restored
			one, stop := c.again.within(ctx)
			bounded, cancel := context.WithTimeout(one, timeout)
			_, err = request[Q, empty](bounded, c, checkEpoch, subject, q)
			cancel()
			stop()
		}
		if err == nil || rejected(err) && !errors.Is(err, ErrNotStored) || errors.Is(err, ErrTooLarge) ||
			errors.Is(err, nats.ErrPermissionViolation) || c.Closed() {
			return c.unlinked(err)
		}
		if Wait(ctx, repeatAfter) != nil {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// rejected reports whether a request was answered with an error, or by a peer of another protocol version.
func rejected(err error) bool {
	var answer *refused
	return errors.As(err, &answer) || errors.Is(err, ErrProtocol)
}
