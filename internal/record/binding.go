package record

import (
	"cmp"
	"maps"
	"slices"
)

// Bindings that are made while messages flow have messages of their own, numbered by themselves and kept out of
// everything else: sets of what was sent and received, and, since only all agents together know which message of a
// binding was the first to arrive, each agent's first of every binding.

// BindingDelivery is the first message through a binding that one agent received. Times are nanoseconds since T0.
type BindingDelivery struct {
	Binding uint64 `json:"binding"` // its number
	Called  int64  `json:"called"`  // when the binding was asked for
	Sent    int64  `json:"sent"`    // when the message was sent
	At      int64  `json:"at"`      // when it was received
}

// BindingAccounting is the exact accounting of the messages through such bindings.
type BindingAccounting struct {
	Sent     uint64 // accepted by Publish after the broker had confirmed the binding
	Received uint64 // different messages
	Missing  uint64 // sent and not received
}

// bindings is what is known of them.
type bindings struct {
	sent, received bitmap
	first          map[uint64]BindingDelivery // by binding
	others         []BindingDelivery
}

func newBindings() bindings {
	return bindings{sent: bitmap{}, received: bitmap{}, first: map[uint64]BindingDelivery{}}
}

// apply takes pages of a set of these messages; false: it is of others.
func (b *bindings) apply(s SetPages) bool {
	into := b.sent
	switch s.Key.Kind {
	case SetBindingSent:
	case SetBindingReceived:
		into = b.received
	default:
		return false
	}
	for _, p := range s.Pages {
		if p.words != nil {
			into.unite(p)
		}
	}
	return true
}

// receive keeps the earliest delivery of a binding, whatever order they are told in.
func (b *bindings) receive(r BindingDelivery) {
	had, known := b.first[r.Binding]
	if known && cmp.Or(cmp.Compare(had.At, r.At), cmp.Compare(had.Sent, r.Sent)) <= 0 {
		had, r = r, had
	}
	b.first[r.Binding] = r
	if known {
		b.others = append(b.others, had)
	}
}

func (b *bindings) accounting() (t BindingAccounting) {
	t.Received = b.received.count()
	for number, sent := range b.sent {
		t.Sent += sent.count()
		t.Missing += without(sent, b.received.at(number), &none)
	}
	return t
}

// Bindings returns the account of the messages through bindings that were made while messages flowed.
func (m *Merged) Bindings() BindingAccounting {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bindings.accounting()
}

// BindingDeliveries returns the first delivery of each binding, by its number, and the deliveries that some agent took
// for the first while another one had been earlier.
func (m *Merged) BindingDeliveries() (first, others []BindingDelivery) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(m.bindings.first)) {
		first = append(first, m.bindings.first[n])
	}
	others = slices.SortedFunc(slices.Values(m.bindings.others), func(a, b BindingDelivery) int {
		return cmp.Or(cmp.Compare(a.Binding, b.Binding), cmp.Compare(a.At, b.At), cmp.Compare(a.Sent, b.Sent))
	})
	return first, others
}
