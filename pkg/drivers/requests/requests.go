// Package requests implements publishers and consumers for drivers whose broker answers requests. A request contains
// one or more messages, and its answer is the confirm of these messages. The package implements all modes, with
// waiting, timeouts and closing, so that a driver only has to send requests.
package requests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// grace is the maximum time that Close waits for running requests.
const grace = 2 * time.Second

// Publish sends the messages of batch and waits for the answer. If they do not fit into one request, it sends only the
// first ones. It sets verdicts[i], which is nil before, to the result for batch[i]: nil, or an error that wraps
// drivers.ErrRejected. The same result of several messages is the same error. answered is the number of messages, from
// the first, that have a verdict. They are confirmed immediately, and Publish is called again with the rest. An error
// explains why the others have no verdict, and breaks the connection. Each Publish is called from one goroutine at a
// time. Bodies are valid until it returns.
type Publish func(ctx context.Context, batch []drivers.Message, verdicts []error) (answered int, err error)

// Plan configures a Publisher.
type Plan struct {
	Conn *Conn
	Spec drivers.PublisherSpec
	// Lane returns the function that sends the requests of one lane, one at a time. It must report to waiting while it
	// waits for an answer. New calls Lane once per lane. waiting is nil in confirm-window, where Publish waits for no
	// answer.
	Lane func(waiting *drivers.Waiting) Publish
	// Lanes is the maximum number of concurrent requests in confirm-window. With 1, messages stay in order. All other
	// modes use one lane.
	Lanes int
	// MaxPerRequest is the maximum number of messages per request in confirm-window. A request contains the messages
	// that are queued when a lane is free, so no message waits for a later one. confirm-batch passes whole batches, and
	// all other modes single messages.
	MaxPerRequest int
	// Patience is the maximum time for the answer to a request. After that the connection counts as broken.
	Patience time.Duration
	// Settle is optional. Close calls it in unconfirmed modes if the connection works. It returns when the broker has
	// received everything that was sent.
	Settle func(ctx context.Context) error
}

// Publisher is a drivers.Publisher that sends with the functions of Plan.Lane. It ends with its connection.
type Publisher struct {
	drivers.Ended // of plan.Conn

	plan   Plan
	ctx    context.Context // of all requests; ends when their answers are no longer awaited
	cancel context.CancelFunc

	mu      sync.Mutex // locked by Publish and Flush; after done, nothing is accepted
	done    bool
	queue   chan drivers.Message // used in confirm-window
	partial chan struct{}        // requests in flight that are not full; its capacity is their maximum number
	first   *lane                // used in all other modes
	batch   []drivers.Message    // not yet sent

	gathering  chan struct{} // one lane at a time takes messages from queue
	confirming sync.Mutex    // guards confirms
	confirms   kit.Confirms
	lanes      []*lane
	running    sync.WaitGroup
	once       sync.Once
}

// lane sends one request at a time.
type lane struct {
	p        *Publisher
	send     Publish
	watch    *Watchdog
	verdicts []error
}

// New creates a publisher.
func New(plan Plan) *Publisher {
	p := &Publisher{Ended: plan.Conn, plan: plan, confirms: kit.Confirms{OnConfirms: plan.Spec.OnConfirms}}
	p.ctx, p.cancel = context.WithCancel(plan.Conn.calls)
	lanes, waiting := 1, plan.Spec.Waiting
	if plan.Spec.Mode == drivers.ConfirmWindow {
		lanes, waiting = max(1, plan.Lanes), nil
		p.queue = make(chan drivers.Message, max(1, plan.Spec.MaxInFlight))
		// Small requests must not use all lanes: the other lanes are enough for all messages in full requests.
		reserved := (plan.Spec.MaxInFlight + plan.MaxPerRequest - 1) / plan.MaxPerRequest
		if reserved >= lanes {
			reserved = 0
		}
		p.partial, p.gathering = make(chan struct{}, lanes-reserved), make(chan struct{}, 1)
	}
	for range lanes {
		p.lanes = append(p.lanes, &lane{p: p, send: plan.Lane(waiting), watch: NewWatchdog(plan.Patience, p.bite)})
	}
	p.first = p.lanes[0]
	if p.queue != nil {
		for _, l := range p.lanes {
			p.running.Go(l.run)
		}
	}
	return p
}

