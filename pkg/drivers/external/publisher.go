package external

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// publisher numbers its messages from 0. Confirms contain these numbers, so that tokens never pass through the numbers
// of another language.
type publisher struct {
	kit.State
	conn    *conn
	id      uint64
	spec    drivers.PublisherSpec
	flushes bool

	taken chan struct{} // capacity 1: messages were taken, or the publisher has ended
	once  sync.Once

	reporting sync.Mutex // locked during OnConfirms and OnReturn: one call at a time
	tokens    []uint64   // buffer

	mu           sync.Mutex
	end          error // why no message is accepted any more
	settled      bool  // every accepted message has its confirm
	next         uint64
	unconfirmed  unconfirmed
	untaken      int
	untakenBytes int
	batch        *parcel
}

// Publish copies the message into the next frame. It blocks while the driver has not taken a full window of messages or
// bytes.
func (p *publisher) Publish(ctx context.Context, m drivers.Message) error {
	if len(m.Body) > maxMessage {
		return fmt.Errorf("publish: a message of %d bytes: a driver of another process accepts at most %d", len(m.Body),
			maxMessage)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for {
		accepted, err := p.offer(m)
		if accepted || err != nil {
			return err
		}
		p.spec.Waiting.Begin()
		select {
		case <-p.taken:
		case <-ctx.Done():
			err = fmt.Errorf("publish: the driver accepts no message: %w", ctx.Err())
		}
		p.spec.Waiting.End()
		if err != nil {
			return err
		}
	}
}

func (p *publisher) offer(m drivers.Message) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		return false, fmt.Errorf("publish: %w", p.end)
	}
	if p.untaken >= windowMessages || p.untakenBytes >= windowBytes {
		return false, nil
	}
	if p.spec.Mode.Confirmed() {
		p.unconfirmed.add(m.Token)
	}
	p.untaken, p.untakenBytes = p.untaken+1, p.untakenBytes+len(m.Body)
	p.batch = p.conn.link.out.message(p.batch, p.id, p.next, m.Key, m.Body)
	p.next++
	return true, nil
}

func (p *publisher) wake() {
	select {
	case p.taken <- struct{}{}:
	default:
	}
}

// Flush sends a flush to drivers that buffer. For other drivers it does nothing, because messages are sent immediately.
func (p *publisher) Flush(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		return fmt.Errorf("flush: %w", p.end)
	}
	if p.flushes {
		p.conn.link.out.flush(p.batch, p.id, p.next)
		p.batch = nil
	}
	return ctx.Err()
}

// receive processes one frame of the driver about the publisher.
func (p *publisher) receive(s inbound, body []byte) error {
	switch s.Type {
	case typeTaken:
		return p.release(s.Count, s.Bytes)
	case typeReturn:
		return p.returned(body)
	}
	var refusal error
	if s.Kind != "" {
		if s.Kind != "closed" && s.Kind != "rejected" {
			return fmt.Errorf("confirm has kind %.100q: want closed or rejected, or none", s.Kind)
		}
		refusal, _ = failure(s.Kind, s.Message)
	}
	return p.confirm(s.Numbers, refusal)
}

func (p *publisher) release(count, bytes int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if count < 0 || bytes < 0 || count > p.untaken || bytes > p.untakenBytes {
		return fmt.Errorf("taken has %d messages of %d bytes, but publisher %d has only %d messages of %d bytes that are not taken",
			count, bytes, p.id, p.untaken, p.untakenBytes)
	}
	p.untaken, p.untakenBytes = p.untaken-count, p.untakenBytes-bytes
	p.wake()
	return nil
}

// confirm settles ranges of message numbers.
func (p *publisher) confirm(ranges [][2]uint64, refusal error) error {
	if !p.spec.Mode.Confirmed() {
		return fmt.Errorf("publisher %d of mode %s gets confirms", p.id, p.spec.Mode)
	}
	p.reporting.Lock()
	defer p.reporting.Unlock()
	p.mu.Lock()
	if p.settled {
		p.mu.Unlock()
		return nil // settle has reported them already
	}
	var err error
	p.tokens, err = p.unconfirmed.settle(p.tokens[:0], ranges)
	p.mu.Unlock()
	if len(p.tokens) > 0 {
		p.spec.OnConfirms(p.tokens, refusal)
	}
	if err != nil {
		return fmt.Errorf("confirm of publisher %d: %w", p.id, err)
	}
	return nil
}

