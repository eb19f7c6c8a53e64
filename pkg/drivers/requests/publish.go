package requests

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"lockstep/pkg/drivers"
)

// guarded ends a request that is under way when the context ends with which Publish or Flush was called.
type guarded struct {
	ctx   context.Context
	stop  func() bool
	turn  int64        // numbers the contexts
	under atomic.Int64 // turn of the request that is under way, or 0
}

// enter begins a request on behalf of ctx; storing 0 in under ends it. It costs something for each context alone.
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

// Publish takes a message into the queue or batch, or sends it and waits for the answer, as the mode is.
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

// enqueue waits for room.
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

// send sends what was gathered, unless ctx has ended. If it ends in the meantime, the confirms say so, or the error.
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

// Flush sends the batch that was gathered. Its answer is its confirm, so that it waits for that: a goroutine more would
// cost, and whoever flushes waits for the confirms next.
func (p *Publisher) Flush(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := ctx.Err(); err != nil || len(p.batch) == 0 {
		return err
	}
	return p.send(ctx)
}

// Close sends what is there and waits for the answers, within the grace.
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
			_ = p.plan.Settle(p.ctx) // no more than the attempt is guaranteed
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
