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

// handIn gives the controller the rest of this agent's part and answers it. All of that is on disk before the first word, and is deleted when the
// last is stored; what cannot be handed in now stays there.
func (t *task) handIn(ctx context.Context, failure error) {
	ctx, cancel := wire.Lasting(ctx, t.cfg.answer)
	defer cancel()
	handed := make(chan struct{})
	defer close(handed)
	go func() { // what is not taken waits in the spool, and not this agent, when nobody waits for it any more
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
	t.sending.Lock()
	defer t.sending.Unlock()
	words := func(err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("finish on agent %s: %w", t.cfg.Name, err)
	}
	t.unheard = true // until the last is stored
	a := t.arrival(ctx, wire.StepFinish, words(failure))
	a.Remark = t.unkeptRemark(t.keepUnsent(&a))
	if sent := t.send(ctx); sent != nil {
		a.Error = t.clean(words(errors.Join(failure, sent)).Error())
		t.log.Error("hand in this agent's part", "err", sent)
		_ = t.say(ctx, a) // it may still come through
		return
	}
	if t.say(ctx, a) == nil {
		t.unheard = false
		t.spool.drop(owner{t.a.Ref(), t.cfg.Name})
	}
}

// unkeptRemark says in the record that the agent's disk did not take what it should.
func (t *task) unkeptRemark(err error) string {
	if err == nil {
		return ""
	}
	return t.clean("kept in memory alone: " + err.Error())
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
			if t.a.Index == 0 && !t.cleared {
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
