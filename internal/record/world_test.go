package record

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// world is a simple model of a task: every message by name, in maps.
type world struct {
	r             *rand.Rand
	subscriptions int
	agents        []*worldAgent
	publishers    []*worldPublisher
	consumers     []*worldConsumer
	sets          [numSetKinds]map[string]bool
	repeated      uint64 // deliveries of messages that the subscription already had
	snapshots     []Snapshot
}

type worldAgent struct {
	name      string
	collector *Collector
	seq       uint64
}

type worldPublisher struct {
	index int
	next  uint64
	owner *Recorder
	sets  [SetReceived]*Set
}

type worldConsumer struct {
	subscription int
	owner        *Recorder
	sets         []*Set
}

func newWorld(r *rand.Rand) *world {
	w := &world{r: r, subscriptions: 1 + r.IntN(3)}
	for k := range w.sets {
		w.sets[k] = map[string]bool{}
	}
	for i := range 1 + r.IntN(3) {
		w.agents = append(w.agents, &worldAgent{name: fmt.Sprint("agent", i), collector: NewCollector(2 * time.Second)})
	}
	anywhere := func() *Collector { return w.agents[r.IntN(len(w.agents))].collector }
	for i := range 1 + r.IntN(4) {
		p := &worldPublisher{index: i, owner: anywhere().Recorder()}
		for k := range p.sets {
			p.sets[k] = p.owner.Set(SetKey{Kind: SetKind(k), Publisher: i})
		}
		w.publishers = append(w.publishers, p)
	}
	for i := range w.subscriptions * (1 + r.IntN(3)) {
		c := &worldConsumer{subscription: i % w.subscriptions, owner: anywhere().Recorder()}
		for p := range w.publishers {
			c.sets = append(c.sets, c.owner.Set(SetKey{Kind: SetReceived, Subscription: c.subscription, Publisher: p}))
		}
		w.consumers = append(w.consumers, c)
	}
	return w
}

// send publishes one message of a random publisher, with a random result.
func (w *world) send(now int64) {
	p := w.publishers[w.r.IntN(len(w.publishers))]
	sequence := p.next
	p.next += 1 + w.r.Uint64N(2)*w.r.Uint64N(2)*w.r.Uint64N(9000) // sometimes with a hole, also across pages
	name := fmt.Sprint(p.index, "/", sequence)
	window := p.owner.Window(now, true)
	note := func(k SetKind) {
		p.sets[k].Add(sequence)
		w.sets[k][name] = true
	}
	delivered := true
	switch w.r.IntN(20) {
	case 0:
		note(SetUncertain)
		window.Counts[PublishErrors]++
		delivered = w.r.IntN(2) == 0
	case 1:
		note(SetSent)
		note(SetReturned)
		delivered = w.r.IntN(4) == 0
	case 2:
		note(SetSent)
		note(SetRejected)
		delivered = w.r.IntN(4) == 0
	default:
		note(SetSent)
		if w.r.IntN(10) > 0 {
			note(SetConfirmed)
		}
	}
	for s := range w.subscriptions {
		for delivered && w.r.IntN(200) > 0 {
			w.receive(s, p.index, sequence, now)
			delivered = w.r.IntN(30) == 0 // again, to any consumer
		}
		delivered = true
	}
}

func (w *world) receive(subscription, publisher int, sequence uint64, now int64) {
	var c *worldConsumer
	for c == nil || c.subscription != subscription {
		c = w.consumers[w.r.IntN(len(w.consumers))]
	}
	window := c.owner.Window(now+w.r.Int64N(second/10), true)
	if c.sets[publisher].Add(sequence) {
		window.Counts[Unique]++
	} else {
		window.Counts[Duplicated]++
	}
	name := fmt.Sprint(subscription, ":", publisher, "/", sequence)
	if w.sets[SetReceived][name] {
		w.repeated++
	}
	w.sets[SetReceived][name] = true
}

// snapshot takes an agent's increments, through JSON as on the wire, in one part or two.
func (w *world) snapshot(t *testing.T, a *worldAgent) {
	t.Helper()
	s := Snapshot{Agent: a.name, Seq: a.seq}
	s.Windows, s.Sets = a.collector.Take()
	parts := []Snapshot{s}
	if first, second, ok := s.Split(); ok && w.r.IntN(2) == 0 {
		second.Seq++
		parts = []Snapshot{first, second}
	}
	a.seq += uint64(len(parts))
	for _, part := range parts {
		data, err := json.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		var back Snapshot
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		w.snapshots = append(w.snapshots, back)
	}
}

func (w *world) run(t *testing.T) {
	t.Helper()
	for i := range 2000 {
		now := int64(i) * int64(time.Millisecond)
		w.send(now)
		if w.r.IntN(300) == 0 {
			w.snapshot(t, w.agents[w.r.IntN(len(w.agents))])
		}
		if w.r.IntN(200) == 0 {
			w.consumers[w.r.IntN(len(w.consumers))].owner.Flush()
		}
	}
	for _, p := range w.publishers {
		p.owner.Flush()
	}
	for _, c := range w.consumers {
		c.owner.Flush()
	}
	for _, a := range w.agents {
		w.snapshot(t, a)
	}
	again := slices.Clone(w.snapshots)
	w.snapshots = append(w.snapshots, again[:len(again)/2]...)
	w.r.Shuffle(len(w.snapshots), func(i, j int) { w.snapshots[i], w.snapshots[j] = w.snapshots[j], w.snapshots[i] })
}

// accounting counts every message by name.
func (w *world) accounting() Accounting {
	count := func(k SetKind) uint64 { return uint64(len(w.sets[k])) }
	t := Accounting{Sent: count(SetSent), Uncertain: count(SetUncertain), Confirmed: count(SetConfirmed),
		Rejected: count(SetRejected),
		Returned: count(SetReturned), Received: count(SetReceived), Duplicated: w.repeated}
	for name := range w.sets[SetSent] {
		confirmed, rejected, returned := w.sets[SetConfirmed][name], w.sets[SetRejected][name],
			w.sets[SetReturned][name]
		if !confirmed && !rejected {
			t.Unconfirmed++
		}
		for s := range w.subscriptions {
			if returned || rejected || w.sets[SetReceived][fmt.Sprint(s, ":", name)] {
				continue
			}
			t.Missing++
			if confirmed {
				t.MissingConfirmed++
			}
		}
	}
	return t
}
