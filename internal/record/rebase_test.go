package record

import (
	"reflect"
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
	want, got := NewMerged(), NewMerged()
	for i, at := range []int64{1, second, by, by + 7, 8 * second} {
		got.Add(filled(uint64(i+1), at))
		moved := filled(uint64(i+1), at-by)
		moved.Windows[0].Index, moved.Windows[0].Start = int(at/second)-5, at/second*second-by
		moved.Epoch = moved.Epoch.Add(time.Duration(by))
		want.Add(moved)
	}
	got.Rebase(time.Duration(by))
	got.Rebase(time.Duration(by))
	if got.Begin() != time.Duration(by) {
		t.Errorf("the measurement begins at %v", got.Begin())
	}
	for what, both := range map[string][2]any{
		"windows": {want.Windows(), got.Windows()}, "hosts": {want.Hosts(), got.Hosts()},
		"events": {want.Events(), got.Events()},
		"gaps":   {want.Gaps(), got.Gaps()}, "probes": {want.Probes(), got.Probes()},
		"clocks": {want.ClockSamples(), got.ClockSamples()}, "reported": {want.ReportedUntil(), got.ReportedUntil()},
		"first": {want.FirstDelivery(), got.FirstDelivery()}, "last": {want.Last(), got.Last()},
		"each last": {want.LastOfEach(), got.LastOfEach()},
		"epoch":     {want.epoch, got.epoch}, "sum": {want.Sum(Sent, 0, 3), got.Sum(Sent, 0, 3)},
		"bindings": {want.bindings.first, got.bindings.first}, "others": {want.bindings.others, got.bindings.others},
	} {
		if !reflect.DeepEqual(both[0], both[1]) {
			t.Errorf("%s are %+v, want %+v", what, both[1], both[0])
		}
	}
	if end := got.End(); end != 9*time.Second {
		t.Errorf("the last window ends %v after T0, want 9s", end)
	}
}
