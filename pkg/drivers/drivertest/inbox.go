package drivertest

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"lockstep/pkg/drivers"
)

// delivery is one delivery of a message.
type delivery struct {
	id          id
	stream      uint32
	redelivered drivers.Tristate
}

// inbox is a consumer that records every delivery.
type inbox struct {
	c        *check
	consumer drivers.Consumer
	busy     atomic.Bool
	closings atomic.Int64
	batch    int
	react    func([]delivery) error // called for each batch; nil: accept it

	mu         sync.Mutex
	calls      int
	largest    int
	deliveries []delivery
	counts     map[id]int
	cause      error // why the link broke
}

// inbox connects a consumer. edit may change its spec. react decides whether a batch is accepted.
func (r *rig) inbox(react func([]delivery) error, edit ...func(*drivers.ConsumerSpec)) *inbox {
	in, err := r.tryInbox(react, edit...)
	r.c.must(err, "connect a consumer")
	return in
}

func (r *rig) tryInbox(react func([]delivery) error, edit ...func(*drivers.ConsumerSpec)) (*inbox, error) {
	spec := r.consumerSpec()
	for _, e := range edit {
		e(&spec)
	}
	in := &inbox{c: r.c, react: react, batch: spec.Batch, counts: map[id]int{}}
	spec.OnClosed = in.onClosed
	consumer, err := r.session.Consumer(r.c.ctx, spec, in.handle)
	if err != nil {
		return nil, err
	}
	in.consumer = consumer
	r.c.cleanups = append(r.c.cleanups, in.close)
	return in, nil
}

func (in *inbox) onClosed(err error) {
	in.mu.Lock()
	if in.cause == nil {
		in.cause = err
	}
	in.mu.Unlock()
	in.closings.Add(1)
}

// broken returns a text with the reason if the link broke, otherwise "".
func (in *inbox) broken() string {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.cause == nil {
		return ""
	}
	return fmt.Sprintf("; the consumer's link broke: %v", in.cause)
}

func (in *inbox) close() {
	in.c.within(in.c.wait, "Consumer.Close", func() { _ = in.consumer.Close() })
}

func (in *inbox) handle(ds []drivers.Delivery) error {
	if !in.busy.CompareAndSwap(false, true) {
		in.c.errorf("the handler is called twice at a time for one consumer")
		return nil
	}
	defer in.busy.Store(false)
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
	if in.react != nil {
		return in.react(got)
	}
	return nil
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
func (in *inbox) exactly(want []id, guarantee drivers.Guarantees) {
	in.arrive(want)
	in.nothingElse(want, guarantee)
}

// nothingElse waits, and then checks that no message arrived twice, if that is guaranteed, and no message outside want
// arrived.
func (in *inbox) nothingElse(want []id, guarantee drivers.Guarantees) {
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
		case n > 1 && guarantee.NoDuplicates:
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
