package loopback

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// brokers maps names to the brokers of this process. A broker exists while it has sessions.
var brokers struct {
	sync.Mutex
	named map[string]*broker
}

// broker stores the topologies of one name and the connections that Cut breaks.
type broker struct {
	name  string
	epoch time.Time // the broker's clock counts from it

	// Guarded by brokers.Mutex.
	sessions   int
	topologies map[string]*topology

	mu       sync.Mutex
	conns    map[*conn]struct{}
	limiters map[[2]int64]*limiter
}

// join adds a session to the broker of this name. The first session creates the broker.
func join(name string) *broker {
	brokers.Lock()
	defer brokers.Unlock()
	b := brokers.named[name]
	if b == nil {
		b = &broker{
			name: name, epoch: time.Now(), topologies: map[string]*topology{},
			conns: map[*conn]struct{}{}, limiters: map[[2]int64]*limiter{},
		}
		if brokers.named == nil {
			brokers.named = map[string]*broker{}
		}
		brokers.named[name] = b
	}
	b.sessions++
	return b
}

func (b *broker) leave() {
	brokers.Lock()
	defer brokers.Unlock()
	b.sessions--
	if b.sessions == 0 {
		delete(brokers.named, b.name)
	}
}

// Cut breaks every connection to the broker of this name at the same time, like a lost network. Outstanding confirms
// fail, and unacknowledged messages are delivered again. The broker keeps its messages, and new connections work.
func Cut(name string) {
	brokers.Lock()
	b := brokers.named[name]
	brokers.Unlock()
	if b == nil {
		return
	}
	b.mu.Lock()
	conns := slices.Collect(maps.Keys(b.conns))
	b.mu.Unlock()
	for _, c := range conns {
		c.Cut()
	}
}

// now returns the time of the broker's clock, in nanoseconds since epoch.
func (b *broker) now() int64 { return int64(time.Since(b.epoch)) }

// topology is what one task declared: one queue per subscription and queue number.
type topology struct {
	name   string
	shape  [3]int     // subscriptions, queues, bindings
	queues [][]*queue // by subscription, then by number
	shared []*sequence
	extras extras
	first  atomic.Int64 // 1 + the time of the first message, by the broker's clock; 0: no message yet
}

// since returns the time of the topology's first message. The first call sets it to now.
func (t *topology) since(now int64) int64 {
	if t.first.Load() == 0 {
		t.first.CompareAndSwap(0, now+1)
	}
	return t.first.Load() - 1
}

// declare creates the topology. It only empties a topology that exists with the same shape.
func (b *broker) declare(t drivers.Topology) {
	brokers.Lock()
	defer brokers.Unlock()
	shape := [3]int{t.Subscriptions, t.Queues, t.Bindings}
	old := b.topologies[t.Name]
	if old != nil && old.shape == shape {
		for _, q := range slices.Concat(old.queues...) {
			q.purge(false)
		}
		for _, s := range old.shared {
			s.reset()
		}
		old.extras.mu.Lock()
		clear(old.extras.bound)
		old.extras.mu.Unlock()
		old.first.Store(0)
		return
	}
	if old != nil {
		old.end()
	}
	made := &topology{name: t.Name, shape: shape, queues: make([][]*queue, t.Subscriptions),
		shared: make([]*sequence, t.Queues)}
	for s := range made.queues {
		made.queues[s] = make([]*queue, t.Queues)
		for n := range made.queues[s] {
			made.queues[s][n] = newQueue(uint32(n))
		}
	}
	for n := range made.shared {
		made.shared[n] = &sequence{}
	}
	b.topologies[t.Name] = made
}

func (b *broker) remove(name string) {
	brokers.Lock()
	defer brokers.Unlock()
	if t := b.topologies[name]; t != nil {
		t.end()
		delete(b.topologies, name)
	}
}

func (b *broker) topology(name string) (*topology, error) {
	brokers.Lock()
	defer brokers.Unlock()
	if t := b.topologies[name]; t != nil {
		return t, nil
	}
	return nil,
		fmt.Errorf("broker %q has no topology %q: run Setup first, in a session of the same process and broker name",
			b.name, name)
}

// end drops all messages and makes the queues reject new ones.
func (t *topology) end() {
	for _, q := range slices.Concat(t.queues...) {
		q.purge(true)
	}
}

func (t *topology) queue(subscription, number int) *queue {
	if subscription < 0 || subscription >= len(t.queues) || number < 0 || number >= len(t.queues[subscription]) {
		return nil
	}
	return t.queues[subscription][number]
}

// fanOut returns the queues of this number, one per subscription. It is empty if the topology has no such queue.
func (t *topology) fanOut(number int) []*queue {
	var all []*queue
	for s := range t.queues {
		if q := t.queue(s, number); q != nil {
			all = append(all, q)
		}
	}
	return all
}
