package rabbitmq

import (
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// pending is a message whose confirm is outstanding.
type pending struct {
	confirm *amqp.DeferredConfirmation
	token   uint64
}

// settler calls OnConfirms and OnReturn, from one goroutine.
//
// It waits for the library's deferred confirmations, in the order of publishing. The library creates one for each
// message anyway. The settler joins those that are there, such as those of a multiple ack. A listener of NotifyPublish
// has three disadvantages. It costs a timer and a channel operation per message. It loses a confirm if it is slow for
// 5 s. It receives an ack for a message that was rejected before a later multiple ack.
//
// Returns come over an unbuffered channel. So the library's reader continues only after this goroutine has received the
// return, and it reads the confirm of that message later. Therefore OnReturn is always called before OnConfirms of the
// same message.
type settler struct {
	channel  *amqp.Channel
	confirms kit.Confirms
	onReturn func([]byte)
	returns  chan amqp.Return // nil: not mandatory, or closed

	mu      sync.Mutex
	waiting []pending
	ending  bool
	wake    chan struct{} // contains a token if there is a new message
	ended   chan struct{}
}

func newSettler(p *publisher) *settler {
	s := &settler{
		channel: p.channel, confirms: kit.Confirms{OnConfirms: p.spec.OnConfirms}, onReturn: p.spec.OnReturn,
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	if p.spec.Mandatory {
		s.returns = p.channel.NotifyReturn(make(chan amqp.Return))
	}
	go s.run()
	return s
}

// add hands over a published message. It is called from one goroutine.
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

// finish waits until everything is settled. The channel must be closed. It may be called on nil.
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
			select {
			case <-p.confirm.Done():
			default:
				s.confirms.Report()
				s.await(p)
			}
			s.settle(p)
		}
		if len(batch) == 0 && ending {
			s.drainReturns()
			return
		}
		if len(batch) > 0 { // otherwise Publish may use confirms
			s.confirms.Report()
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

// await waits for the confirm of p. It passes on returned messages in the meantime.
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

// drainReturns passes on the remaining returns. The library closes s.returns when the AMQP channel ends.
func (s *settler) drainReturns() {
	for s.returns != nil {
		r, ok := <-s.returns
		s.give(r, ok)
	}
}

// settle adds the result of a confirm to confirms. When the channel closes, the library counts outstanding messages as
// rejected. It marks the channel as closed before that, so that ErrClosed can be reported.
func (s *settler) settle(p pending) {
	switch {
	case p.confirm.Acked():
		s.confirms.Add(p.token, nil)
	case s.channel.IsClosed():
		s.confirms.Add(p.token, drivers.ErrClosed)
	default:
		s.confirms.Add(p.token, drivers.ErrRejected)
	}
}
