package accuracy

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/cli"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	_ "example.org/lockstep/lockstep/pkg/drivers/nats"
	_ "example.org/lockstep/lockstep/pkg/drivers/rabbitmq"
	"example.org/lockstep/lockstep/test/lab/labtest"
)

// Real brokers are stopped (SIGSTOP) in 10 s of 1,000 messages per second, and continued (SIGCONT). S is the measured
// duration of the stop. It is about five seconds in confirm-window and one in confirm-each. Stamps in the driver's
// calls give the time c from SIGCONT until all overdue messages are confirmed and messages take 10 ms or less again.
// They also give the time w from SIGCONT until the broker confirms the first message, and the number of other messages
// that took longer (noise). c and w are in no bound: they are part of the truth.
func TestAccuracyOfStoppedBrokers(t *testing.T) {
	for _, b := range brokers {
		t.Run(b.driver, func(t *testing.T) {
			own := labtest.Own(t, b.part)
			b.url, b.process = own.Variable(b.variable), own.Process(1)
			t.Run("confirm-window", func(t *testing.T) { withoutNoise(t, b, "confirm-window").window(t) })
			t.Run("confirm-each", func(t *testing.T) { withoutNoise(t, b, "confirm-each").each(t) })
		})
	}
}

// stopped is a run in which the broker was stopped.
type stopped struct {
	measured
	truth    string
	messages []message
	s        float64 // duration in seconds
	resumed  int64   // time of SIGCONT, by the stamps' clock
	first    float64 // seconds from then until the first confirm
	catchUp  float64 // seconds from then until latencies are normal
	noise    float64 // messages over 10 ms for other reasons
	slow     float64 // those of them over S/4: they shift quantiles by as many ranks
	// seconds from then until a publisher has its pending confirm: mean, and maximum difference to it
	wake, uneven float64
}

// window checks the case in which four publishers continue to send while the broker is stopped. A message that is due x
// after the stop is confirmed S+w-x later, and a little more: the broker confirms the oldest messages first. The
// slowest 5 % of 10,000 messages, 500, are those due in the first 0.5 s. Hence, with T = S + w,
//
//	p95 = T - 0.5 s, p99 = T - 0.1 s, p99.9 = T - 0.01 s, max = T, and 1,000·(S+c) messages take longer than 10 ms,
//
// all within 5 % of S. A slow message of the noise shifts a quantile by one rank, which is 1 ms.
func (x stopped) window(t *testing.T) {
	x.stamped(t, x.truth, x.messages, apart(x.messages), fewRanks)
	for _, latency := range []struct {
		name   string
		series record.Series
	}{{"publish.intended", record.PublishIntended}, {"e2e", record.EndToEnd}} {
		check(t, row{truth: x.truth, value: "(" + latency.name + " over 10 ms)", want: 1000 * (x.s + x.catchUp),
			got:   slower(x.merge.Hist(latency.series), 10*ms),
			bound: 50*x.s + x.noise, unit: plan.Count})
		for _, q := range []struct {
			name string
			less float64
		}{{"p95", 0.5}, {"p99", 0.1}, {"p99.9", 0.01}, {"max", 0}} {
			name := latency.name + "." + q.name
			check(t, row{truth: x.truth, value: name, want: x.s + x.first - q.less, got: x.number(t, name),
				bound: 0.05*x.s + x.slow/1000, unit: plan.Seconds})
		}
	}
}

// each checks the case in which each of 4 publishers has one message in flight, and one is due every τ = 4 ms. When the
// broker continues, it needs a moment w to confirm the pending message of a publisher. Then the publisher sends its
// overdue messages one after the other. Each takes d. The stamps measure w and d. Message j of these was due j·τ after
// the stop and is confirmed w + (j+1)·d after its end, so its latency is
//
//	S + w - j·(τ-d) + d, which is above 10 ms for the first (S+w+d-10 ms)/(τ-d) messages of each publisher.
//
// The k slowest of all 10,000 messages are the first k/4 of each publisher. Their d is the mean over these. δ is the
// difference of d between the publishers. The bounds include it, and the differences of w.
func (x stopped) each(t *testing.T) {
	x.stamped(t, x.truth, x.messages, apart(x.messages), fewRanks)
	const publishers, every = 4, 0.004
	d, delta := x.hurry(math.MaxInt)
	if d+delta > 0.9*every {
		t.Fatalf("a confirm takes %.2f ms of the %v ms between two messages here: publishers do not catch up, and the formula is not of that", d*1000, every*1000)
	}
	number := func(d float64) float64 { return publishers * (x.s + x.wake + d - 0.01) / (every - d) }
	check(t, row{truth: x.truth, value: "(publish.intended over 10 ms)", want: number(d),
		got:   slower(x.merge.Hist(record.PublishIntended), 10*ms),
		bound: 50*x.s + 1000*x.uneven + (number(d+delta)-number(d-delta))/2 + x.noise, unit: plan.Count})
	for _, q := range []struct {
		name string
		k    float64
	}{{"p95", 500}, {"p99", 100}, {"p99.9", 10}, {"max", 0}} {
		name := "publish.intended." + q.name
		d, delta := x.hurry(int(q.k)/publishers + 1)
		check(t, row{truth: x.truth, value: name, want: x.s + x.wake - q.k/publishers*(every-d) + d,
			got:   x.number(t, name),
			bound: 0.02*x.s + x.uneven + q.k/publishers*delta + x.slow/1000, unit: plan.Seconds})
	}
	check(t, row{truth: x.truth, value: "publish.max", want: x.s + x.wake, got: x.number(t, "publish.max"),
		bound: 0.02*x.s + x.uneven + x.slow/1000, unit: plan.Seconds})
}

