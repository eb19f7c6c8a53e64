package accuracy

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
)

// starving is loopback with one subscription that handles each delivery slowly.
type starving struct{ drivers.Driver }

const starved, takes = 7, time.Second / 320

func init() {
	d, err := drivers.Lookup("loopback")
	if err != nil {
		panic(err)
	}
	drivers.Register(starving{d})
}

func (s starving) Info() drivers.Info {
	info := s.Driver.Info()
	info.Name = "starving-" + info.Name
	return info
}

func (s starving) Open(ctx context.Context, options json.RawMessage, env drivers.Env) (drivers.Session, error) {
	session, err := s.Driver.Open(ctx, options, env)
	return drivertest.Hooks{Session: session, Consuming: func(ctx context.Context, conn drivers.Conn,
		spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer, error) {
		return conn.Consumer(ctx, spec, func(batch []drivers.Delivery) {
			if spec.Subscription == starved {
				time.Sleep(time.Duration(len(batch)) * takes)
			}
			handle(batch)
		})
	}}, err
}

// One of 20 subscriptions receives 320 of 400 messages per second. That is only 1 % of all messages, and the backlog is
// detected.
func TestOneStarvedSubscription(t *testing.T) {
	for driver, want := range map[string]bool{"loopback": false, "starving-loopback": true} {
		truth := map[bool]string{false: "20 subscriptions, 400/s",
			true: "one of 20 subscriptions takes 320 of 400/s"}[want]
		m := inDriver(t, driver, `{}`, func(w *plan.Workload) {
			w.Publishers.Rate, w.Topology.Subscriptions = 400, 20
		})
		m.flagged(t, truth, "consume.rate", plan.Backlog, want)
		rate := 8000.0
		if want {
			rate = 19*400 + 320
		}
		check(t, row{truth: truth, value: "consume.rate", want: rate, got: m.number(t, "consume.rate"), bound: 1})
		m.count(t, truth, "lost", 0)
	}
}

// Two agents with a count of 5,000 send 1,000 per second for 5 s and 500 per second for 10 s. The rate covers the 5 s
// in which both sent.
func TestAgentsByCountThatEndApart(t *testing.T) {
	truth := "5,000 messages at 1,000/s, and at 500/s"
	task := taskOf(func(w *plan.Workload) {
		w.Publishers.Nodes, w.Publishers.Count, w.Consumers.Nodes, w.Consumers.Colocate, w.Warmup = 2, 5000, 2, true, 0
	})
	part := func(i int) plan.Assignment {
		return plan.Assignment{Task: task, Publishers: plan.Share{First: i, Count: 1, Total: 2},
			Consumers: plan.Share{First: i, Count: 1, Total: 2}}
	}
	m := judged(task, play(t, "loopback", `{"rate":1000,"burst":1}`, part(0)),
		play(t, "loopback", `{"rate":500,"burst":1}`, part(1)))
	for _, name := range []string{"publish.rate", "confirm.rate", "consume.rate"} {
		check(t, row{truth: truth, value: name, want: 1500, got: m.number(t, name), bound: 1500 * 0.01})
	}
	m.count(t, truth, "sent", 10_000)
}

// Confirms that take 15 ms at first and 5 ms at the end are a drift of a closed loop. Confirms of constantly 10 ms are
// none.
func TestDriftingRate(t *testing.T) {
	for options, want := range map[string]bool{`{"confirmDelay":"10ms"}`: false,
		`{"confirmDelay":"5ms","slowStart":{"for":"11s","extra":"10ms"}}`: true} {
		m := in(t, options, func(w *plan.Workload) { w.Publishers.Mode = "confirm-each" })
		truth := map[bool]string{false: "closed loop, confirms take 10 ms",
			true: "closed loop, confirms take 15 ms, at the end 5 ms"}[want]
		m.flagged(t, truth, "publish.rate", plan.Drifting, want)
	}
}
