package overhead

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	harness "example.org/lockstep/lockstep/internal/engine"
	"example.org/lockstep/lockstep/internal/netsim"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/internal/stats"
	"example.org/lockstep/lockstep/pkg/drivers"
)

const (
	roundTrip     = 50 * time.Millisecond // of the simulated network
	inFlightPairs = 3
	inFlightTime  = 2 * time.Second // of one measurement
)

// TestInFlightLimitIsFilled proves that a publisher keeps maxInFlight messages in flight over a network with a round
// trip of 50 ms, with the engine, each driver and a real broker or a stand-in. Its rate must be at least 0.95 of
// limit / round trip. The round trip is that of the network, with the delays that the host added to it, plus the time
// in which the broker confirms as many messages without the network. That time is measured in the same run, and at most
// 100 ms: a slow broker gets a lower limit.
func TestInFlightLimitIsFilled(t *testing.T) {
	if os.Getenv("LOCKSTEP_LONG") == "" {
		t.Skip("part of \"make test-long\": set LOCKSTEP_LONG=1")
	}
	for _, test := range []struct {
		name, driver, variable, options string
		maximum                         int // maximum that the broker or its client permits; 0: any
	}{
		{"nats", "nats", "LOCKSTEP_NATS_URL", `{"url": %q}`, 0},
		{"rabbitmq", "rabbitmq", brokerURL, `{"url": %q}`, 0},
		{"kafka, franz-go", "kafka", kafkaBrokers, `{"brokers": [%q]}`, 0},
		// kafka-go has one batch in flight: it must contain all messages, and no fewer.
		{"kafka, kafka-go", "kafka", kafkaBrokers,
			`{"brokers": [%q], "client": "kafka-go", "batchSize": 1000, "linger": "1s"}`, 0},
		// These brokers grant new credit when less than 300 of 1000, or 30 of 100, are left.
		{"artemis", "artemis", "LOCKSTEP_ARTEMIS_URL", `{"url": %q}`, 300},
		{"activemq", "activemq", "LOCKSTEP_ACTIVEMQ_URL", `{"url": %q}`, 30},
		{"sqs", "sqs", sqsEndpoint, `{"endpoint": %q, "region": "elasticmq", "accessKey": "x", "secret": "x"}`, 0},
		{"mongodb", "mongodb", mongoURL, `{"url": %q, "w": 1, "journal": false}`, 0},
		// The server permits 64 KiB of unread requests per connection, in HTTP/2's flow control.
		{"eventstore", "eventstore", eventStoreURL, `{"url": %q}`, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			address := os.Getenv(test.variable)
			if address == "" {
				t.Fatalf("%s is not set; run the test in the lab: make test-long PART=overhead", test.variable)
			}
			limit := plan.Default().Publishers.MaxInFlight
			if test.maximum > 0 {
				limit = min(limit, test.maximum)
			}
			options := fmt.Sprintf(test.options, address)
			first, _ := confirmRate(t, test.driver, options, limit, 0)
			limit = min(limit, max(1, int(first/10)))
			var near, far, trip, ratio []float64
			for range inFlightPairs {
				without, _ := confirmRate(t, test.driver, options, limit, 0)
				with, network := confirmRate(t, test.driver, options, limit, roundTrip)
				seconds := network.Seconds() + float64(limit)/without
				near, far, trip = append(near, without), append(far, with), append(trip, 1e3*seconds)
				ratio = append(ratio, with*seconds/float64(limit))
			}
			t.Logf("| %s | %d | %.0f | %.0f | %.1f ms | %.2f |", test.name, limit, stats.Median(near), stats.Median(far),
				stats.Median(trip), stats.Median(ratio))
			if stats.Median(ratio) < wanted {
				t.Errorf("the rates are %.2f of limit / round trip, want %v", ratio, wanted)
			}
		})
	}
}

// confirmRate returns the confirms per second of one publisher at the maximum rate, over a network with this latency.
// It also returns the latency of the network with the delays of the host.
func confirmRate(t *testing.T, driver, options string, limit int, latency time.Duration) (rate float64,
	network time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	d, err := drivers.Lookup(driver)
	must(t, err)
	filled := schematest.Fill(t, d, options)
	var delays netsim.Delays
	dial := netsim.Dialer(new(net.Dialer).DialContext, netsim.Conditions{Latency: latency, Delays: &delays})
	forwarder := netsim.NewForwarder(dial)
	defer forwarder.Close()
	session, err := drivers.Checked(ctx, d, filled, drivers.Env{Dial: dial, Forward: forwarder.Forward,
		Log: slog.New(slog.DiscardHandler), Dir: t.TempDir(), Access: drivers.FullAccess(),
		Retried: func(requests int64) { t.Errorf("%d requests were repeated", requests) }})
	must(t, err)
	defer func() { must(t, session.Close()) }()
	tasks++
	cell := plan.Cell{Workload: plan.Default()}
	x := &cell.Workload
	x.Publishers.MaxInFlight, x.Consumers.Nodes = limit, 0
	x.Publishers.Persistent = driver == "eventstore" // which stores all messages; others confirm transient ones faster
	x.Warmup, x.Measure = plan.Duration(time.Second), plan.Duration(inFlightTime)
	task := plan.Task{Run: "in-flight", ID: fmt.Sprint(tasks), Cell: cell}
	e, err := harness.New(harness.Config{
		Assignment: plan.Assignment{Task: task, Publishers: plan.Share{Count: 1, Total: 1}},
		Session:    session, Log: slog.New(slog.DiscardHandler), CopiesBody: d.Info().Declare(filled,
			drivers.Use{Mode: drivers.ConfirmWindow, MaxInFlight: limit}).Capabilities.CopiesBody})
	must(t, err)
	topology := harness.Topology(task)
	must(t, session.Setup(ctx, topology))
	defer func() { must(t, session.Teardown(context.Background(), topology)) }()
	must(t, e.ConnectConsumers(ctx))
	must(t, e.ConnectPublishers(ctx))
	must(t, e.Run(ctx, clock.Now()))
	network = latency + 2*time.Duration(delays.Take().Mean()) // in both directions
	confirmed := confirmsWithin(e.Take(false), inFlightTime)
	must(t, e.Close(ctx))
	return float64(confirmed+confirmsWithin(e.Take(true), inFlightTime)) / inFlightTime.Seconds(), network
}

// confirmsWithin counts the confirms that arrived in the measurement.
func confirmsWithin(part record.Snapshot, measure time.Duration) (n int64) {
	for i := range part.Windows {
		if w := &part.Windows[i]; w.Index >= 0 && time.Duration(w.Index)*time.Second < measure {
			n += w.Counts[record.Confirmed]
		}
	}
	return n
}
