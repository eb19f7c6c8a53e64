package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	"lockstep/pkg/drivers"
)

// maxOfRequest is about the most bytes of one request.
const maxOfRequest = 32 << 20

// goOutlet gathers one publisher's messages in batches, and has one sender for each broker that leads any of the
// partitions. A sender has one request under way; what comes meanwhile goes with the next.
type goOutlet struct {
	client  *goClient
	acks    int16
	linger  time.Duration
	hold    bool // until flush
	most    int  // messages of a batch
	bytes   int  // of a batch
	tell    func(uint64, error)
	tells   bool // the mode has confirms
	telling sync.Mutex
	room    *room

	mu      sync.Mutex
	queues  []queue   // by partition
	senders []*sender // by partition; each stands several times
	free    []*batch
	over    error // nothing is accepted any more

	all []*sender
	wg  sync.WaitGroup
}

// queue is what waits for one partition: full batches and one that is being filled. It is guarded by the outlet.
type queue struct {
	full []*batch
	open *batch
}

// sender sends what waits for the partitions that one broker leads.
type sender struct {
	out        *goOutlet
	leader     string  // its address
	conn       *goConn // nil until it is needed, of a publisher of one message
	partitions []int32
	next       int // partition to begin with, so that none starves
	waiting    bool
	wake       chan struct{}
	batches    []*batch // of the request under way
}

// newGoOutlet makes an outlet with a sender for each leader; start begins their work.
func newGoOutlet(c *goClient, spec drivers.PublisherSpec, leaders []string) *goOutlet {
	o := &c.session.options
	confirmed := spec.Mode.Confirmed()
	out := &goOutlet{
		client: c, acks: o.acksFor(confirmed), linger: o.Linger.std(), hold: holds(spec.Mode), most: o.BatchSize,
		bytes: o.BatchBytes,
		tell:  spec.OnConfirm, tells: confirmed && spec.OnConfirm != nil, room: newRoom(!confirmed, spec.Waiting),
		queues: make([]queue, len(leaders)), senders: make([]*sender, len(leaders)),
	}
	if spec.Mode == drivers.ConfirmEach || perMessage(spec.Mode) {
		out.linger = 0
	}
	byLeader := map[string]*sender{}
	for partition, leader := range leaders {
		s := byLeader[leader]
		if s == nil {
			s = &sender{out: out, leader: leader, wake: make(chan struct{}, 1)}
			byLeader[leader] = s
			out.all = append(out.all, s)
		}
		s.partitions = append(s.partitions, int32(partition))
		out.senders[partition] = s
	}
	return out
}

func (o *goOutlet) start() {
	for _, s := range o.all {
		o.wg.Go(s.run)
	}
	o.client.link.watch(o, o.shut)
}

func (o *goOutlet) send(ctx context.Context, partition int32, m drivers.Message) error {
	if err := o.room.enter(ctx, o.client.link, len(m.Body)); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over != nil {
		o.room.exit(1, len(m.Body))
		return fmt.Errorf("publish: %w", o.over)
	}
	q := &o.queues[partition]
	if b := q.open; b != nil && (len(b.ends) == o.most && o.most > 0 || b.size()+len(m.Body)+recordOverhead > o.bytes) {
		q.full = append(q.full, b)
		q.open = nil
	}
	first := q.open == nil
	if first {
		q.open = o.blank(partition)
		if o.linger > 0 {
			q.open.began = time.Now()
		}
	}
	q.open.add(m.Token, m.Body)
	// With linger, the sender has to learn of a batch that begins, to set its clock.
	if s := o.senders[partition]; s.waiting && (len(q.full) > 0 || !o.hold && (o.linger == 0 || first)) {
		s.rouse()
	}
	return nil
}

// blank takes a batch that was used, if there is one.
func (o *goOutlet) blank(partition int32) *batch {
	if n := len(o.free); n > 0 {
		b := o.free[n-1]
		o.free = o.free[:n-1]
		b.partition = partition
		return b
	}
	return &batch{partition: partition}
}

