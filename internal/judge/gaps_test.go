package judge

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

func newGap(owner int, from, to, waited int64) record.Gap {
	return record.Gap{Kind: record.GapConfirm, Owner: owner, From: from, To: to, Waited: waited}
}

func openGap(owner int, from, to, waited int64) record.Gap {
	g := newGap(owner, from, to, waited)
	g.Open = true
	return g
}

func TestOutagesOfAllOwners(t *testing.T) {
	for name, c := range map[string]struct {
		gaps   []record.Gap
		owners int
		want   []outage
	}{
		"one owner":                {[]record.Gap{newGap(0, 10, 50, 10)}, 1, []outage{{10, 50, false}}},
		"gap of one of two owners": {[]record.Gap{newGap(0, 10, 50, 10)}, 2, nil},
		"overlap": {[]record.Gap{newGap(0, 10, 50, 10), newGap(1, 20, 60, 20)}, 2,
			[]outage{{20, 50, false}}},
		"no overlap": {[]record.Gap{newGap(0, 10, 50, 10), newGap(1, 50, 60, 50)}, 2, nil},
		"two successive gaps": {[]record.Gap{newGap(0, 10, 30, 10), newGap(0, 30, 50, 30), newGap(1, 0, 60, 0)},
			2, []outage{{10, 30, false}, {30, 50, false}}},
		"wait begins within the gap": {[]record.Gap{newGap(0, 10, 50, 25)}, 1, []outage{{25, 50, false}}},
		"first of two waits": {[]record.Gap{newGap(0, 10, 50, 50), newGap(1, 5, 55, 30)}, 2,
			[]outage{{30, 50, false}}},
		"wait begins before the overlap": {[]record.Gap{newGap(0, 40, 50, 50), newGap(1, 5, 55, 10)}, 2,
			[]outage{{40, 50, false}}},
		"no waits": {[]record.Gap{newGap(0, 10, 50, 50), newGap(1, 5, 55, 55)}, 2, nil},
		"open at the end": {[]record.Gap{openGap(0, 10, 100, 10), openGap(1, 20, 101, 20)}, 2,
			[]outage{{20, 100, true}}},
		"closed while idle": {[]record.Gap{openGap(0, 10, 100, 100), openGap(1, 20, 101, 101)}, 2, nil},
		"with an open gap of no length": {[]record.Gap{newGap(0, 10, 50, 10), openGap(0, 50, 50, 50)}, 1,
			[]outage{{10, 50, false}}},
	} {
		if got := outages(c.gaps, c.owners); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// newPausedBroker is a steady cell of two publishers and two consumers. The broker pauses from 4 s to 5 s.
func newPausedBroker(gaps ...record.Gap) *taskBuilder {
	x := newTaskBuilder(func(w *plan.Workload) {
		w.Publishers.Threads, w.Consumers.Threads = 2, 2
		w.Faults = []plan.Fault{{Kind: plan.FaultPause, Target: "rabbit", At: plan.Duration(4 * time.Second),
			For: plan.Duration(time.Second), On: "all", Share: 1}}
	})
	x.steadyLoad(100, deliverAtOnce)
	x.last.Gaps = gaps
	f := x.task.Cell.Workload.Faults[0]
	x.last.Events = []record.Event{{At: 4e9, Kind: record.EventFault, Detail: f.Detail("process 7"), Nanos: 1e9}}
	return x
}

// gapsOfTwoOwners returns a gap of each kind for each of two owners in this period, and their open gaps at the end.
func gapsOfTwoOwners(from, to int64) []record.Gap {
	var gaps []record.Gap
	for _, kind := range []string{record.GapConfirm, record.GapDelivery} {
		for owner := range 2 {
			end := record.Gap{Kind: kind, Owner: owner, From: 10e9, To: 12e9, Waited: 12e9, Open: true}
			gaps = append(gaps, record.Gap{Kind: kind, Owner: owner, From: from, To: to + int64(owner)*1e6,
				Waited: from}, end)
		}
	}
	return gaps
}

func TestGapsAndRecovery(t *testing.T) {
	o := newPausedBroker(gapsOfTwoOwners(3_990e6, 5_250e6)...).judge()
	for name, want := range map[string]float64{"gap.confirm": 1.26, "gap.delivery": 1.26, "recovery.confirm": 0.25,
		"recovery.delivery": 0.25} {
		if v := o.Values[name]; v.NA != "" || math.Abs(v.Number-want) > 1e-9 {
			t.Errorf("%s: got %+v, want %v", name, v, want)
		}
	}
	if o.Verdict != plan.Valid {
		t.Errorf("got verdict %s, want valid: %v", o.Verdict, o.Reasons)
	}

	o = newPausedBroker(gapsOfTwoOwners(3_990e6, 4_000e6)...).judge()
	for _, name := range []string{"gap.confirm", "gap.delivery", "recovery.confirm", "recovery.delivery"} {
		if v := o.Values[name]; v.NA != "< 20 ms" && v.NA != "< 60 ms" {
			t.Errorf("%s: got %+v, want below the threshold", name, v)
		}
	}

	gaps := gapsOfTwoOwners(3_990e6, 4_000e6)
	for i := range gaps {
		if gaps[i].Open {
			gaps[i].From, gaps[i].Waited = 4_500e6, 4_500e6
		}
	}
	o = newPausedBroker(gaps...).judge()
	if v := o.Values["gap.delivery"]; math.Abs(v.Number-5.5) > 1e-9 { // to the end of the measurement, not of the drain
		t.Errorf("gap that did not end: got %+v, want 5.5 s: the part in the measurement", v)
	}
	if v := o.Values["recovery.confirm"]; v.NA != naNotRecovered {
		t.Errorf("recovery.confirm: got %+v, want %q", v, naNotRecovered)
	}

	o = newPausedBroker(gapsOfTwoOwners(3_990e6, 5_250e6)[1:]...).judge()
	if v := o.Values["gap.confirm"]; v.NA != "< 20 ms" { // one of the two had none
		t.Errorf("gap of one of two publishers: got %+v, want below the threshold", v)
	}
	o = newPausedBroker(gapsOfTwoOwners(3_990e6, 5_250e6)[2:]...).judge()
	if v := o.Values["gap.confirm"]; v.NA != naOwnerMissing {
		t.Errorf("gap without the record of a publisher: got %+v, want %q", v, naOwnerMissing)
	}
}

// Publishers whose messages were all confirmed and received before the fault ended have no recovery: neither a time of
// 0 nor "never".
func TestNothingToRecover(t *testing.T) {
	for name, missing := range map[string]bool{"all received": false, "one missing": true} {
		x := newPausedBroker(newGap(0, 4_500e6, 4_500e6, 4_500e6))
		x.merge, x.log = record.NewMerged(), record.NewCollector(x.task.Cell.Workload.Measure.D())
		x.rec, x.lat, x.sets, x.last.LastSend, x.last.LastConfirm, x.last.LastDelivery = x.log.Recorder(),
			x.log.Recorder(), map[record.SetKey]*record.Set{}, 0, 0, 0
		x.receive(x.send(4_400*time.Millisecond), 0, 4_450*time.Millisecond)
		if missing {
			x.send(4_450 * time.Millisecond)
		}
		x.last.Gaps = nil
		for owner := range 2 {
			x.last.Gaps = append(x.last.Gaps, openGap(owner, 4_450e6, 12e9, 12e9))
			delivery := openGap(owner, 4_450e6, 12e9, 4_450e6)
			delivery.Kind = record.GapDelivery
			x.last.Gaps = append(x.last.Gaps, delivery)
		}
		want := map[string]string{"recovery.confirm": naNothingDue, "recovery.delivery": naNothingDue}
		if missing {
			want["recovery.delivery"] = naNotRecovered
		}
		o := x.judge()
		for value, why := range want {
			if v := o.Values[value]; v.NA != why {
				t.Errorf("%s: %s: got %+v, want %q", name, value, v, why)
			}
		}
	}
}

// Gaps below the threshold of any owner are unknown for all: shorter recorded gaps are not reported.
func TestGapsBelowTheThreshold(t *testing.T) {
	gaps := gapsOfTwoOwners(3_990e6, 5_250e6)
	gaps[1].Min = 2e9
	o := newPausedBroker(gaps...).judge()
	for name, want := range map[string]string{"gap.confirm": "< 2000 ms", "recovery.confirm": "< 2000 ms",
		"gap.delivery": ""} {
		if v := o.Values[name]; v.NA != want {
			t.Errorf("%s: got %+v, want %q", name, v, want)
		}
	}
}

func TestFaultThatDidNotHappenIsUnknown(t *testing.T) {
	x := newPausedBroker(gapsOfTwoOwners(1, 2)...)
	x.last.Events = nil
	if o := x.judge(); o.Verdict != plan.Unknown ||
		!slices.Contains(o.Reasons, "the fault pause rabbit at 4s for 1s did not happen") {
		t.Errorf("got verdict %s, want unknown because of the fault: %v", o.Verdict, o.Reasons)
	}
}

// A fault that begins after the measurement had no effect on it: the verdict is unknown. One that begins late causes a
// warning.
func TestLateFaults(t *testing.T) {
	for _, c := range []struct {
		begin   time.Duration
		verdict plan.Verdict
		text    string // of a reason or a warning
	}{
		{4_100 * time.Millisecond, plan.Valid, ""},
		{4_101 * time.Millisecond, plan.Valid, "the fault pause rabbit at 4s for 1s began 101ms late on agent a"},
		{5 * time.Second, plan.Valid, "the fault pause rabbit at 4s for 1s began 1s late on agent a"},
		{9_999 * time.Millisecond, plan.Valid, "the fault pause rabbit at 4s for 1s began 5.999s late on agent a"},
		{10 * time.Second, plan.Unknown,
			"the fault pause rabbit at 4s for 1s began 6s late on agent a, after the measurement"},
	} {
		x := newPausedBroker(gapsOfTwoOwners(3_990e6, 5_250e6)...)
		x.last.Events[0].At = c.begin.Nanoseconds()
		o := x.judge()
		text := strings.Join(append(o.Reasons, o.Warnings...), "\n")
		if o.Verdict != c.verdict || !strings.Contains(text, c.text) || c.text == "" && strings.Contains(text, "late") {
			t.Errorf("%v: got verdict %s and %q, want %s and %q", c.begin, o.Verdict, text, c.verdict, c.text)
		}
	}
}

// Effects that a fault causes intentionally break no guarantee: duplicates after a cut, transient messages of a killed
// broker.
func TestFaultsBreakNoGuarantee(t *testing.T) {
	for name, c := range map[string]struct {
		fault      plan.Fault
		persistent bool
		duplicate  bool
		want       plan.Verdict
	}{
		"duplicates after a cut": {plan.Fault{Kind: plan.FaultCut, On: "all", Share: 1}, true, true,
			plan.Valid},
		"duplicates after a stall": {plan.Fault{Kind: plan.FaultStall, On: "all", Share: 1}, true, true,
			plan.Invalid},
		"transient loss after a kill": {plan.Fault{Kind: plan.FaultKill, Target: "x", On: "all", Share: 1}, false,
			false, plan.Valid},
		"persistent loss after a kill": {plan.Fault{Kind: plan.FaultKill, Target: "x", On: "all", Share: 1}, true,
			false, plan.Invalid},
		"transient loss after a pause": {plan.Fault{Kind: plan.FaultPause, Target: "x", On: "all", Share: 1}, false,
			false, plan.Invalid},
	} {
		x := newTaskBuilder(func(w *plan.Workload) {
			w.Publishers.Persistent = c.persistent
			w.Faults = []plan.Fault{c.fault}
		})
		x.steadyLoad(100, func(n int, sent time.Duration) (time.Duration, bool) {
			return sent + time.Millisecond, c.duplicate || n != 500
		})
		if c.duplicate {
			x.receive(500, 0, 9*time.Second)
		}
		x.last.Events = []record.Event{{At: 1, Kind: record.EventFault, Detail: c.fault.Detail("done"), Nanos: 1e9}}
		if o := x.judge(); o.Verdict != c.want {
			t.Errorf("%s: got verdict %s, want %s: %v", name, o.Verdict, c.want, o.Reasons)
		}
	}
}

// If a fault is injected by a host whose clock is 250 ms ahead, the recovery is right within the bound of the clocks,
// and clock-unsafe if the bound is unknown.
func TestRecoveryAcrossHosts(t *testing.T) {
	for name, c := range map[string]struct {
		clocks bool // the clocks were compared
		want   float64
	}{"clocks compared": {true, 0.25}, "clocks not compared": {false, 0}} {
		x := newPausedBroker(gapsOfTwoOwners(3_990e6, 5_250e6)...)
		x.task.Cell.Workload.Measure = plan.Duration(40 * time.Second)
		events := x.last.Events
		x.last.Events = nil
		events[0].At += 250e6
		other := record.Snapshot{Agent: "observer", Clock: "clock-2", Events: events}
		for second := range int64(41) { // the bound is that at the time of the recovery
			bound := int64(300e3)
			if second > 10 {
				bound = 30e6
			}
			other.Clocks = append(other.Clocks, record.ClockSample{At: second * 1e9, Reference: "clock-1",
				Offset: 250e6, Bound: bound})
		}
		if !c.clocks {
			other.Clocks = nil
		}
		x.merge.Add(other)
		o := x.judge()
		v := o.Values["recovery.confirm"]
		if c.clocks && (v.NA != "" || math.Abs(v.Number-c.want) > 1e-9 || math.Abs(v.Bound-300e-6) > 1e-9) {
			t.Errorf("%s: recovery.confirm: got %+v, want %v s ± 300 µs", name, v, c.want)
		}
		if unsafe := slices.Contains(o.Values["gap.confirm"].Flags, plan.ClockUnsafe); unsafe == c.clocks {
			t.Errorf("%s: gap.confirm: got %+v, want clock-unsafe %v", name, o.Values["gap.confirm"], !c.clocks)
		}
	}
}