// hurry returns the mean confirm time, in seconds, of the first messages of each publisher after the stop, and its
// difference between the publishers.
func (x stopped) hurry(first int) (d, delta float64) {
	sums, counts := map[uint64]float64{}, map[uint64]float64{}
	for _, m := range x.messages {
		if m.accepted > x.resumed && m.accepted <= x.resumed+int64(x.catchUp*1e9) &&
			counts[m.publisher] < float64(first) {
			sums[m.publisher] += m.sendLatency().Seconds()
			counts[m.publisher]++
		}
	}
	low, high, n := math.Inf(1), 0.0, 0.0
	for p, sum := range sums {
		d, n = d+sum, n+counts[p]
		low, high = min(low, sum/counts[p]), max(high, sum/counts[p])
	}
	return d / n, high - low
}

func stopCell(mode, measure string) string {
	return fmt.Sprintf(`publishers: {rate: 1000, threads: 4, mode: %q, maxInFlight: 10_000}, consumers: {prefetch: 0, threads: 1}, warmup: "1s", measure: %q, drain: idle: "2s"`, mode, measure)
}

// withoutNoise runs the cell. It fails if too many messages are slow for other reasons. They are counted only before
// the stop and after the recovery, which no row uses.
func withoutNoise(t *testing.T, b broker, mode string) stopped {
	t.Helper()
	const maxNoise, maxSlow = 600, 5
	length := 5 * time.Second
	if mode == "confirm-each" { // publishers must catch up
		length = time.Second
	}
	x := stop(t, b, mode, length)
	if x.noise > maxNoise || x.slow > maxSlow {
		t.Fatalf("%v of 10,000 messages that had nothing to do with the stop took longer than 10 ms, and %v very long; want at most %v and %v: run it on an idle machine",
			x.noise, x.slow, maxNoise, maxSlow)
	}
	return x
}

// fewRanks is 5 of 10,000 messages.
const fewRanks = 0.0005

// slower returns the number of samples above a latency.
func slower(h *record.Hist, than time.Duration) float64 {
	n := int(h.Count())
	return float64(n - sort.Search(n, func(i int) bool { return h.Quantile(float64(i+1)/float64(n)) > int64(than) }))
}

// broker is a real broker of the lab.
type broker struct {
	driver   string
	part     string // of the lab
	variable string // that has its address
	options  string // with a placeholder for the address
	observed *observed

	url, process string // of an instance that no other test uses
}

var brokers = []broker{
	{driver: "rabbitmq", part: "rabbitmq", variable: "LOCKSTEP_RABBITMQ_URL", options: `{url: %q}`,
		observed: observe("rabbitmq")},
	{driver: "nats", part: "nats", variable: "LOCKSTEP_NATS_URL", options: `{urls: [%q]}`, observed: observe("nats")},
}

// stop runs a cell of 10 s and stops the broker for about this time of it.
func stop(t *testing.T, b broker, mode string, length time.Duration) (x stopped) {
	t.Helper()
	control, stamps := os.Getenv("LOCKSTEP_LAB_CONTROL"), newStamps()
	b.observed.stamps.Store(stamps)
	var stop, paused, resume, continued time.Time
	x.measured = program(t, matrix("observed-"+b.driver, fmt.Sprintf(b.options, b.url), stopCell(mode, "10s")),
		func(runs string) {
			if !awaitSnapshots(runs, 3) {
				t.Error("nothing was measured")
				return
			}
			stop, paused = ask(t, control, "pause", b.process)
			time.Sleep(length)
			resume, continued = ask(t, control, "resume", b.process)
		})
	x.s = (resume.Sub(paused) + continued.Sub(stop)).Seconds() / 2 // the signal was sent between request and response
	x.truth = fmt.Sprintf("%s stopped for %.4f s, %s", b.driver, x.s, mode)
	x.messages, x.resumed = stamps.measured(10*time.Second), int64(resume.Sub(stamps.began))
	if len(x.messages) == 0 {
		t.Fatalf("%s: no message was measured", x.truth)
	}
	x.fault(int64(stop.Sub(stamps.began)))
	t.Logf("%s: first confirm after %.1f ms, caught up after %.1f ms; %v other messages took longer than 10 ms, %v much longer",
		x.truth, x.first*1000, x.catchUp*1000, x.noise, x.slow)
	return x
}

