package drivertest

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// delivery is one delivery of a message.
type delivery struct {
	id          id
	stream      uint32
	redelivered drivers.Tristate
}

// acking is when an inbox acknowledges, besides the spec's Ack.
type acking struct {
	every    int           // n of AckEvery
	interval time.Duration // of AckInterval
	never    bool          // the check answers
}

// inbox is a consumer that records every delivery. Unless acking.never is set, it answers them like the engine.
type inbox struct {
	c        *check
	conn     drivers.Conn
	consumer drivers.Consumer // set when ready is closed
	ready    chan struct{}
	busy     atomic.Bool
	batch    int
	once     bool                   // it is guaranteed that no message arrives twice
	react    func([]delivery) error // called for each batch; nil: accept it

	ack        drivers.Ack
	acking     acking
	turn       chan struct{} // a token while the handler runs, or the accepted messages are acknowledged
	unanswered int           // accepted and not acknowledged; guarded by turn
	stop       chan struct{}
	closing    sync.Once

	mu         sync.Mutex
	calls      int
	largest    int
	deliveries []delivery
	counts     map[id]int
}

// inbox connects a consumer. edit may change its spec. react decides whether a batch is accepted.
func (r *rig) inbox(react func([]delivery) error, edit ...func(*drivers.ConsumerSpec)) *inbox {
	in, err := r.connectInbox(react, edit...)
	r.c.must(err, "connect a consumer")
	return in
}

func (r *rig) connectInbox(react func([]delivery) error, edit ...func(*drivers.ConsumerSpec)) (*inbox, error) {
	conn, err := r.conn(drivers.ConsumerRole)
	if err != nil {
		return nil, err
	}
	return r.inboxOn(conn, react, edit...)
}

// inboxOn connects a consumer over a connection.
func (r *rig) inboxOn(conn drivers.Conn, react func([]delivery) error, edit ...func(*drivers.ConsumerSpec)) (*inbox,
	error) {
	spec := drivers.ConsumerSpec{Topology: r.topology, Prefetch: r.use.Prefetch, Batch: 10, Ack: r.use.Ack}
	for _, e := range edit {
		e(&spec)
	}
	in := &inbox{c: r.c, conn: conn, ready: make(chan struct{}), react: react, batch: spec.Batch, ack: spec.Ack,
		once: r.declared.Guarantees.NoDuplicates, acking: r.acking, turn: make(chan struct{}, 1), stop: make(chan struct{}),
		counts: map[id]int{}}
	consumer, err := conn.Consumer(r.c.ctx, spec, in.handle)
	if err != nil {
		return nil, err
	}
	in.consumer = consumer
	close(in.ready)
	if spec.Ack == drivers.AckInterval {
		go in.acknowledgeByTime()
	}
	r.c.cleanups = append(r.c.cleanups, in.close)
	return in, nil
}

// broken returns a text with the reason if the link broke, otherwise "".
func (in *inbox) broken() string {
	if err := failure(in.consumer, in.conn); err != nil {
		return fmt.Sprintf("; the consumer's link broke: %v", err)
	}
	return ""
}

// close closes the consumer like the engine.
func (in *inbox) close() {
	in.closing.Do(func() {
		close(in.stop)
		in.c.within(in.c.wait, "Consumer.Stop, Ack and Close", func() {
			in.consumer.Stop()
			in.turn <- struct{}{}
			in.acknowledge()
			<-in.turn
			_ = in.consumer.Close()
			_ = in.consumer.Close()
		})
		if !over(in.consumer) && in.consumer.Done() != in.conn.Done() {
			in.c.errorf("Done of a consumer is not closed after Close")
		}
	})
}

func (in *inbox) acknowledgeByTime() {
	ticker := time.NewTicker(in.acking.interval)
	defer ticker.Stop()
	for {
		select {
		case <-in.stop:
			return
		case <-ticker.C:
		}
		select {
		case in.turn <- struct{}{}:
			in.acknowledge()
			<-in.turn
		default: // the handler runs
		}
	}
}

