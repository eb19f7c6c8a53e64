package server

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// settings are the settings of a persistent subscription.
type settings struct {
	start          int64 // requested revision of the first event; -1: the end
	timeout        time.Duration
	maxRetries     int32
	maxSubscribers int32
	strategy       string
	checkpoint     struct {
		after       time.Duration
		least, most int32
	}
	live, history, batch int32 // buffer sizes, which are only reported: everything is in memory
	resolveLinks, extra  bool
}

// message is an event that a group delivers.
type message struct {
	event   *event
	retries int32
	due     time.Time // zero: no timeout
	to      *client
	settled bool // acknowledged, timed out or otherwise no longer outstanding
}

// group is one persistent subscription.
type group struct {
	store  *store
	stream string
	name   string

	mu          sync.Mutex
	settings    settings
	next        uint64 // revision of the next event of the stream
	retry       []*message
	outstanding map[uuid.UUID]*message
	byTime      []*message // outstanding and settled messages, in the order of their timeouts
	clients     []*client  // the next recipient is first
	parked      []*event
	over        bool

	answered       int32 // since the last check of the checkpoint
	checkpointed   int64 // -1: none yet
	checkpointedAt time.Time
	total          int64
	measured       struct {
		total int64
		at    time.Time
	}
}

// newGroup creates a group that begins at the start of its settings. The end is the current end of the stream.
func newGroup(s *store, stream, name string, set settings) *group {
	g := &group{store: s, stream: stream, name: name, settings: set, outstanding: map[uuid.UUID]*message{},
		checkpointed: -1}
	g.measured.at = time.Now()
	if set.start >= 0 {
		g.next = uint64(set.start)
		return g
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if of := s.find(stream); of != nil {
		g.next = of.next
	}
	return g
}

// push delivers messages to clients with free slots. mu is held.
func (g *group) push() {
	for !g.over {
		room := 0
		for _, c := range g.clients {
			room += max(c.slots, 0)
		}
		if room == 0 {
			return
		}
		if len(g.retry) > 0 {
			if !g.send(g.retry[0]) {
				return
			}
			g.retry = g.retry[1:]
			continue
		}
		found := g.take(room)
		if len(found) == 0 {
			return
		}
		for _, e := range found {
			if !g.send(&message{event: e}) {
				return // the group continues with this event
			}
			g.next = e.revision + 1
		}
	}
}

// take returns the next events of the stream without advancing.
func (g *group) take(most int) []*event {
	g.store.mu.RLock()
	defer g.store.mu.RUnlock()
	of := g.store.find(g.stream)
	if of == nil {
		return nil
	}
	return slices.Clone(of.from(g.next, most))
}

// send delivers a message to a client that the strategy chooses. It returns false if none has a free slot. An event
// whose id is outstanding is skipped.
func (g *group) send(m *message) bool {
	if g.outstanding[m.event.id] != nil {
		return true
	}
	to := g.choose(m.event)
	if to == nil {
		return false
	}
	to.slots--
	to.inFlight++
	to.total++
	g.total++
	m.to, m.settled = to, false
	if g.settings.timeout > 0 {
		m.due = time.Now().Add(g.settings.timeout)
		g.byTime = append(g.byTime, m)
	}
	g.outstanding[m.event.id] = m
	to.deliver(delivery{m.event, m.retries})
	return true
}

// choose returns a client by the strategy, or nil if none has a free slot.
func (g *group) choose(e *event) *client {
	if g.settings.strategy == "Pinned" {
		if c := g.clients[bucket(e.stream)%len(g.clients)]; c.slots > 0 {
			return c
		}
		return nil
	}
	for range g.clients {
		c := g.clients[0]
		if g.settings.strategy != "DispatchToSingle" || c.slots <= 0 {
			g.clients = append(g.clients[1:], c)
		}
		if c.slots > 0 {
			return c
		}
	}
	return nil
}

// bucket maps a stream to one of 1024 buckets.
func bucket(stream string) int {
	h := uint32(2166136261)
	for i := range len(stream) {
		h = (h ^ uint32(stream[i])) * 16777619
	}
	return int(h % 1024)
}

// settle ends the delivery of a message to its client. mu is held.
func (g *group) settle(m *message) {
	m.settled = true
	delete(g.outstanding, m.event.id)
	if m.to != nil {
		m.to.slots++
		m.to.inFlight--
	}
}

// again schedules a message for redelivery, before newer messages. With park, it is parked after the maximum number of
// retries.
func (g *group) again(m *message, park bool) {
	g.settle(m)
	if park && m.retries >= g.settings.maxRetries {
		g.parked = append(g.parked, m.event)
		return
	}
	next := &message{event: m.event, retries: m.retries + 1}
	at, _ := slices.BinarySearchFunc(g.retry, next, func(a, b *message) int {
		if a.event.revision <= b.event.revision {
			return -1
		}
		return 1
	})
	g.retry = slices.Insert(g.retry, at, next)
}

// acknowledge settles messages, also those of other clients.
func (g *group) acknowledge(ids []uuid.UUID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, id := range ids {
		if m := g.outstanding[id]; m != nil {
			g.settle(m)
		}
	}
	g.answer(len(ids))
}

// refusal is the action for a message that a client refused.
type refusal int

const (
	refuseRetry refusal = iota
	refusePark
	refuseSkip
)

func (g *group) refuse(ids []uuid.UUID, how refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, id := range ids {
		m := g.outstanding[id]
		if m == nil {
			continue
		}
		switch how {
		case refuseRetry:
			g.again(m, true)
		case refusePark:
			g.settle(m)
			g.parked = append(g.parked, m.event)
		default:
			g.settle(m)
		}
	}
	g.answer(len(ids))
}

// answer continues after n acknowledgements or refusals: it marks a checkpoint if enough have arrived, and delivers
// more messages.
func (g *group) answer(n int) {
	if g.answered += int32(n); g.answered >= g.settings.checkpoint.most {
		g.markCheckpoint(false)
	}
	g.push()
}

// look redelivers messages after their timeout.
func (g *group) look(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.byTime) > 0 && (g.byTime[0].settled || !g.byTime[0].due.After(now)) {
		m := g.byTime[0]
		g.byTime[0] = nil
		g.byTime = g.byTime[1:]
		if !m.settled {
			g.again(m, true)
		}
	}
	g.markCheckpoint(true)
	g.push()
}