// fault determines the recovery time of the broker and the number of other slow messages. began is the start of the
// stop by the stamps' clock.
func (x *stopped) fault(began int64) {
	const calm = 20 // consecutive messages of 10 ms or less
	took := func(m message) time.Duration { return max(m.sendDueLatency(), m.processingLatency()) }
	slices.SortFunc(x.messages, func(a, b message) int { return cmp.Compare(a.due, b.due) })
	caught, row := x.resumed, 0
	for _, m := range x.messages {
		switch {
		case m.due <= x.resumed:
			caught = max(caught, m.confirmed, m.delivered)
		case row < calm && took(m) > 10*ms:
			caught, row = max(caught, m.due), 0
		default:
			row++
		}
	}
	x.catchUp = float64(caught-x.resumed) / 1e9
	pending := map[uint64]float64{} // by publisher
	x.first = math.Inf(1)
	for _, m := range x.messages {
		if m.accepted < x.resumed && m.confirmed > x.resumed {
			x.first = min(x.first, float64(m.confirmed-x.resumed)/1e9)
			pending[m.publisher] = max(pending[m.publisher], float64(m.confirmed-x.resumed)/1e9)
		}
	}
	for _, w := range pending {
		x.wake += w / float64(len(pending))
	}
	for _, w := range pending {
		x.uneven = max(x.uneven, math.Abs(w-x.wake))
	}
	for _, m := range x.messages {
		if took(m) > 10*ms && (m.due < began || m.due > caught) {
			x.noise++
			if took(m).Seconds() > x.s/4 {
				x.slow++
			}
		}
	}
}

// RabbitMQ is stopped for D = 10 s, from about 1 s before the end of 10 s at 500 messages per second until after the
// end. Of the 5,000 messages, the slowest 1 %, 50, are due in the first 0.1 s of the stop, and are confirmed D - 0.1 s
// later. The p99 is within 5 % of that, and violates a rule. It is attributed to the broker: no flag and no warning
// names the publishers.
func TestAccuracyOfAStopAtTheEnd(t *testing.T) {
	b, stamps := brokers[0], newStamps()
	own := labtest.Own(t, b.part)
	control, name := os.Getenv("LOCKSTEP_LAB_CONTROL"), own.Process(1)
	b.observed.stamps.Store(stamps)
	var stop, paused, resume, continued time.Time
	m := programEnds(t, cli.ExitViolated, matrix("observed-"+b.driver, fmt.Sprintf(b.options, own.Variable(b.variable)),
		`publishers: {rate: 500, mode: "confirm-window", maxInFlight: 10_000}, consumers: prefetch: 0, warmup: "1s", `+
			`measure: "10s", drain: idle: "2s", require: ["publish.intended.p99 < 1s"]`),
		func(runs string) {
			if !awaitSnapshots(runs, 10) { // one of warm-up, nine of the measurement
				t.Error("nothing was measured")
				return
			}
			stop, paused = ask(t, control, "pause", name)
			time.Sleep(10 * time.Second)
			resume, continued = ask(t, control, "resume", name)
		})
	d := (resume.Sub(paused) + continued.Sub(stop)).Seconds() / 2
	messages, last := stamps.measured(10*time.Second), int64(0)
	for _, x := range messages {
		last = max(last, x.due)
	}
	before := time.Duration(last - int64(stop.Sub(stamps.began))).Seconds()
	if before < 0.2 || before > 3 {
		t.Fatalf("the broker was stopped %.2f s before the last message was due, want about 1 s", before)
	}
	truth := fmt.Sprintf("%s stopped for %.4f s from %.2f s before the end", b.driver, d, before)
	known := d - 0.1
	t.Logf("%s: the p99 of the stamps is %.3f s; %v reconnects", truth,
		quantile(sorted(messages, message.sendDueLatency), 0.99), m.Values["reconnects"].Number)
	check(t, row{truth: truth, value: "publish.intended.p99", want: known, got: m.number(t, "publish.intended.p99"),
		bound: 0.05 * known, unit: plan.Seconds})
	m.count(t, truth, "lost", 0)
	m.count(t, truth, "unsent", 0)
	m.flagged(t, truth, "publish.intended.p99", plan.ClientBound, false)
	m.warned(t, truth, string(plan.ClientBound), false)
	m.warned(t, truth, "publishers were late", false)
}

// awaitSnapshots waits until both agents have stored snapshots of this number of seconds.
func awaitSnapshots(runs string, seconds int) bool {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		files, _ := filepath.Glob(filepath.Join(runs, "*", "tasks", "*", "snapshots.jsonl"))
		for _, file := range files {
			if data, err := os.ReadFile(file); err == nil && bytes.Count(data, []byte("\n")) >= 2*seconds {
				return true
			}
		}
	}
	return false
}

// ask makes the lab act on a broker. It returns the times of the request and of the response.
func ask(t *testing.T, control, what, name string) (asked, done time.Time) {
	t.Helper()
	asked = time.Now()
	response, err := http.Post(control+"/"+what+"?name="+name, "", nil)
	if err != nil {
		t.Error(err)
		return asked, time.Now()
	}
	done = time.Now()
	defer response.Body.Close()
	if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
		t.Errorf("%s %s: %s", what, name, text)
	}
	return asked, done
}