// acknowledge acknowledges all accepted messages. The caller has turn.
func (in *inbox) acknowledge() {
	if in.unanswered > 0 {
		in.consumer.Ack(in.unanswered)
		in.unanswered = 0
	}
}

// answer answers n deliveries.
func (in *inbox) answer(n int, refused error) {
	switch {
	case in.ack == drivers.AckAutomatic || in.acking.never:
	case refused != nil:
		in.acknowledge()
		in.consumer.Nack(n)
	case in.ack == drivers.AckEach:
		in.consumer.Ack(n)
	default:
		in.unanswered += n
		for in.ack == drivers.AckEvery && in.unanswered >= in.acking.every {
			in.consumer.Ack(in.acking.every)
			in.unanswered -= in.acking.every
		}
	}
}

func (in *inbox) handle(ds []drivers.Delivery) {
	if !in.busy.CompareAndSwap(false, true) {
		in.c.errorf("the handler is called twice at a time for one consumer")
		return
	}
	defer in.busy.Store(false)
	<-in.ready
	in.turn <- struct{}{}
	defer func() { <-in.turn }()
	if len(ds) == 0 || len(ds) > in.batch {
		in.c.errorf("the handler gets %d deliveries; the batch is 1 to %d", len(ds), in.batch)
	}
	runtime.Gosched()
	got := make([]delivery, 0, len(ds))
	for _, d := range ds {
		m, ok := read(d.Body)
		if !ok {
			in.c.errorf("a body of %d bytes arrives that was not sent so: read after its confirm or after Publish, or cut", len(d.Body))
			continue
		}
		got = append(got, delivery{m, d.Stream, d.Redelivered})
	}
	in.note(got)
	var refused error
	if in.react != nil {
		refused = in.react(got)
	}
	in.answer(len(ds), refused)
}

func (in *inbox) note(got []delivery) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.calls++
	in.largest = max(in.largest, len(got))
	in.deliveries = append(in.deliveries, got...)
	for _, r := range got {
		in.counts[r.id]++
	}
}

// all returns a copy of the deliveries so far.
func (in *inbox) all() []delivery {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.deliveries)
}

// distinct returns the number of different messages that arrived.
func (in *inbox) distinct() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.counts)
}

func (in *inbox) count(m id) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.counts[m]
}

// missing returns how many of these messages did not arrive.
func (in *inbox) missing(want []id) (n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, m := range want {
		if in.counts[m] == 0 {
			n++
		}
	}
	return n
}

// arrive waits until all messages of want have arrived.
func (in *inbox) arrive(want []id) bool {
	return in.c.eventually(func() bool { return in.missing(want) == 0 }, func() string {
		return fmt.Sprintf("%d of %d messages do not arrive%s", in.missing(want), len(want), in.broken())
	})
}

// exactly waits for want, and then checks that no message arrived twice, and no others arrived.
func (in *inbox) exactly(want []id) {
	in.arrive(want)
	in.nothingElse(want)
}

// nothingElse waits, and then checks that no message arrived twice, if that is guaranteed, and no message outside want
// arrived.
func (in *inbox) nothingElse(want []id) {
	in.c.linger()
	in.mu.Lock()
	defer in.mu.Unlock()
	wanted := map[id]bool{}
	for _, m := range want {
		wanted[m] = true
	}
	for m, n := range in.counts {
		switch {
		case !wanted[m]:
			in.c.errorf("message %d of publisher %d arrives where it should not", m.seq, m.publisher)
		case n > 1 && in.once:
			in.c.errorf("message %d of publisher %d arrives %d times", m.seq, m.publisher, n)
		}
	}
}

// inOrder checks the order of each publisher's messages within each stream. Redelivered messages are ignored.
func (in *inbox) inOrder() {
	last := map[[2]uint32]uint64{}
	for _, r := range in.all() {
		key := [2]uint32{r.id.publisher, r.stream}
		if r.redelivered == drivers.Yes {
			continue
		}
		if next, seen := last[key]; seen && r.id.seq < next-1 {
			in.c.errorf("message %d of publisher %d arrives after %d, on the same stream", r.id.seq, r.id.publisher,
				next-1)
			return
		}
		last[key] = r.id.seq + 1
	}
}
