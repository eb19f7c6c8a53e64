// Package requests is the publishing half of drivers whose broker answers requests: what a publisher accepts goes out
// in requests of one or more messages, and the answer to a request is the confirm of its messages. Every mode is here
// once, with its waits, its deadlines and its end, so that such a driver only sends.
package requests

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"lockstep/pkg/drivers"
)

// grace is how long what is under way when a publisher is closed may take to end in order.
const grace = 2 * time.Second

// Publish sends these messages, or as many of them, from the first, as go into one request, and waits for the answer.
// What the broker says of batch[i] goes into verdicts[i], which is nil at first: nil, or an error that wraps
// drivers.ErrRejected. answered is of how many messages, from the first, there is a verdict. These are confirmed at
// once, and Send is called again with the rest; an error says why there is no verdict of the others, and breaks the
// publisher. One goroutine at a time calls each Send. Bodies are lent until it returns.
type Publish func(ctx context.Context, batch []drivers.Message, verdicts []error) (answered int, err error)

// Plan is how a publisher sends.
type Plan struct {
	Spec drivers.PublisherSpec
	// Lane makes what sends the requests of one lane, one at a time, and reports to waiting when it waits for an
	// answer. New calls it once for each lane. waiting is nil in confirm-window, where Publish waits for no answer.
	Lane func(waiting *drivers.Waiting) Publish
	// Lanes is how many requests confirm-window has under way at a time; with one, messages stay in order. All other
	// modes have one.
	Lanes int
	// Most is how many messages confirm-window puts into one request: those that are there when a lane is free, so that
	// a message waits for none that comes later. confirm-batch hands over whole batches, all other modes single
	// messages.
	Most int
	// Patience is how long the answer to a request may take until the link counts as broken.
	Patience time.Duration
	// Settle, if any, is called by Close of a publisher without confirms whose link is whole: it returns when the
	// broker has taken all that was sent.
	Settle func(ctx context.Context) error
	// Leave is called at the end of Close.
	Leave func()
}

// Publisher is a drivers.Publisher. Its link is whatever Send uses.
type Publisher struct {
	plan   Plan
	notice *drivers.Notice
	ctx    context.Context // of requests
	cancel context.CancelFunc
	broken chan struct{} // closed by Broke
	break1 sync.Once
	cause  error // why, once broken is closed

	mu      sync.Mutex // held by Publish and Flush; once done is set nothing is accepted
	done    bool
	closing chan struct{}
	queue   chan drivers.Message // confirm-window
	first   *lane                // all other modes
	batch   []drivers.Message    // not sent yet
	guarded guarded

	confirming sync.Mutex
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

// New begins to publish.
func New(plan Plan) *Publisher {
	p := &Publisher{plan: plan, notice: drivers.NewNotice(plan.Spec.OnClosed), broken: make(chan struct{}),
		closing: make(chan struct{})}
	if p.plan.Spec.OnConfirm == nil {
		p.plan.Spec.OnConfirm = func(uint64, error) {}
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	lanes, waiting := 1, plan.Spec.Waiting
	if plan.Spec.Mode == drivers.ConfirmWindow {
		lanes, waiting = max(1, plan.Lanes), nil
		p.queue = make(chan drivers.Message, max(1, plan.Spec.MaxInFlight))
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

// Broke says that the link is broken. Only the first call does anything. It does not wait for requests that are under
// way.
func (p *Publisher) Broke(cause error) {
	p.break1.Do(func() {
		p.cause = fmt.Errorf("%w: %w", drivers.ErrClosed, cause)
		close(p.broken)
		p.notice.Broke(p.cause)
	})
}

// Abandon ends all requests without an answer, as a session does that is closed; nothing is told to OnClosed.
func (p *Publisher) Abandon() {
	p.notice.End()
	p.cancel()
}

var errAbandoned = errors.New("closed before the broker answered")

// isBroken gives the cause, or nil.
func (p *Publisher) isBroken() error {
	select {
	case <-p.broken:
		return p.cause
	default:
		return nil
	}
}

// bite breaks the link: the answer to a request takes too long.
func (p *Publisher) bite() {
	p.Broke(fmt.Errorf("no answer for %v", p.plan.Patience))
	p.cancel()
}

// run sends what is in the queue until that is closed.
func (l *lane) run() {
	batch := make([]drivers.Message, 0, l.p.plan.Most)
	for m := range l.p.queue {
		batch = append(batch[:0], m)
	more:
		for len(batch) < l.p.plan.Most {
			select {
			case m, open := <-l.p.queue:
				if !open {
					break more
				}
				batch = append(batch, m)
			default:
				break more
			}
		}
		l.settle(batch)
	}
}

var errNoVerdict = errors.New("a request was answered without a word of any message")

// request sends a batch or its beginning, unless the link is broken, and says of how many messages there is a verdict.
func (l *lane) request(batch []drivers.Message) (int, error) {
	p := l.p
	if err := p.isBroken(); err != nil {
		return 0, err
	}
	if p.ctx.Err() != nil {
		return 0, fmt.Errorf("%w: %w", drivers.ErrClosed, errAbandoned)
	}
	l.verdicts = append(l.verdicts[:0], make([]error, len(batch))...)
	l.watch.Begin()
	answered, err := l.send(p.ctx, batch, l.verdicts)
	l.watch.End()
	if err == nil && answered < 1 {
		err = errNoVerdict
	}
	if err != nil {
		p.Broke(err)
		return answered, p.isBroken()
	}
	return answered, nil
}

// settle sends a batch, in as many requests as that takes, and confirms the messages of each with its answer.
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

// confirm passes on the verdicts of the messages that were answered, and of the others that they were not.
func (l *lane) confirm(batch []drivers.Message, answered int, unanswered error) {
	p := l.p
	p.confirming.Lock()
	defer p.confirming.Unlock()
	for i := range batch {
		if i < answered {
			p.plan.Spec.OnConfirm(batch[i].Token, l.verdicts[i])
		} else {
			p.plan.Spec.OnConfirm(batch[i].Token, unanswered)
		}
	}
}
