package amqp10

import (
	"context"
	"fmt"
	"sync"

	"github.com/Azure/go-amqp"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// pending is a message whose confirm is outstanding.
type pending struct {
	receipt amqp.SendReceipt
	token   uint64
}

// settler calls OnConfirms with the broker's dispositions, from one goroutine. It waits for them in the order of
// sending, in which the brokers settle the messages of one link. The library does not report which messages one
// disposition settles, so each has its own call.
type settler struct {
	of    *publisher
	token [1]uint64 // buffer of OnConfirms

	mu      sync.Mutex
	more    sync.Cond // waiting or ending has changed
	waiting []pending
	ending  bool
	ended   chan struct{}
}

func newSettler(p *publisher) *settler {
	s := &settler{of: p, ended: make(chan struct{})}
	s.more.L = &s.mu
	go s.run()
	return s
}

// add hands over a sent message. It is called from one goroutine.
func (s *settler) add(p pending) {
	s.mu.Lock()
	s.waiting = append(s.waiting, p)
	s.mu.Unlock()
	s.more.Signal()
}

// finish waits until everything is settled. The link must be closed. It may be called on nil.
func (s *settler) finish() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	s.more.Signal()
	<-s.ended
}

func (s *settler) run() {
	defer close(s.ended)
	var batch []pending
	for {
		s.mu.Lock()
		for len(s.waiting) == 0 && !s.ending {
			s.more.Wait()
		}
		batch, s.waiting = s.waiting, batch[:0]
		s.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		for i := range batch {
			s.now(context.Background(), &batch[i], nil)
		}
		clear(batch)
	}
}

// now waits for the disposition of p and reports it. It returns false if ctx ended first. w counts the time of waiting.
func (s *settler) now(ctx context.Context, p *pending, w *drivers.Waiting) bool {
	w.Begin()
	state, err := p.receipt.Wait(ctx)
	w.End()
	if err != nil && ctx.Err() != nil {
		return false
	}
	// If both the disposition and the end of the link are available, the library returns a random one, and it has no
	// other access to the disposition. No disposition arrives after the end of the link. So further calls find one that
	// there is, each with a probability of 1/2, and 32 calls miss one in 4 billion.
	for range 32 {
		if err == nil {
			break
		}
		var again error
		if state, again = p.receipt.Wait(context.Background()); again == nil {
			err = nil
		}
	}
	s.token[0] = p.token
	if err != nil {
		err = fmt.Errorf("%w: %s: %w", drivers.ErrClosed, s.of.conn.address, err)
		s.of.spec.OnConfirms(s.token[:], err)
		s.of.EndWith(s.of.conn, err)
		return true
	}
	s.of.spec.OnConfirms(s.token[:], verdict(state))
	return true
}

// verdict converts a disposition to an error. Only "accepted" means that the broker has the message.
func verdict(state amqp.DeliveryState) error {
	switch state := state.(type) {
	case *amqp.StateAccepted:
		return nil
	case *amqp.StateRejected:
		if state.Error != nil {
			return fmt.Errorf("%w: %w", drivers.ErrRejected, state.Error)
		}
		return fmt.Errorf("%w, without a reason", drivers.ErrRejected)
	default:
		return fmt.Errorf("%w: it settled it with %T instead of accepting it", drivers.ErrRejected, state)
	}
}
