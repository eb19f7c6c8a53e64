package judge

import (
	"testing"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// By count, rates are those of the agents while each of them ran.
func TestRatesByCountAreOfEachAgentsTime(t *testing.T) {
	x := newWorld(func(w *plan.Workload) {
		w.Publishers.Nodes, w.Publishers.Count, w.Publishers.Mode = 2, 1000, "confirm-each"
	})
	counts := func(seq uint64, sent int64, last, skew time.Duration, agent string) {
		w := record.Window{Measured: true, Length: int64(time.Second)}
		w.Counts[record.Sent], w.Counts[record.Confirmed], w.Counts[record.ReceivedBytes] = sent, sent, 100*sent
		x.merge.Add(record.Snapshot{Agent: agent, Seq: seq, Clock: "clock-1", Windows: []record.Window{w}, LastSend: int64(last) - 1, LastConfirm: int64(last), LastReceipt: int64(last), Skew: skew})
	}
	counts(1, 1000, 10*time.Second, 0, "a")           // 100/s
	counts(1, 500, 2500*time.Millisecond, 0, "b")     // 250/s: half of it in two snapshots
	counts(2, 500, 5*time.Second, 3*time.Second, "b") // … from 1 s on, as it started a second after warm-up
	o := Judge(x.task, x.merge, x.facts)
	near(t, o, "send.rate", 100+250)
	near(t, o, "confirm.rate", 100+250)
	near(t, o, "receive.bytes", 2000*100/10) // what consumers got, until the last receipt
}

// Every agent starts some microseconds late. Within what the cell allows that costs no second of the measurement.
func TestLatenessWithinTheBudgetIsOverlooked(t *testing.T) {
	for late, measured := range map[time.Duration]bool{60 * time.Microsecond: true, 20 * time.Millisecond: true, 21 * time.Millisecond: false} {
		x := newWorld(func(w *plan.Workload) { w.Warmup, w.Measure = 0, plan.Duration(time.Second) })
		x.last.Skew = late
		x.count(0, record.Sent, 300)
		if v := x.judge().Values["send.rate"]; (v.NA == "") != measured || measured && v.Number != 300 {
			t.Errorf("%v late: %+v", late, v)
		}
	}
}

// Rates of a measurement in which an agent started late, or was lost, are those of the seconds in which all ran.
func TestRatesAreOfTheTimeThatAllRan(t *testing.T) {
	for name, c := range map[string]struct {
		skew     time.Duration
		lost     time.Duration
		measured time.Duration
		rate     float64
	}{
		"all the time":                            {0, 0, 10 * time.Second, 300},
		"late, within warm-up":                    {1900 * time.Millisecond, 0, 10 * time.Second, 300},
		"late by 1.2 s of the measurement":        {3200 * time.Millisecond, 0, 8 * time.Second, 300},
		"lost after 6.5 s: the sixth is not sure": {0, 6500 * time.Millisecond, 5 * time.Second, 300},
		"late and lost at once":                   {9 * time.Second, 6500 * time.Millisecond, 0, 0},
	} {
		x := newWorld(nil)
		x.facts.Agents[1].Lost = c.lost > 0
		x.last.Skew = c.skew
		for second := range 10 { // 300/s while all are there, and 100 else
			n := int64(300)
			at := time.Duration(second) * time.Second
			if at < c.skew-2*time.Second || c.lost > 0 && at > c.lost-2*time.Second {
				n = 100
			}
			x.count(at, record.Sent, n)
		}
		x.merge.Add(record.Snapshot{Agent: "b", Clock: "clock-1", At: int64(max(c.lost, 11*time.Second*btoi(c.lost == 0)))})
		o := x.judge()
		if c.rate == 0 {
			if v := o.Values["send.rate"]; v.NA != NANotMeasured {
				t.Errorf("%s: %+v, want it not measured", name, v)
			}
			continue
		}
		near(t, o, "send.rate", c.rate)
		if o.Measured.D() != c.measured {
			t.Errorf("%s: rates are per %v, want %v", name, o.Measured.D(), c.measured)
		}
	}
}

func btoi(b bool) time.Duration {
	if b {
		return 1
	}
	return 0
}
