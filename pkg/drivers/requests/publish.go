package requests

import (
	"context"
	"fmt"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// Publish adds a message to the queue or batch, or sends it and waits for the answer. The mode decides which.
func (p *Publisher) Publish(ctx context.Context, m drivers.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.done || p.over() {
		return fmt.Errorf("publish: %w", p.reason())
	}
	if p.queue != nil {
		return p.enqueue(ctx, m)
	}
	p.batch = append(p.batch, m)
	if p.plan.Spec.Mode == drivers.ConfirmBatch && len(p.batch) < p.plan.Spec.Batch {
		return nil
	}
	return p.send()
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
	case <-p.plan.Conn.working.Done():
		return fmt.Errorf("publish: %w", p.reason())
	}
}

// send sends the batch, and waits for the answers. In confirmed modes, the confirms have the errors.
func (p *Publisher) send() error {
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
	return p.send()
}

// Close sends the remaining messages and waits up to grace for the answers.
func (p *Publisher) Close() error {
	p.once.Do(func() {
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
		p.mu.Unlock()
		p.running.Wait()
		if p.plan.Settle != nil && !p.plan.Spec.Mode.Confirmed() && !p.over() {
			_ = p.plan.Settle(p.ctx) // best effort: no error is reported
		}
		p.cancel()
		for _, l := range p.lanes {
			l.watch.Close()
		}
	})
	return nil
}
