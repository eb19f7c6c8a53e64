package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	"lockstep/pkg/drivers"
)

// maxOfRequest is the approximate maximum size of one request, in bytes.
const maxOfRequest = 32 << 20

// goProducer collects one publisher's messages in batches. It has one sender per leader of partitions.
// A sender has one request in flight. Messages that arrive meanwhile go into the next request.
type goProducer struct {
	client   *goClient
	acks     int16
	linger   time.Duration
	hold     bool // batches wait for a flush
	most     int  // maximum number of messages per batch; 0: no limit
	bytes    int  // maximum size of a batch
	tell     func(uint64, error)
	confirms bool // the mode has confirms
	telling  sync.Mutex
	room     *room

	mu      sync.Mutex
	queues  []queue   // by partition
	senders []*sender // by partition; a sender occurs once per partition
	free    []*batch
	over    error // why nothing is accepted any more

	all []*sender
	wg  sync.WaitGroup
}

// queue contains the batches that wait for one partition: full ones, and one that is being filled. The producer's mu
// guards it.
type queue struct {
	full []*batch
	open *batch
}

// sender sends the batches of the partitions that one broker leads.
type sender struct {
	out        *goProducer
	leader     string  // address of the broker
	conn       *goConn // nil until needed if the publisher is for one message
	partitions []int32
	next       int // index of the partition to start with, so that none starves
	waiting    bool
	wake       chan struct{}
	batches    []*batch // of the current request
}

// newGoProducer creates a producer with a sender per leader. start must be called to run the senders.
func newGoProducer(c *goClient, spec drivers.PublisherSpec, leaders []string) *goProducer {
	o := &c.session.options
	confirmed := spec.Mode.Confirmed()
	out := &goProducer{
		client: c, acks: o.acksFor(confirmed), linger: o.Linger.std(), hold: holds(spec.Mode), most: o.BatchSize,
		bytes: o.BatchBytes,
		tell:  spec.OnConfirm, confirms: confirmed && spec.OnConfirm != nil, room: newRoom(!confirmed, spec.Waiting),
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

func (o *goProducer) start() {
	for _, s := range o.all {
		o.wg.Go(s.run)
	}
	o.client.link.watch(o, o.shut)
}

func (o *goProducer) send(ctx context.Context, partition int32, m drivers.Message) error {
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
	// With linger, the sender must see a new batch in order to set its timer.
	if s := o.senders[partition]; s.waiting && (len(q.full) > 0 || !o.hold && (o.linger == 0 || first)) {
		s.rouse()
	}
	return nil
}

// blank returns an empty batch. It reuses a sent one if possible.
func (o *goProducer) blank(partition int32) *batch {
	if n := len(o.free); n > 0 {
		b := o.free[n-1]
		o.free = o.free[:n-1]
		b.partition = partition
		return b
	}
	return &batch{partition: partition}
}

// flush sends batches that wait for linger or for a flush. In other modes it does nothing: a batch grows until its
// sender is free. Closing it here would make batches as small as the messages between two calls.
func (o *goProducer) flush() {
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

// shut makes the producer reject messages. The senders end when they have sent the waiting batches, or failed to.
func (o *goProducer) shut(why error) {
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

func (o *goProducer) end() {
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

// rouse wakes the sender. The caller holds the producer's mu.
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
				s.checkAlive()
			}
		}
	}
}

// checkAlive checks whether the broker still answers. If not, the link breaks.
func (s *sender) checkAlive() {
	if s.conn == nil {
		return
	}
	if err := s.conn.checkAlive(); err != nil {
		s.out.client.link.broke(fmt.Errorf("check connection to %s: %w", s.leader, err))
	}
}

// collect takes at most one batch per partition. If the batches that remain wait for linger, it returns the time until
// the first is due, otherwise 0.
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

// unripe returns how long an open batch has to wait.
func (o *goProducer) unripe(b *batch) time.Duration {
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

// settle reports the result of a batch to its messages.
func (o *goProducer) settle(b *batch, err error) {
	if o.confirms {
		o.telling.Lock()
		for _, token := range b.tokens {
			o.tell(token, err)
		}
		o.telling.Unlock()
	}
	o.room.exit(len(b.ends), len(b.block))
}
