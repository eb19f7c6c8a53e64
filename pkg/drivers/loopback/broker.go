package loopback

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/pkg/drivers"
)

// brokers are the brokers of this process by name. One lives while it has sessions or topologies.
var brokers struct {
	sync.Mutex
	named map[string]*broker
}

// broker holds topologies and knows whose links to break.
type broker struct {
	name  string
	epoch time.Time // delivery times of delayed messages count from it

	// Guarded by brokers.Mutex.
	sessions   int
	topologies map[string]*topology

	mu       sync.Mutex
	links    map[part]struct{}
	limiters map[[2]int64]*limiter
}

// join enters the broker of this name, which begins with its first session.
func join(name string) *broker {
	brokers.Lock()
	defer brokers.Unlock()
	b := brokers.named[name]
	if b == nil {
		b = &broker{
			name: name, epoch: time.Now(), topologies: map[string]*topology{},
			links: map[part]struct{}{}, limiters: map[[2]int64]*limiter{},
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
	if b.sessions == 0 && len(b.topologies) == 0 {
		delete(brokers.named, b.name)
	}
}

// Cut breaks every link to the broker of this name, as if the network had gone: outstanding confirms fail,
// OnClosed is called and what was not acknowledged comes again. The broker stays; new links work.
func Cut(name string) {
	brokers.Lock()
	b := brokers.named[name]
	brokers.Unlock()
	if b == nil {
		return
	}
	b.mu.Lock()
	links := slices.Collect(maps.Keys(b.links))
	b.mu.Unlock()
	for _, l := range links {
		l.cut()
	}
}

func (b *broker) attach(p part) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.links[p] = struct{}{}
}

func (b *broker) detach(p part) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.links, p)
}

// now is the time for delayed deliveries, in nanoseconds.
func (b *broker) now() int64 { return int64(time.Since(b.epoch)) }

// topology is what one task declared: a queue for every subscription and queue number.
type topology struct {
	name   string
	shape  [3]int     // subscriptions, queues, bindings
	queues [][]*queue // by subscription, then by number
	shared []*sequence
	extras extras
	first  atomic.Int64 // 1 more than when the first message came, by the broker's clock; 0: none has
}

// since returns when the first message of the topology came, which is now if there was none.
func (t *topology) since(now int64) int64 {
	if t.first.Load() == 0 {
		t.first.CompareAndSwap(0, now+1)
	}
	return t.first.Load() - 1
}

// declare makes the topology, or empties it if it is there already in the same shape.
func (b *broker) declare(t drivers.Topology) {
	brokers.Lock()
	defer brokers.Unlock()
	shape := [3]int{t.Subscriptions, t.Queues, t.Bindings}
	old := b.topologies[t.Name]
	if old != nil && old.shape == shape {
		for _, q := range slices.Concat(old.queues...) {
			q.purge()
		}
		for _, s := range old.shared {
			s.reset()
		}
		old.extras.clear()
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

// end drops all messages and takes no more.
func (t *topology) end() {
	for _, q := range slices.Concat(t.queues...) {
		q.end()
	}
}

func (t *topology) queue(subscription, number int) *queue {
	if subscription < 0 || subscription >= len(t.queues) || number < 0 || number >= len(t.queues[subscription]) {
		return nil
	}
	return t.queues[subscription][number]
}

// fanOut lists the queues of this number, one for each subscription; none if it was not declared.
func (t *topology) fanOut(number int) []*queue {
	var all []*queue
	for s := range t.queues {
		if q := t.queue(s, number); q != nil {
			all = append(all, q)
		}
	}
	return all
}
