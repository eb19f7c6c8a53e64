package controller_test

import (
	"encoding/json"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/test/wiretest"
)

// loopbackOptions adds options to a cell's broker.
func loopbackOptions(c *plan.Cell, options map[string]any) {
	var named map[string]any
	_ = json.Unmarshal(c.Broker.Options, &named)
	for k, v := range options {
		named[k] = v
	}
	c.Broker.Options, _ = json.Marshal(named)
}

// TestMissingConfirmsDoNotHideLoss proves that missing messages count as lost, not as undrained, if publishers waited
// for confirms until the drain timeout.
func TestMissingConfirmsDoNotHideLoss(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		w := l.run(newRun(func(c *plan.Cell) {
			c.Workload.Publishers.Count, c.Workload.Publishers.MaxInFlight, c.Workload.Publishers.Rate = 0, 1000, 10_000
			c.Workload.Measure = plan.Duration(300 * time.Millisecond)
			c.Workload.Drain = plan.Drain{Idle: plan.Duration(200 * time.Millisecond),
				Timeout: plan.Duration(800 * time.Millisecond)}
			loopbackOptions(c, map[string]any{"lose": 100, "confirmDelay": "20s"})
		}), nil, nil)
		o := w.outcomes()[0]
		if o.Ledger.Lost != 20 || o.Ledger.Undrained != 0 || o.Verdict != plan.Invalid {
			t.Errorf("got %d lost, %d undrained, %s %v, want 20, 0, invalid", o.Ledger.Lost,
				o.Ledger.Undrained, o.Verdict, o.Reasons)
		}
	})
}

// TestALateConfirmLeavesTimeToReceive proves that the drain continues after a late confirm, because the broker was
// stalled and may deliver soon.
func TestALateConfirmLeavesTimeToReceive(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		w := newLocalFleet(t, "a1", "a2", "a3", "a4").run(newRun(func(c *plan.Cell) {
			c.Workload.Publishers.Count, c.Workload.Publishers.MaxInFlight, c.Workload.Publishers.Rate = 0, 1000, 10_000
			c.Workload.Measure = plan.Duration(200 * time.Millisecond)
			c.Workload.Drain = plan.Drain{Idle: plan.Duration(400 * time.Millisecond),
				Timeout: plan.Duration(5 * time.Second)}
			loopbackOptions(c, map[string]any{"delay": "1s", "confirmDelay": "900ms"})
		}), nil, nil)
		o := w.outcomes()[0]
		if o.Ledger.Sent != 2000 || o.Ledger.Received != o.Ledger.Sent || o.Ledger.Lost != 0 ||
			o.Verdict != plan.Valid {
			t.Errorf("got %+v, %s %v, want 2,000 received, valid", o.Ledger, o.Verdict, o.Reasons)
		}
	})
}

// TestDeliveriesAtTheDrainTimeoutAreUndrained proves that messages are undrained, not lost, if deliveries continue
// until the drain timeout.
func TestDeliveriesAtTheDrainTimeoutAreUndrained(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		w := l.run(newRun(func(c *plan.Cell) {
			// Deliveries continue for three seconds after the end of the measurement. The limit is in the middle of
			// that time.
			c.Workload.Publishers.Count, c.Workload.Publishers.MaxInFlight, c.Workload.Publishers.Rate = 0, 5000, 1000
			c.Workload.Measure = plan.Duration(3 * time.Second)
			c.Workload.Drain = plan.Drain{Idle: plan.Duration(1400 * time.Millisecond),
				Timeout: plan.Duration(1500 * time.Millisecond)}
			loopbackOptions(c, map[string]any{"delay": "3s"})
		}), nil, nil)
		o := w.outcomes()[0]
		if o.Ledger.Sent != 3000 || o.Ledger.Undrained == 0 || o.Ledger.Lost != 0 {
			t.Errorf("got %d lost, %d undrained, want 0 lost, some undrained: deliveries continued at the timeout",
				o.Ledger.Lost, o.Ledger.Undrained)
		}
	})
}
