package record

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

// filled is a snapshot in which every time is later than T0.
func filled(seq uint64, at int64) Snapshot {
	w := Window{Index: int(at / second), Start: at / second * second, Length: second, Measured: seq%2 == 0}
	w.Counts[Sent] = int64(seq)
	w.Record(Publish, 1000)
	return Snapshot{Agent: "a", Seq: seq, At: at, Begin: 5 * second, Epoch: time.Unix(100, 0), Windows: []Window{w},
		Host: HostSample{At: at, AgentCPU: 1}, Events: []Event{{At: at, Kind: "k"}},
		Probes:   []ProbeSample{{At: at, Name: "p"}},
		Bindings: []BindingDelivery{{Binding: 1, Called: at, Sent: at + 1, At: at + 2}}, LastSend: at,
		LastConfirm: at + 1, LastDelivery: at + 2, FirstDelivery: at + 2,
		Clocks: []ClockSample{{At: at}}, Gaps: []Gap{{Kind: GapConfirm, From: at, To: at + 3, Waited: at + 1}}}
}

// A rebased record is the same as one whose times were counted from the new T0, earlier or later.
func TestRebase(t *testing.T) {
	const by = 5 * second
	want, before, after := NewMerged(), NewMerged(), NewMerged()
	after.Rebase(time.Duration(by))
	for i, at := range []int64{1, second, by, by + 7, 8 * second} {
		s := filled(uint64(i+1), at)
		kept := filled(uint64(i+1), at)
		before.Add(s)
		after.Add(s)
		if s.Windows[0].Index != kept.Windows[0].Index || !slices.Equal(s.Events, kept.Events) ||
			!slices.Equal(s.Clocks, kept.Clocks) {
			t.Fatal("the caller's snapshot changed")
		}
		moved := filled(uint64(i+1), at-by)
		moved.Windows[0].Index, moved.Windows[0].Start = kept.Windows[0].Index-5, kept.Windows[0].Start-by
		moved.Epoch = kept.Epoch.Add(time.Duration(by))
		want.Add(moved)
	}
	before.Rebase(time.Duration(by))
	before.Rebase(time.Duration(by))
	for name, m := range map[string]*Merged{"before": before, "after": after} {
		if m.Begin() != time.Duration(by) {
			t.Errorf("%s: the measurement begins at %v", name, m.Begin())
		}
		for what, both := range map[string][2]any{
			"windows": {want.Windows(), m.Windows()}, "hosts": {want.Hosts(), m.Hosts()},
			"events": {want.Events(), m.Events()},
			"gaps":   {want.Gaps(), m.Gaps()}, "probes": {want.Probes(), m.Probes()},
			"clocks": {want.ClockSamples(), m.ClockSamples()}, "heard": {want.ReportedUntil(), m.ReportedUntil()},
			"first": {want.FirstDelivery(), m.FirstDelivery()}, "last": {want.Last(), m.Last()}, "each last": {want.LastOfEach(), m.LastOfEach()},
			"epoch": {want.epoch, m.epoch}, "sum": {want.Sum(Sent, 0, 3), m.Sum(Sent, 0, 3)},
			"bindings": {want.bindings.first, m.bindings.first}, "others": {want.bindings.others, m.bindings.others},
		} {
			if !reflect.DeepEqual(both[0], both[1]) {
				t.Errorf("rebased %s: %s are %+v, want %+v", name, what, both[1], both[0])
			}
		}
	}
	if end := before.End(); end != 9*time.Second {
		t.Errorf("the last window ends %v after T0, want 9s", end)
	}
}