func (p *publisher) returned(body []byte) error {
	if !p.spec.Mandatory {
		return fmt.Errorf("publisher %d gets back a message that was not mandatory", p.id)
	}
	p.reporting.Lock()
	defer p.reporting.Unlock()
	p.mu.Lock()
	over := p.settled
	p.mu.Unlock()
	if !over && p.spec.OnReturn != nil {
		p.spec.OnReturn(body)
	}
	return nil
}

// stop makes the publisher reject messages.
func (p *publisher) stop(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil {
		p.end = why
	}
	p.wake()
}

// settle reports all outstanding confirms as failed.
func (p *publisher) settle(why error) {
	p.stop(why)
	p.reporting.Lock()
	defer p.reporting.Unlock()
	p.mu.Lock()
	p.settled = true
	rest := p.unconfirmed.rest()
	p.mu.Unlock()
	if len(rest) > 0 {
		p.spec.OnConfirms(rest, why)
	}
}

func (p *publisher) on() *conn { return p.conn }

// lose ends the publisher because of why, or because its connection was closed.
func (p *publisher) lose(why error) {
	p.settle(cmp.Or(why, fmt.Errorf("publisher: %w", drivers.ErrClosed)))
	end(&p.State, why)
}

// Close makes the driver send and confirm the remaining messages, within limits.close. Then it fails the others.
func (p *publisher) Close() error {
	p.once.Do(func() {
		p.End()
		p.stop(fmt.Errorf("publisher: %w", drivers.ErrClosed))
		err := p.conn.link.close(outbound{Publisher: p.id})
		why := fmt.Errorf("%w before the confirm came", drivers.ErrClosed)
		if err != nil {
			why = fmt.Errorf("%w: close publisher: %w", drivers.ErrClosed, err)
		}
		p.settle(why)
	})
	return nil
}

// unconfirmed stores the tokens of messages by number, until they are confirmed.
type unconfirmed struct {
	first   uint64 // number of entries[0]
	entries []entry
	head    int // entries before this index are settled and can be removed
}

type entry struct {
	token   uint64
	settled bool
}

func (u *unconfirmed) add(token uint64) { u.entries = append(u.entries, entry{token: token}) }

// settle appends the tokens of ranges to tokens. It stops with an error at the first number that is not outstanding.
func (u *unconfirmed) settle(tokens []uint64, ranges [][2]uint64) ([]uint64, error) {
	for _, r := range ranges {
		end := u.first + uint64(len(u.entries))
		if r[0] > r[1] || r[1] >= end {
			return tokens, fmt.Errorf("messages %d to %d are confirmed, and %d were sent", r[0], r[1], end)
		}
		for n := r[0]; n <= r[1]; n++ {
			if n < u.first || u.entries[n-u.first].settled {
				return tokens, fmt.Errorf("message %d is confirmed twice", n)
			}
			e := &u.entries[n-u.first]
			e.settled = true
			tokens = append(tokens, e.token)
		}
	}
	// remove the settled entries at the beginning, if they are more than half of all entries
	for u.head < len(u.entries) && u.entries[u.head].settled {
		u.head++
	}
	if u.head > len(u.entries)/2 {
		n := copy(u.entries, u.entries[u.head:])
		u.first, u.entries, u.head = u.first+uint64(u.head), u.entries[:n], 0
	}
	return tokens, nil
}

// rest removes all outstanding entries and returns their tokens.
func (u *unconfirmed) rest() (tokens []uint64) {
	for _, e := range u.entries[u.head:] {
		if !e.settled {
			tokens = append(tokens, e.token)
		}
	}
	u.first, u.entries, u.head = u.first+uint64(len(u.entries)), nil, 0
	return tokens
}
