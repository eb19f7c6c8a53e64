package record

import (
	"cmp"
)

// Messages through bindings made during the load (churn) are numbered and recorded separately from ordinary messages.
// The record has sets of those sent and received. Each agent reports its first delivery of every binding, because only
// all agents together determine which was the first.

// BindingDelivery is the first message through a binding that one agent received. Times are ns since T0.
type BindingDelivery struct {
	Binding uint64 `json:"binding"` // number of the binding
	Called  int64  `json:"called"`  // intended time of the call that made the binding
	Sent    int64  `json:"sent"`    // send time of the message
	At      int64  `json:"at"`      // delivery time
}

// BindingAccounting is the exact accounting of the messages through such bindings.
type BindingAccounting struct {
	Sent     uint64 // confirmed by the broker
	Received uint64 // distinct messages
	Missing  uint64 // sent and not received
}

// bindings holds the merged sets and deliveries of these messages.
type bindings struct {
	sent, received bitmap
	first          map[uint64]BindingDelivery // by binding
	others         []BindingDelivery
}

// apply merges pages of a set of these messages. It returns false for other sets, and by how many bytes the memory has
// grown.
func (b *bindings) apply(s SetPages) (applied bool, grown int) {
	into := b.sent
	switch s.Key.Kind {
	case SetBindingSent:
	case SetBindingReceived:
		into = b.received
	default:
		return false, 0
	}
	for _, p := range s.Pages {
		if p.words != nil {
			grown += into.unite(p)
		}
	}
	return true, grown
}

// receive keeps the earliest delivery of a binding, in whatever order the deliveries arrive.
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

func (r BindingDelivery) shifted(by int64) BindingDelivery {
	r.Called, r.Sent, r.At = r.Called-by, r.Sent-by, r.At-by
	return r
}
