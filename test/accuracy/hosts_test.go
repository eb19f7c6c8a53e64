package accuracy

import (
	"math"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// A broker stalls for 1.25 s. The first second is a pause by the agent of another host, whose clock is 400 ms ahead.
// The confirms that were due meanwhile come at the end of the stall, 250 ms after the pause.
func TestRecoveryAcrossHosts(t *testing.T) {
	const ahead, bound = 400 * ms, 300 * time.Microsecond
	task := taskOf(steady)
	part := play(t, "loopback", `{"confirmDelay":"3ms","stalls":[{"at":"4s","for":"1250ms"}]}`, whole(task))
	fault := plan.Fault{Kind: plan.FaultPause, Target: "broker", At: plan.Duration(3 * time.Second),
		For: plan.Duration(time.Second), On: "all", Share: 1}
	task.Cell.Workload.Faults = []plan.Fault{fault}
	observer := record.Snapshot{Agent: "observer", Clock: "two", Events: []record.Event{{
		At: int64(3*time.Second + ahead), Kind: record.EventFault, Detail: fault.Detail("process 7"),
		Nanos: int64(time.Second)}}}
	for second := range int64(15) {
		observer.Clocks = append(observer.Clocks, record.ClockSample{At: second * int64(time.Second), Reference: "one",
			Offset: int64(ahead), Bound: int64(bound)})
	}
	m := judgedBy(task, judge.Facts{}, part, observer)
	truth := "confirms come 250 ms after a pause by a host whose clock is 400 ms ahead"
	check(t, row{truth: truth, value: "recovery.confirm", want: 0.25, got: m.number(t, "recovery.confirm"),
		bound: 1e-6, unit: plan.Seconds})
	check(t, row{truth: truth, value: "(error bound of recovery.confirm)", want: bound.Seconds(),
		got: m.Values["recovery.confirm"].Bound, bound: 1e-9, unit: plan.Seconds})
}

// The clocks of two hosts are slewed in opposite directions by up to 20 ppm, and run apart by 50 ppm. Their offset is
// known within its bound at all times, and the bound is not much larger than that of one exchange.
func TestOffsetOfSlewedClocks(t *testing.T) {
	const offset, drift, there, back = 250e6, 50e-6, 2e3, 98e3 // ns, ns per ns, ns
	slew := func(at, ppm float64) float64 { return ppm * 1e-6 * 30e9 * math.Sin(at/30e9) }
	own := func(at float64) (read, lead int64) { return int64(at + slew(at, 20)), int64(slew(at, 20)) }
	other := func(at float64) (read, lead int64) {
		return int64(at*(1+drift) + offset + slew(at, -20)), int64(slew(at, -20))
	}
	var o clock.Offsets
	worst, widest := 0.0, 0.0
	for n := range 240 {
		at := float64(n) * 0.5e9
		var x clock.Exchange
		x.Sent, _ = own(at)
		x.Arrived, _ = other(at + there)
		x.Answered, x.OtherSlew = other(at + there)
		x.Received, x.Slew = own(at + there + back)
		x.SlewBound = 10
		o.Add(x)
		at += there + back + 0.4e9
		read, lead := own(at)
		is, ok := o.At(read, lead, 10)
		if !ok {
			t.Fatal("no estimate of the offset")
		}
		theirs, _ := other(at)
		worst = max(worst, math.Abs(float64(is.Offset)-float64(read-theirs))-float64(is.Bound))
		if n >= 20 {
			widest = max(widest, float64(is.Bound))
		}
	}
	truth := "clocks slewed by 20 ppm in opposite directions, 50 ppm apart"
	check(t, row{truth: truth, value: "(error of the clock offset beyond its bound)", want: 0,
		got: max(0, worst) / 1e9, unit: plan.Seconds})
	check(t, row{truth: truth, value: "(half of the round trip; error bound of the offset)",
		want: (there + back) / 2 / 1e9, got: widest / 1e9, bound: 30e-6, unit: plan.Seconds})
}
