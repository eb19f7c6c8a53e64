package test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
)

// Every shape of load works, on the run's own NATS server.
func TestMatrixShapes(t *testing.T) {
	parallel(t)
	runShipped(t, "shapes.cue", reduced(longDrain...)...).checkShapes(9)
}

// The same on RabbitMQ, and on Kafka, which has no bindings and does not redeliver rejected messages. Messages of
// disconnected consumers are redelivered there, too. Shapes that only the engine implements are not repeated.
func TestStudyShapes(t *testing.T) {
	for _, test := range []struct {
		broker       string
		only, engine []string
	}{
		{fmt.Sprintf(`{driver: "rabbitmq", options: {url: %q, exchange: type: "direct"}}`,
			variable(t, "LOCKSTEP_RABBITMQ_URL")),
			[]string{"keys", "refusing consumers", "late consumers", "consumers come and go"},
			[]string{"plain", "sizes", "compressible", "slow consumers", "publishers come and go"}},
		{fmt.Sprintf(`{driver: "kafka", options: {brokers: [%q], partitions: 4}}`,
			variable(t, "LOCKSTEP_KAFKA_BROKERS")),
			[]string{"late consumers", "publishers come and go"}, []string{"plain", "sizes"}},
	} {
		only := test.only
		if long() {
			only = append(only, test.engine...)
		}
		runShipped(t, "shapes.cue", "--set", "brokers.other="+test.broker, "--set", `cell.broker="other"`,
			"--set", `cell.drain.timeout="2m"`, "--filter", "shape="+strings.Join(only, ",")).checkShapes(len(only))
	}
}

// checkShapes checks the cells of shapes.cue.
func (r record) checkShapes(n int) {
	r.t.Helper()
	if len(r.outcomes) != n {
		r.t.Errorf("outcomes: got %d, want %d", len(r.outcomes), n)
	}
	for _, o := range r.outcomes {
		shape, _ := r.plan.Cells[o.Index].Coordinate("shape")
		if l := o.Ledger; l.Lost+l.Undrained+l.Corrupt != 0 || l.Received != l.Sent {
			r.t.Errorf("%s: got ledger %+v, want all messages received", shape, l)
		}
		r.checkShape(o, shape)
	}
}

func (r record) checkShape(o plan.Outcome, shape string) {
	r.t.Helper()
	count := func(name string) float64 { return o.Values[name].Number }
	mean := o.Values["publish.bytes"].Number / o.Values["publish.rate"].Number
	switch shape {
	case "sizes": // 0.9 · 100 + 0.1 · 8692, with a standard deviation of 2966 per message
		n := o.Values["publish.rate"].Number * o.Measured.D().Seconds()
		if want, sigma := 959.2, 2966/math.Sqrt(n); !(math.Abs(mean-want) <= 5*sigma) {
			r.t.Errorf("%s: bytes per message: got %.0f, want %.0f ± %.0f", shape, mean, want, 5*sigma)
		}
	case "compressible":
		if math.Abs(mean-2000) > 0.01 {
			r.t.Errorf("%s: bytes per message: got %.2f, want 2000", shape, mean)
		}
	case "refusing consumers":
		all := count("nacked") + count("received")
		if share := count("nacked") / all; math.Abs(share-0.1) > 5*math.Sqrt(0.09/all) {
			r.t.Errorf("%s: rejected share of %.0f deliveries: got %.3f, want 0.1", shape, all, share)
		}
	case "late consumers":
		if count("backlog.max") < 1 || long() && count("backlog.max") < 1000 || count("connects") != 1 ||
			count("disconnects") != 0 || r.metric(o, "backlog.drain") <= 0 {
			r.t.Errorf("%s: backlog.max, connects and disconnects: got %.0f, %.0f and %.0f, want about 1500, 1 and 0",
				shape, count("backlog.max"), count("connects"), count("disconnects"))
		}
		// A fast broker drains the backlog within the second in which it is detected. Then there is no rate, and the
		// bound of the time is large.
		v, drain := o.Values["catchup.rate"], o.Values["backlog.drain"]
		if fast := v.NA == judge.NAFastDrain; fast && drain.Number+drain.Bound > 1 || !fast &&
			(v.NA != "" || v.Number <= 0 || long() && v.Number < 100) {
			r.t.Errorf("%s: got catchup.rate %+v, backlog.drain %+v, want a rate, or a drain within 1 s",
				shape, v, drain)
		}
	case "consumers come and go", "publishers come and go":
		if count("disconnects") < 4 || count("connects") < count("disconnects")-4 || count("reconnects") != 0 {
			r.t.Errorf("%s: connects, disconnects and reconnects: got %.0f, %.0f and %.0f, want about 15, 15 and 0",
				shape, count("connects"), count("disconnects"), count("reconnects"))
		}
	}
}
