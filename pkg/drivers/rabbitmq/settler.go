package rabbitmq

import (
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"lockstep/pkg/drivers"
)

// pending is a message whose confirm is outstanding.
type pending struct {
	confirm *amqp.DeferredConfirmation
	token   uint64
}

// settler passes confirms and returned messages on to the engine, from one goroutine.
//
// It waits for the library's deferred confirmations, in the order published. The library makes one for each message
// whether it is used or not, while a listener of NotifyPublish costs a timer and a channel operation more, loses a
// confirm when it is slow for 5 s, and is told "ack" of a message that was rejected before a multiple ack beyond it.
//
// Returns come over an unbuffered channel, so the library's reader is past a return only when this goroutine has it;
// it reads the confirm of the same message after that. So a return is always passed on before its confirm.
type settler struct {
	channel   *amqp.Channel
	onConfirm func(uint64, error)
	onReturn  func([]byte)
	returns   chan amqp.Return // nil: not mandatory, or closed

	mu      sync.Mutex
	waiting []pending
	ending  bool
	wake    chan struct{} // holds one token when there is something new
	ended   chan struct{}
}

func newSettler(p *publisher) *settler {
	s := &settler{
		channel: p.channel, onConfirm: p.spec.OnConfirm, onReturn: p.spec.OnReturn,
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	if p.spec.Mandatory {
		s.returns = p.channel.NotifyReturn(make(chan amqp.Return))
	}
	go s.run()
	return s
}

// add hands over a message; one goroutine calls it.
func (s *settler) add(p pending) {
	s.mu.Lock()
	s.waiting = append(s.waiting, p)
	first := len(s.waiting) == 1
	s.mu.Unlock()
	if first {
		s.signal()
	}
}

func (s *settler) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// finish waits until everything is settled; the channel is closed by then. It may be called of nil.
func (s *settler) finish() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	s.signal()
	<-s.ended
}

func (s *settler) run() {
	defer close(s.ended)
	var batch []pending
	for {
		s.mu.Lock()
		batch, s.waiting = s.waiting, batch[:0]
		ending := s.ending
		s.mu.Unlock()
		for _, p := range batch {
			s.await(p)
			s.settle(p)
		}
		if len(batch) == 0 && ending {
			s.drainReturns()
			return
		}
		if len(batch) > 0 {
			clear(batch)
			continue
		}
		select {
		case <-s.wake:
		case r, ok := <-s.returns:
			s.give(r, ok)
		}
	}
}

// await waits for the broker's word on p, and passes returned messages on meanwhile.
func (s *settler) await(p pending) {
	for s.returns != nil {
		select {
		case <-p.confirm.Done():
			return
		case r, ok := <-s.returns:
			s.give(r, ok)
		}
	}
	<-p.confirm.Done()
}

func (s *settler) give(r amqp.Return, ok bool) {
	switch {
	case !ok:
		s.returns = nil
	case s.onReturn != nil:
		s.onReturn(r.Body)
	}
}

// drainReturns takes what is left; the library closes the channel when the AMQP channel ends.
func (s *settler) drainReturns() {
	for s.returns != nil {
		r, ok := <-s.returns
		s.give(r, ok)
	}
}

// settle reports a message of which the library knows the end. The library counts what was outstanding when the channel
// closed as rejected; it says itself that it is closed before it does so.
func (s *settler) settle(p pending) {
	switch {
	case p.confirm.Acked():
		s.onConfirm(p.token, nil)
	case s.channel.IsClosed():
		s.onConfirm(p.token, drivers.ErrClosed)
	default:
		s.onConfirm(p.token, drivers.ErrRejected)
	}
}
