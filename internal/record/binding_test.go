package record

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
)

// The first message of a binding is known only after all agents have reported, in any order.
func TestFirstDeliveryOfABinding(t *testing.T) {
	told := []BindingDelivery{
		{Binding: 1, Called: 10, Sent: 20, At: 50}, {Binding: 1, Called: 10, Sent: 30, At: 40},
		{Binding: 1, Called: 10, Sent: 25, At: 45},
		{Binding: 2, Called: -5, Sent: 1, At: 2},
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		random.Shuffle(len(told), func(i, j int) { told[i], told[j] = told[j], told[i] })
		m := NewMerged()
		for i, r := range told {
			s := Snapshot{Agent: "a", Seq: uint64(i), Bindings: []BindingDelivery{r}}
			m.Add(s)
			m.Add(s) // repeated: it counts once
		}
		first, others := m.BindingDeliveries()
		if !slices.Equal(first, []BindingDelivery{{1, 10, 30, 40}, {2, -5, 1, 2}}) ||
			!slices.Equal(others, []BindingDelivery{{1, 10, 25, 45}, {1, 10, 20, 50}}) {
			t.Fatalf("first %v, others %v", first, others)
		}
	}
}

// Messages through new bindings are accounted for separately, and are not in the ledger.
func TestBindingMessagesAreApart(t *testing.T) {
	c := NewCollector(0)
	p, k := c.Recorder(), c.Recorder()
	sent, received, plain := p.Set(SetKey{Kind: SetBindingSent}), k.Set(SetKey{Kind: SetBindingReceived}),
		p.Set(SetKey{Kind: SetSent})
	arrived := k.Set(SetKey{Kind: SetReceived})
	for i := range uint64(10_000) {
		sent.Add(i)
		if i%100 != 7 {
			received.Add(i)
		}
	}
	plain.Add(3)
	arrived.Add(3)
	p.Flush()
	k.Flush()
	s := Snapshot{Agent: "a", Seq: 1}
	s.Windows, s.Sets = c.Take()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var again Snapshot
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	m := NewMerged()
	m.Add(again)
	if got := m.Bindings(); got != (BindingAccounting{Sent: 10_000, Received: 9_900, Missing: 100}) {
		t.Errorf("%+v; want 10000 sent, 9900 received, 100 missing", got)
	}
	if got := m.Accounting(1); got.Sent != 1 || got.Received != 1 || got.Missing != 0 {
		t.Errorf("%+v: want the one message of the ledger alone", got)
	}
	if m.AllIn(1) || !m.AllIn(0) {
		t.Error("the drain has to wait for what is missing, if anybody receives")
	}
	for i := range uint64(10_000) {
		received.Add(i)
	}
	k.Flush()
	_, pages := c.Take()
	m.Add(Snapshot{Agent: "a", Seq: 2, Sets: pages})
	if !m.AllIn(1) || m.Bindings().Missing != 0 {
		t.Errorf("%+v: all has come", m.Bindings())
	}
}
