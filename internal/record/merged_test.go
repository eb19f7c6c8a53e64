package record

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

// rounds returns all with LOCKSTEP_LONG, otherwise few.
func rounds(all, few int) int {
	if os.Getenv("LOCKSTEP_LONG") != "" {
		return all
	}
	return few
}

// The accounting is exact with several publishers, subscriptions, owners and agents, with loss, duplicates across
// owners, returns, rejections, and uncertain messages that arrive or not. Snapshots are merged in any order and
// repeatedly.
func TestMergeIsExact(t *testing.T) {
	for seed := range uint64(rounds(12, 4)) {
		w := newWorld(rand.New(rand.NewPCG(seed, 6)))
		w.run(t)
		m := NewMerged()
		seen := map[string]bool{}
		for _, s := range w.snapshots {
			id := fmt.Sprint(s.Agent, s.Seq)
			if m.Add(s) == seen[id] {
				t.Fatalf("seed %d: snapshot %s new: %v, and it was there: %v", seed, id, !seen[id], seen[id])
			}
			seen[id] = true
			for n := range w.subscriptions + 1 { // the fast answer must agree with the full count
				if missing := m.Accounting(n).Missing; m.AllIn(n) != (missing == 0) {
					t.Fatalf("seed %d: all in: %v, and %d are missing", seed, m.AllIn(n), missing)
				}
			}
		}
		if got, want := m.Accounting(w.subscriptions), w.accounting(); got != want {
			t.Errorf("seed %d:\n got %+v\nwant %+v", seed, got, want)
		}
	}
}

// A message whose publish failed but that arrives does not compensate for a missing one.
func TestUncertainDoesNotHideMissing(t *testing.T) {
	c := NewCollector(0)
	r := c.Recorder()
	sent, uncertain, received := r.Set(SetKey{Kind: SetSent}), r.Set(SetKey{Kind: SetUncertain}),
		r.Set(SetKey{Kind: SetReceived})
	sent.Add(0)
	sent.Add(1)
	uncertain.Add(2)
	received.Add(0)
	received.Add(2)
	m := NewMerged()
	deliver := func(seq uint64) {
		r.Window(0, true).Counts[Unique] = int64(received.count())
		r.Flush()
		s := Snapshot{Seq: seq}
		s.Windows, s.Sets = c.Take()
		m.Add(s)
	}
	deliver(1)
	if got := m.Accounting(1); m.AllIn(1) || got.Missing != 1 || got.Received != 2 || got.Uncertain != 1 {
		t.Errorf("all in: %v, %+v; message 1 is missing", m.AllIn(1), got)
	}
	received.Add(1)
	deliver(2)
	if got := m.Accounting(1); !m.AllIn(1) || got.Missing != 0 || got.Received != 3 {
		t.Errorf("all in: %v, %+v; everything arrived", m.AllIn(1), got)
	}
	if m.AllIn(2) {
		t.Error("a subscription that received nothing has everything")
	}
}

// With half of a record, no count is negative.
func TestAccountingOfHalfARecord(t *testing.T) {
	m := NewMerged()
	m.Add(Snapshot{Sets: []SetPages{{Key: SetKey{Kind: SetReceived}, Pages: []Page{{0, &full}}}}})
	if got := m.Accounting(1); got.Duplicated != 0 || got.Received != pageSize {
		t.Errorf("%+v", got)
	}
}

func TestMergeOfWindows(t *testing.T) {
	m := NewMerged()
	add := func(agent string, seq uint64, index int, measured bool, n int64) {
		w := Window{Index: index, Measured: measured, Start: int64(index) * second, Length: second}
		w.Counts[Sent] = n
		w.Record(Publish, n*1000)
		m.Add(Snapshot{Agent: agent, Seq: seq, Windows: []Window{w}})
	}
	add("b", 1, 1, true, 5)
	add("a", 2, 0, false, 7)
	add("a", 1, 0, true, 11)
	add("b", 2, 0, true, 13)
	add("a", 3, -1, false, 17)
	if got := m.Sum(Sent, 0, 1); got != 31 {
		t.Errorf("second 0 has %d, want 31: measured or not", got)
	}
	if got := m.Total(Sent); got != 53 {
		t.Errorf("all seconds have %d, want 53", got)
	}
	if h := m.Hist(Publish); h.Count() != 3 || h.Min() != 5000 || h.Max() != 13_000 {
		t.Errorf("%d samples from %d to %d, want the 3 measured", h.Count(), h.Min(), h.Max())
	}
	windows := m.Windows()
	order := ""
	for _, w := range windows {
		order += fmt.Sprintf("%d %v %d; ", w.Index, w.Measured, w.Counts[Sent])
	}
	if want := "-1 false 17; 0 false 7; 0 true 24; 1 true 5; "; order != want {
		t.Errorf("windows %s, want %s", order, want)
	}
	windows[2].Hists[Publish].Record(1) // belongs to the caller
	if h := m.Hist(Publish); h.Count() != 3 {
		t.Error("the record changed with what it had given away")
	}
	if h := m.Hist(Backpressure); h.Count() != 0 {
		t.Error("a series without samples has some")
	}
}

func TestMergeOfNotes(t *testing.T) {
	m := NewMerged()
	m.Add(Snapshot{Agent: "a", Seq: 2, At: 9, Host: HostSample{AgentCPU: 2},
		Events: []Event{{At: 5, Kind: EventGap, Nanos: 3}}, LastSend: -4, FirstDelivery: 2, LastDelivery: 8})
	m.Add(Snapshot{Agent: "a", Seq: 1, At: 3, Host: HostSample{AgentCPU: 1}, Clock: "boot", Skew: time.Millisecond,
		LastSend: -6, FirstDelivery: 2, LastDelivery: 2})
	m.Add(Snapshot{Agent: "c", Seq: 1, At: 4, FirstDelivery: -3})
	m.Add(Snapshot{Agent: "b", Seq: 1, At: 4, Events: []Event{{At: 1, Kind: "closed"}}})
	if h := m.Hosts(); len(h) != 1 || len(h["a"]) != 2 || h["a"][0] != (HostSample{At: 3, AgentCPU: 1}) ||
		h["a"][1].At != 9 {
		t.Errorf("hosts %+v, want a's two by time and none of b", h)
	}
	want := []Event{{At: 1, Agent: "b", Kind: "closed"}, {At: 5, Agent: "a", Kind: EventGap, Nanos: 3}}
	if got := m.Events(); !slices.Equal(got, want) {
		t.Errorf("events %+v, want %+v", got, want)
	}
	if m.FirstDelivery() != -3 {
		t.Errorf("first delivery %d, want that of c", m.FirstDelivery())
	}
	if m.Last().Send != -4 || m.Last().Confirm != 0 || m.Last().Delivery != 8 {
		t.Errorf("last send %d, confirm %d, delivery %d", m.Last().Send, m.Last().Confirm, m.Last().Delivery)
	}
	if m.Clocks()["a"] != "boot" || m.Skews()["a"] != time.Millisecond {
		t.Errorf("clocks %v, skews %v", m.Clocks(), m.Skews())
	}
}