// markCheckpoint stores the revision up to which everything is acknowledged, as often as the settings require.
func (g *group) markCheckpoint(timely bool) {
	g.answered = 0
	lowest := int64(g.next) - 1
	for _, m := range g.outstanding {
		lowest = min(lowest, int64(m.event.revision)-1)
	}
	if len(g.retry) > 0 {
		lowest = min(lowest, int64(g.retry[0].event.revision)-1)
	}
	ahead := lowest - g.checkpointed
	due := timely && ahead >= int64(g.settings.checkpoint.least) &&
		time.Since(g.checkpointedAt) >= g.settings.checkpoint.after
	if ahead > 0 && (due || ahead >= int64(g.settings.checkpoint.most)) {
		g.checkpointed, g.checkpointedAt = lowest, time.Now()
	}
}

// replay redelivers parked messages, oldest first. most is the maximum number; 0: all.
func (g *group) replay(most int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.parked)
	if most > 0 {
		n = min(n, int(most))
	}
	for _, e := range g.parked[:n] {
		g.retry = append(g.retry, &message{event: e})
	}
	slices.SortStableFunc(g.retry,
		func(a, b *message) int { return int(int64(a.event.revision) - int64(b.event.revision)) })
	g.parked = slices.Clone(g.parked[n:])
	g.push()
}

// update replaces the settings. All clients are dropped, and unacknowledged messages are redelivered.
func (g *group) update(set settings) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dropAll(groupDropped(g.stream, g.name))
	set.start = g.settings.start
	g.settings = set
}

// end drops all clients and closes the group.
func (g *group) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dropAll(groupMissing(g.stream, g.name))
	g.over = true
}

func (g *group) dropAll(why *fault) {
	for _, c := range slices.Clone(g.clients) {
		g.remove(c)
		c.drop(why)
	}
}

// join adds a client.
func (g *group) join(c *client) *fault {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.over:
		return groupMissing(g.stream, g.name)
	case g.settings.maxSubscribers > 0 && len(g.clients) >= int(g.settings.maxSubscribers):
		return groupFull(g.stream, g.name)
	}
	g.clients = append(g.clients, c)
	return nil
}

// leave removes a client. Its unacknowledged messages are redelivered.
func (g *group) leave(c *client) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(c)
	g.push()
}

func (g *group) remove(c *client) {
	at := slices.Index(g.clients, c)
	if at < 0 {
		return
	}
	g.clients = slices.Delete(g.clients, at, at+1)
	var lost []*message
	for _, m := range g.outstanding {
		if m.to == c {
			lost = append(lost, m)
		}
	}
	for _, m := range lost {
		g.again(m, false)
	}
}

// appended delivers new events.
func (g *group) appended() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.push()
}

// less orders groups by name.
func (g *group) less(other *group) int {
	return strings.Compare(g.stream+"::"+g.name, other.stream+"::"+other.name)
}
