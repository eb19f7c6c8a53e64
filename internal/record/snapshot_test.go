package record

import (
	"encoding/json"
	"testing"
)

// The parts of a divided snapshot contain the same as the whole, down to parts that cannot be divided.
func TestSplitLosesNothing(t *testing.T) {
	c := NewCollector(0)
	r := c.Recorder()
	s := r.Set(SetKey{Kind: SetSent})
	for i := range uint64(20_000) {
		r.Window(int64(i)*second/4000, true).Counts[Sent]++
		s.Add(2 * i)
	}
	r.Flush()
	whole := Snapshot{Agent: "a", Host: HostSample{AgentCPU: 1}, Events: []Event{{Kind: "x"}}, Final: true, LastSend: 5}
	for i := range 5 {
		whole.Probes = append(whole.Probes, ProbeSample{At: int64(i), Name: "memory", Value: 1})
		whole.Bindings = append(whole.Bindings, BindingDelivery{Binding: uint64(i), At: 9})
	}
	whole.Windows, whole.Sets = c.Take()
	m := NewMerged()
	finals, seq := 0, uint64(0)
	var add func(Snapshot)
	add = func(s Snapshot) {
		if first, second, ok := s.Split(); ok {
			add(first)
			add(second)
			return
		}
		if len(s.Windows) > 1 || len(s.Sets) > 0 && len(s.Sets[0].Pages) > 1 || len(s.Probes)+len(s.Bindings) > 1 {
			t.Errorf("not divided: %d windows, %d sets, %d probes, %d deliveries", len(s.Windows), len(s.Sets),
				len(s.Probes), len(s.Bindings))
		}
		if s.Final {
			finals++
		}
		seq++
		s.Seq = seq
		m.Add(s)
	}
	add(whole)
	if m.Total(Sent) != 20_000 || m.Accounting(0).Sent != 20_000 {
		t.Errorf("%d counted, %d in the set, want 20000", m.Total(Sent), m.Accounting(0).Sent)
	}
	if finals != 1 || len(m.Events()) != 1 || len(m.Hosts()["a"]) != 1 || m.Last().Send != 5 {
		t.Errorf("%d final parts, %d events, %d samples, want one of each", finals, len(m.Events()),
			len(m.Hosts()["a"]))
	}
	if first, others := m.BindingDeliveries(); len(first) != 5 || len(others) != 0 || len(m.Probes()) != 5 {
		t.Errorf("%d and %d deliveries, %d probes; want 5 and none, 5", len(first), len(others), len(m.Probes()))
	}
	if seq < 10 {
		t.Errorf("only %d parts", seq)
	}
}

// Each part of a snapshot without sets is in one of the two, whatever is divided.
func TestSplitRepeatsNothing(t *testing.T) {
	c := NewCollector(0)
	r := c.Recorder()
	r.Window(0, true).Counts[Reconnects]++
	r.Flush()
	whole := Snapshot{Agent: "a"}
	whole.Windows, _ = c.Take()
	for i := range 9 {
		whole.Events = append(whole.Events, Event{At: int64(i), Kind: EventGap})
		whole.Gaps = append(whole.Gaps, Gap{Kind: GapConfirm, Owner: i})
	}
	whole.Bindings = []BindingDelivery{{Binding: 1, At: 9}}
	m := NewMerged()
	parts := []Snapshot{whole}
	for seq := uint64(0); len(parts) > 0; {
		first, second, ok := parts[0].Split()
		if ok {
			parts = append([]Snapshot{first, second}, parts[1:]...)
			continue
		}
		if len(first.Events) > 1 || len(first.Gaps) > 1 {
			t.Errorf("not divided: %d events, %d gaps", len(first.Events), len(first.Gaps))
		}
		seq++
		first.Seq, parts = seq, parts[1:]
		m.Add(first)
	}
	if n := m.Total(Reconnects); n != 1 || len(m.Events()) != 9 || len(m.Gaps()) != 9 {
		t.Errorf("%d reconnects, %d events, %d gaps; want 1, 9, 9", n, len(m.Events()), len(m.Gaps()))
	}
	if first, others := m.BindingDeliveries(); len(first) != 1 || len(others) != 0 {
		t.Errorf("%d and %d deliveries, want 1 and none", len(first), len(others))
	}
}

// A second of a fast task fits into one message with space to spare.
func TestSnapshotIsCompact(t *testing.T) {
	c := NewCollector(0)
	p, k := c.Recorder(), c.Recorder()
	sent, received := p.Set(SetKey{Kind: SetSent}), k.Set(SetKey{Kind: SetReceived})
	for i := range uint64(500_000) {
		w := p.Window(int64(i)*2000, true)
		w.Counts[Sent]++
		w.Record(Publish, int64(100_000+i*7919%200_000))
		sent.Add(i)
		w = k.Window(int64(i)*2000, true)
		w.Counts[Received]++
		w.Record(EndToEnd, int64(100_000+i*7919%900_000))
		received.Add(i)
	}
	p.Flush()
	k.Flush()
	s := Snapshot{Task: "t", Agent: "a", Seq: 1}
	s.Windows, s.Sets = c.Take()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 16<<10 {
		t.Errorf("one second of 500,000 messages takes %d bytes", len(data))
	}
	t.Logf("%d bytes", len(data))
}
