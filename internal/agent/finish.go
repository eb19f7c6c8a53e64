package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"lockstep/internal/engine"
	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// finishReason waits for the controller's word to finish, or says why none is waited for.
func (t *task) finishReason(ctx context.Context) error {
	if _, err := t.await(ctx, wire.StepFinish); err != nil {
		return err
	}
	return nil
}

// finish closes publishers and consumers and stores the last snapshot. Stuck is why the engine may still be at work.
func (t *task) finish(ctx context.Context, reason, stuck error) {
	if reason != nil {
		t.log.Warn("task ended by the agent", "reason", reason)
	}
	t.setPhase(plan.PhaseTeardown)
	err := stuck
	if e := t.theEngine(); e != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		err = errors.Join(err, e.Close(closing))
		cancel()
		t.lastSnapshot(e, err == nil)
	}
	if err == nil {
		err = reason
	}
	t.handIn(ctx, err)
}

// handIn gives the controller the rest of this agent's part and answers it.
func (t *task) handIn(ctx context.Context, failure error) {
	ctx, cancel := wire.Lasting(ctx, t.cfg.answer)
	defer cancel()
	handed := make(chan struct{})
	defer close(handed)
	go func() { // nobody waits for it any more, and it does not wait either
		select {
		case <-t.dismissed:
			late := time.NewTimer(t.cfg.answer)
			defer late.Stop()
			select {
			case <-late.C:
				cancel()
			case <-handed:
			}
		case <-handed:
		}
	}()
	t.sending <- struct{}{}
	defer func() { <-t.sending }()
	sent := t.send(ctx)
	if sent != nil {
		t.log.Error("hand in this agent's part", "err", sent)
		failure = errors.Join(failure, sent)
	}
	if failure != nil {
		failure = fmt.Errorf("finish on agent %s: %w", t.cfg.Name, failure)
	}
	t.unheard = t.say(ctx, t.arrival(ctx, wire.StepFinish, failure)) != nil || sent != nil
}

// clear removes the topology when this agent is named for it, or by itself when it set it up and hears nothing any more; it returns when
// the task is done.
func (t *task) clear(ctx context.Context) {
	for {
		select {
		case r := <-t.releases: // before the end, if both are there
			t.tearDownIf(ctx, r)
			continue
		default:
		}
		select {
		case r := <-t.releases:
			t.tearDownIf(ctx, r)
		case <-t.dismissed:
			return
		case <-ctx.Done():
			// Another leader repeats the task as soon as nobody works on it, maybe without agent 0.
			if unled := errors.Is(context.Cause(ctx), errUnled); (t.a.Index == 0 || unled) && !t.cleared {
				if err := t.teardown(ctx); err != nil {
					t.log.Error("tear down", "err", err)
				}
			}
			return
		}
	}
}

func (t *task) tearDownIf(ctx context.Context, r wire.Release) {
	if r.Step == wire.StepTeardown && r.Agent == t.cfg.Name {
		t.arriveLast(ctx, wire.StepTeardown, t.teardown(ctx))
	}
}

func (t *task) teardown(ctx context.Context) error {
	s := t.openSession()
	if s == nil { // it could not be opened, so nothing was declared from here
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.work.Connect.D())
	defer cancel()
	if err := s.Teardown(ctx, engine.Topology(t.a.Task)); err != nil {
		return fmt.Errorf("tear down on agent %s: %w", t.cfg.Name, err)
	}
	t.cleared = true
	return nil
}

// close ends the session and removes the task's folder.
func (t *task) close() {
	observer.CompareAndSwap(t, nil)
	t.mu.Lock()
	session, forwarder, dir := t.session, t.forwarder, t.dir
	t.mu.Unlock()
	if session != nil {
		closed := make(chan error, 1)
		go func() { closed <- session.Close() }()
		select {
		case err := <-closed:
			if err != nil {
				t.log.Warn("close session", "err", err)
			}
		case <-time.After(closeTimeout):
			t.log.Error("driver's session did not close: left behind", "driver", t.a.Task.Cell.Broker.Driver)
		}
	}
	if forwarder != nil {
		if err := forwarder.Close(); err != nil {
			t.log.Warn("close forwarder", "err", err)
		}
	}
	if dir != "" {
		if err := os.RemoveAll(dir); err != nil {
			t.log.Warn("remove the task's folder", "err", err)
		}
	}
}