var errClosed = fmt.Errorf("%w: closed before the broker answered", drivers.ErrClosed)

// over reports whether no more requests may begin.
func (p *Publisher) over() bool { return p.plan.Conn.working.Err() != nil || p.ctx.Err() != nil }

// reason returns why the publisher cannot send any more.
func (p *Publisher) reason() error { return cmp.Or(p.Err(), errClosed) }

// bite breaks the connection because a request has had no answer for Patience.
func (p *Publisher) bite() { p.plan.Conn.abandon(fmt.Errorf("no answer for %v", p.plan.Patience)) }

// run sends the messages of the queue until it is closed.
func (l *lane) run() {
	batch := make([]drivers.Message, 0, l.p.plan.MaxPerRequest)
	for {
		var partial bool
		batch, partial = l.gather(batch[:0])
		if len(batch) == 0 {
			return
		}
		l.settle(batch)
		if partial {
			<-l.p.partial
		}
	}
}

// gather waits for messages and returns those of the next request. If it is not full, it needs a place in partial,
// which the caller must free. Messages are added while it waits for one.
func (l *lane) gather(batch []drivers.Message) (all []drivers.Message, partial bool) {
	p := l.p
	p.gathering <- struct{}{}
	defer func() { <-p.gathering }()
	m, open := <-p.queue
	for open {
		batch = append(batch, m)
		if len(batch) == p.plan.MaxPerRequest {
			return batch, false
		}
		select {
		case m, open = <-p.queue:
			continue
		default:
		}
		select {
		case m, open = <-p.queue:
		case p.partial <- struct{}{}:
			return batch, true
		}
	}
	return batch, false
}

var errNoVerdict = errors.New("a request was answered without a word of any message")

// request sends a batch or its first messages, unless the connection has ended. It returns the number of messages with
// a verdict.
func (l *lane) request(batch []drivers.Message) (int, error) {
	p := l.p
	if p.over() {
		return 0, p.reason()
	}
	l.verdicts = append(l.verdicts[:0], make([]error, len(batch))...)
	l.watch.Begin()
	answered, err := l.send(p.ctx, batch, l.verdicts)
	l.watch.End()
	if err == nil && answered < 1 {
		err = errNoVerdict
	}
	if err == nil {
		return answered, nil
	}
	if p.ctx.Err() == nil {
		p.plan.Conn.Broke(err)
	}
	return answered, p.reason()
}

// settle sends a batch in as many requests as necessary. It confirms the messages of each request after its answer.
func (l *lane) settle(batch []drivers.Message) {
	for len(batch) > 0 {
		answered, err := l.request(batch)
		if err != nil {
			l.confirm(batch, answered, err)
			return
		}
		l.confirm(batch[:answered], answered, nil)
		batch = batch[answered:]
	}
}

// confirm calls OnConfirms: with the verdict for the first answered messages, and with unanswered for the others.
func (l *lane) confirm(batch []drivers.Message, answered int, unanswered error) {
	p := l.p
	p.confirming.Lock()
	defer p.confirming.Unlock()
	for i := range batch[:answered] {
		if l.verdicts[i] == nil {
			p.confirms.Add(batch[i].Token, nil)
		}
	}
	for i := range batch[:answered] {
		if err := l.verdicts[i]; err != nil {
			p.confirms.Add(batch[i].Token, err)
		}
	}
	for i := range batch[answered:] {
		p.confirms.Add(batch[answered+i].Token, unanswered)
	}
	p.confirms.Report()
}
