package accuracy

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
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
	drivers.Register(working{d})
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

// working is loopback with a client library that needs a millisecond of its own work for each message.
type working struct{ drivers.Driver }

func (w working) Info() drivers.Info {
	info := w.Driver.Info()
	info.Name = "working-" + info.Name
	return info
}

func (w working) Open(ctx context.Context, options json.RawMessage, env drivers.Env) (drivers.Session, error) {
	session, err := w.Driver.Open(ctx, options, env)
	return drivertest.Hooks{Session: session, Publishing: func(ctx context.Context, conn drivers.Conn,
		spec drivers.PublisherSpec) (drivers.Publisher, error) {
		p, err := conn.Publisher(ctx, spec)
		return workingPublisher{p}, err
	}}, err
}

type workingPublisher struct{ drivers.Publisher }

func (p workingPublisher) Publish(ctx context.Context, m drivers.Message) error {
	time.Sleep(ms)
	return p.Publisher.Publish(ctx, m)
}

// A publisher that works for a millisecond per message is the limit of a closed loop, and causes the whole delay of an
// open loop. One that waits for confirms is not the limit.
func TestOnePublisherIsTheLimit(t *testing.T) {
	truth := "closed loop, 1 ms of work per message"
	m := inDriver(t, "working-loopback", `{}`, func(*plan.Workload) {})
	check(t, row{truth: truth, value: "publish.rate", want: 1000, got: m.number(t, "publish.rate")})
	m.flagged(t, truth, "publish.rate", plan.ClientBound, true)

	truth = "closed loop, 1 ms until the confirm"
	m = in(t, `{"confirmDelay":"1ms"}`, func(w *plan.Workload) { w.Publishers.Mode = "confirm-each" })
	check(t, row{truth: truth, value: "publish.rate", want: 1000, got: m.number(t, "publish.rate")})
	m.flagged(t, truth, "publish.rate", plan.ClientBound, false)

	truth = "1 ms of work per message, 2,000/s asked for"
	m = inDriver(t, "working-loopback", `{}`, func(w *plan.Workload) { w.Publishers.Rate, w.Warmup = 2000, 0 })
	late := make([]time.Duration, 20_000) // message n is due at n/2 ms and sent at n ms
	for n := range late {
		late[n] = time.Duration(n) * ms / 2
	}
	m.quantiles(t, truth, "send_delay", late)
	m.quantiles(t, truth, "backpressure", make([]time.Duration, len(late)))
	m.flagged(t, truth, "publish.rate", plan.ClientBound, true)
}

// tableOf returns the field of a value in the table of one cell with these repetitions.
func tableOf(t *testing.T, value string, repetitions ...measured) report.Field {
	t.Helper()
	cell := plan.Cell{ID: repetitions[0].Cell, Workload: repetitions[0].work,
		Coordinates: []plan.Coordinate{{Axis: "mode", Value: json.RawMessage(`"x"`)}}}
	run := plan.Run{ID: "truth", Name: "truth", Repeat: len(repetitions), Axes: []string{"mode"},
		Cells: []plan.Cell{cell}, Tables: []plan.Table{{Rows: []string{"mode"}, Values: []string{value}}}}
	var outcomes []plan.Outcome
	for i, m := range repetitions {
		m.Repetition = i + 1
		outcomes = append(outcomes, m.Outcome)
	}
	tables := report.Build(run, outcomes)
	if len(tables) != 1 || len(tables[0].Rows) != 1 {
		t.Fatalf("got %+v, want one table with one row", tables)
	}
	return tables[0].Rows[0][1]
}

// Messages that are delivered after 100 ms are 3.3 % of those of 3 s. There is no backlog, and the table shows both
// rates. After 10 ms they are 0.3 %, and it shows one.
func TestTwoRates(t *testing.T) {
	for delay, rates := range map[string]float64{"100ms": 2, "10ms": 1} {
		truth := "3 s at 1,000/s, delivered after " + delay
		m := in(t, `{"delay":"`+delay+`"}`, func(w *plan.Workload) {
			steady(w)
			w.Warmup, w.Measure = 0, plan.Duration(3*time.Second)
		})
		m.flagged(t, truth, "throughput", plan.Backlog, false)
		text := tableOf(t, "throughput", m).Text
		check(t, row{truth: truth, value: "(rates in throughput)", want: rates,
			got: float64(1 + strings.Count(text, " / "))})
	}
}

// The table shows the mean of the two middle repetitions of an even number.
func TestMedianOfTwo(t *testing.T) {
	var repetitions []measured
	for _, delay := range []string{"10ms", "30ms"} {
		repetitions = append(repetitions, in(t, `{"confirmDelay":"`+delay+`"}`, steady))
	}
	got := tableOf(t, "publish.p99", repetitions...).Number
	if got == nil {
		t.Fatal("no number")
	}
	check(t, row{truth: "confirms after 10 ms, and after 30 ms", value: "(median of publish.p99)", want: 0.02,
		got: *got, bound: bucket(0.03), unit: plan.Seconds})
}
