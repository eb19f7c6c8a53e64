package record

import "math/bits"

// ledger holds the merged sets of one task. It updates the number of expected and arrived messages page by page.
type ledger struct {
	publishers map[int]*publisherSets // by publisher
	expected   int64                  // messages that every subscription must receive: sent, not returned, not rejected
	arrived    map[int]int64          // received or dropped messages of those, by subscription
}

// publisherSets holds the sets of one publisher.
type publisherSets struct {
	own      [SetReceived]bitmap
	received map[int]bitmap // by subscription
	dropped  map[int]bitmap // by subscription
}

// bitmap is an exact set of sequence numbers, by page. It owns its words, except the shared full page.
type bitmap map[uint64]*words

func (b bitmap) at(number uint64) *words {
	if w := b[number]; w != nil {
		return w
	}
	return &none
}

func (b bitmap) count() (n uint64) {
	for _, w := range b {
		n += w.count()
	}
	return n
}

// unite adds a page. The caller keeps the page. It returns by how many bytes the memory has grown.
func (b bitmap) unite(p Page) (grown int) {
	sum := *b.at(p.Number)
	sum.add(p.words)
	had := b[p.Number]
	if had == nil {
		grown = memoryPage
	}
	switch {
	case sum == full:
		if had != nil && had != &full {
			grown -= pageBytes
		}
		b[p.Number] = &full
	case had == nil:
		grown += pageBytes
		b[p.Number] = &sum
	default:
		*had = sum
	}
	return grown
}

func (l *ledger) setsOf(publisher int) *publisherSets {
	a := l.publishers[publisher]
	if a == nil {
		a = &publisherSets{received: map[int]bitmap{}, dropped: map[int]bitmap{}}
		for k := range a.own {
			a.own[k] = bitmap{}
		}
		l.publishers[publisher] = a
	}
	return a
}

func (a *publisherSets) set(k SetKey) bitmap {
	of := a.received
	switch k.Kind {
	case SetReceived:
	case SetDropped:
		of = a.dropped
	default:
		return a.own[k.Kind]
	}
	b := of[k.Subscription]
	if b == nil {
		b = bitmap{}
		of[k.Subscription] = b
	}
	return b
}

// apply merges pages into the ledger. The counts of a page are subtracted before its change and added afterwards. They
// are therefore correct in any order of pages. It returns by how many bytes the memory has grown.
func (l *ledger) apply(s SetPages) (grown int) {
	if l.publishers[s.Key.Publisher] == nil {
		grown = memoryPublisher
	}
	a := l.setsOf(s.Key.Publisher)
	had := len(a.received) + len(a.dropped)
	b := a.set(s.Key)
	grown += memorySubscription * (len(a.received) + len(a.dropped) - had)
	for _, p := range s.Pages {
		if p.words == nil || !p.words.exceeds(b.at(p.Number)) {
			continue
		}
		l.weigh(a, p.Number, s.Key, -1)
		grown += b.unite(p)
		l.weigh(a, p.Number, s.Key, 1)
	}
	return grown
}

// weigh adds sign times the counts of one page, as far as a change of set k can affect them.
func (l *ledger) weigh(a *publisherSets, number uint64, k SetKey, sign int64) {
	if k.Kind == SetConfirmed || k.Kind == SetUncertain {
		return
	}
	e := a.expects(number)
	if k.Kind == SetReceived || k.Kind == SetDropped {
		l.arrived[k.Subscription] += sign * int64(e.count()-a.missing(&e, k.Subscription, number))
		return
	}
	l.expected += sign * int64(e.count())
	for subscription := range l.arrived {
		l.arrived[subscription] += sign * int64(e.count()-a.missing(&e, subscription, number))
	}
}

// expects returns the messages of a page that every subscription must receive. Uncertain messages are not included.
func (a *publisherSets) expects(number uint64) (e words) {
	sent, returned, rejected := a.own[SetSent].at(number), a.own[SetReturned].at(number), a.own[SetRejected].at(number)
	for i := range e {
		e[i] = sent[i] &^ (returned[i] | rejected[i])
	}
	return e
}

// missing returns how many of these messages of a page were neither received nor dropped by a subscription.
func (a *publisherSets) missing(of *words, subscription int, number uint64) uint64 {
	return without(of, a.received[subscription].at(number), a.dropped[subscription].at(number))
}

// without returns the number of bits of a that are in neither b nor c.
func without(a, b, c *words) (n uint64) {
	if b == &full || c == &full {
		return 0
	}
	for i := range a {
		n += uint64(bits.OnesCount64(a[i] &^ (b[i] | c[i])))
	}
	return n
}

// allIn reports whether every subscription has received all expected messages.
func (l *ledger) allIn(subscriptions int) bool {
	for s := range subscriptions {
		if l.arrived[s] != l.expected {
			return false
		}
	}
	return true
}

// accounting adds a publisher's messages to t. It reads all of its pages.
func (a *publisherSets) accounting(t *Accounting, subscriptions int) {
	t.Sent += a.own[SetSent].count()
	t.Uncertain += a.own[SetUncertain].count()
	t.Confirmed += a.own[SetConfirmed].count()
	t.Rejected += a.own[SetRejected].count()
	t.Returned += a.own[SetReturned].count()
	for _, b := range a.received {
		t.Received += b.count()
	}
	for number, sent := range a.own[SetSent] {
		t.Unconfirmed += without(sent, a.own[SetConfirmed].at(number), a.own[SetRejected].at(number))
		e := a.expects(number)
		for s := range subscriptions {
			t.Missing += a.missing(&e, s, number)
		}
	}
	for number, confirmed := range a.own[SetConfirmed] {
		kept := *confirmed
		for i, returned := range a.own[SetReturned].at(number) {
			kept[i] &^= returned
		}
		for s := range subscriptions {
			t.MissingConfirmed += a.missing(&kept, s, number)
		}
	}
	for s, dropped := range a.dropped {
		for number, b := range dropped {
			t.Dropped += without(b, a.received[s].at(number), &none)
		}
	}
}
