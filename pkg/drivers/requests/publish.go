package requests

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"lockstep/pkg/drivers"
)

// guarded interrupts a running request when the context of Publish or Flush ends.
type guarded struct {
	ctx   context.Context
	stop  func() bool
	turn  int64        // number of the current context
	under atomic.Int64 // turn of the running request, or 0
}

// enter starts a request for ctx. Storing 0 in under ends it. The cost is per context, not per request.
func (g *guarded) enter(ctx context.Context, end func()) {
	if ctx != g.ctx {
		g.release()
		g.ctx, g.turn = ctx, g.turn+1
		turn := g.turn
		g.stop = context.AfterFunc(ctx, func() {
			if g.under.Load() == turn {
				end()
			}
		})
	}
	g.under.Store(g.turn)
}

func (g *guarded) release() {
	if g.stop != nil {
		g.stop()
	}
}

// Publish adds a message to the queue or batch, or sends it and waits for the answer. The mode decides which.
func (p *Publisher) Publish(ctx context.Context, m drivers.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(ctx); err != nil {
		return err
	}
	mode := p.plan.Spec.Mode
	if mode == drivers.ConfirmWindow {
		return p.enqueue(ctx, m)
	}
	p.batch = append(p.batch, m)
	if mode == drivers.ConfirmBatch && len(p.batch) < p.plan.Spec.Batch {
		return nil
	}
	err := p.send(ctx)
	if n := len(p.batch); n > 0 { // ctx ended before anything was sent
		p.batch = p.batch[:n-1]
	}
	return err
}

func (p *Publisher) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.isBroken(); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if p.done || p.ctx.Err() != nil {
		return fmt.Errorf("publish: %w", drivers.ErrClosed)
	}
	return nil
}

// enqueue adds a message to the queue. It blocks while the queue is full.
func (p *Publisher) enqueue(ctx context.Context, m drivers.Message) error {
	select {
	case p.queue <- m:
		return nil
	default:
	}
	p.plan.Spec.Waiting.Begin()
	defer p.plan.Spec.Waiting.End()
	select {
	case p.queue <- m:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.broken:
		return fmt.Errorf("publish: %w", p.cause)
	case <-p.closing:
	case <-p.ctx.Done():
	}
	return fmt.Errorf("publish: %w", drivers.ErrClosed)
}

// send sends the batch, unless ctx has ended. If ctx ends meanwhile, the confirms or the returned error report it.
func (p *Publisher) send(ctx context.Context) error {
	p.guarded.enter(ctx, p.cancel)
	defer p.guarded.under.Store(0)
	if err := ctx.Err(); err != nil {
		return err
	}
	defer func() { p.batch = p.batch[:0] }()
	if p.plan.Spec.Mode.Confirmed() {
		p.first.settle(p.batch)
		return nil
	}
	_, err := p.first.request(p.batch)
	if err == nil {
		err = p.first.verdicts[0]
	}
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}

// Flush sends the batch and waits for its answer, which is its confirm. Waiting elsewhere would cost a goroutine, and
// callers of Flush wait for the confirms next anyway.
func (p *Publisher) Flush(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := ctx.Err(); err != nil || len(p.batch) == 0 {
		return err
	}
	return p.send(ctx)
}

// Close sends the remaining messages and waits up to grace for the answers.
func (p *Publisher) Close() error {
	p.once.Do(func() {
		p.notice.End()
		close(p.closing)
		hard := time.AfterFunc(grace, p.cancel)
		defer hard.Stop()
		p.mu.Lock()
		p.done = true
		if p.queue != nil {
			close(p.queue)
		}
		if len(p.batch) > 0 {
			p.first.settle(p.batch)
		}
		p.guarded.release()
		p.mu.Unlock()
		p.running.Wait()
		if p.plan.Settle != nil && !p.plan.Spec.Mode.Confirmed() && p.isBroken() == nil && p.ctx.Err() == nil {
			_ = p.plan.Settle(p.ctx) // best effort: no error is reported
		}
		p.cancel()
		for _, l := range p.lanes {
			l.watch.Close()
		}
		if p.plan.Leave != nil {
			p.plan.Leave()
		}
	})
	return nil
}