// flush has the senders send batches that wait for time or for a flush. Without either, a batch grows until its sender
// is free: closing it here would send each as small as the messages between two calls.
func (o *goOutlet) flush() {
	if o.linger == 0 && !o.hold {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for p := range o.queues {
		if q := &o.queues[p]; q.open != nil {
			q.full = append(q.full, q.open)
			q.open = nil
			o.senders[p].rouse()
		}
	}
}

// shut has nothing accepted any more, and the senders end when they have sent what waits, or failed to.
func (o *goOutlet) shut(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over == nil {
		o.over = why
		close(o.room.shut)
	}
	for _, s := range o.all {
		s.rouse()
	}
}

func (o *goOutlet) end() {
	o.flush()
	o.shut(drivers.ErrClosed)
	l := o.client.link
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.wg.Wait()
	}()
	o.room.empties(done, func() { l.broke(errNoAnswer) })
	l.unwatch(o)
}

// rouse is called with the outlet's lock.
func (s *sender) rouse() {
	s.waiting = false
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *sender) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.out.mu.Lock()
		ripens, over := s.collect(), s.out.over != nil
		s.waiting = len(s.batches) == 0 && !over
		s.out.mu.Unlock()
		if len(s.batches) > 0 {
			s.deliver()
			continue
		}
		if over {
			return
		}
		quiet := ripens == 0
		if quiet {
			ripens = signOfLife
		}
		timer.Reset(ripens)
		select {
		case <-s.wake:
		case <-timer.C:
			if quiet {
				s.greet()
			}
		}
	}
}

// greet finds out whether the broker is still there.
func (s *sender) greet() {
	if s.conn == nil {
		return
	}
	if err := s.conn.greet(); err != nil {
		s.out.client.link.broke(fmt.Errorf("greet %s: %w", s.leader, err))
	}
}

// collect takes at most one batch of each partition, and tells after how long the next one ripens; 0: none waits for
// that.
func (s *sender) collect() (ripens time.Duration) {
	o, total := s.out, 0
	s.batches = s.batches[:0]
	for range s.partitions {
		p := s.partitions[s.next]
		if s.next++; s.next == len(s.partitions) {
			s.next = 0
		}
		q := &o.queues[p]
		var b *batch
		switch {
		case len(q.full) > 0:
			b = q.full[0]
			q.full = q.full[1:]
		case q.open == nil:
			continue
		default:
			if wait := o.unripe(q.open); wait > 0 {
				if ripens == 0 || wait < ripens {
					ripens = wait
				}
				continue
			}
			b, q.open = q.open, nil
		}
		s.batches = append(s.batches, b)
		if total += b.size(); total > maxOfRequest {
			break
		}
	}
	return ripens
}

// unripe tells how long an open batch has to wait.
func (o *goOutlet) unripe(b *batch) time.Duration {
	switch {
	case o.over != nil:
		return 0
	case o.hold:
		return time.Hour
	case o.linger == 0:
		return 0
	}
	return max(0, o.linger-time.Since(b.began))
}

// deliver sends the batches and settles them.
func (s *sender) deliver() {
	o := s.out
	l := o.client.link
	errs, err := s.produce()
	if err != nil {
		l.broke(fmt.Errorf("publish: %w", err))
		err = fmt.Errorf("%w: %w", drivers.ErrClosed, err)
	}
	for i, b := range s.batches {
		if err == nil {
			o.settle(b, verdict(l, errs[i]))
		} else {
			o.settle(b, err)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range s.batches {
		b.reset()
		o.free = append(o.free, b)
	}
}

func (s *sender) produce() ([]error, error) {
	c := s.out.client
	if c.link.over.Load() {
		return nil, drivers.ErrClosed
	}
	if s.conn == nil {
		ctx, cancel := context.WithTimeout(c.link.ctx, c.session.options.ConfirmTimeout.std())
		defer cancel()
		var err error
		if s.conn, err = c.session.goDial(ctx, c.link, s.leader); err != nil {
			return nil, err
		}
	}
	return c.produce(s.conn, s.out.acks, s.batches)
}

// settle tells what became of a batch's messages.
func (o *goOutlet) settle(b *batch, err error) {
	if o.tells {
		o.telling.Lock()
		for _, token := range b.tokens {
			o.tell(token, err)
		}
		o.telling.Unlock()
	}
	o.room.exit(len(b.ends), len(b.block))
}
