package accuracy

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/rules"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

const ms = time.Millisecond

// steady publishes 1,000 messages per second for 10 s with one publisher that never waits.
func steady(w *plan.Workload) { w.Publishers.Rate = 1000 }

// stratified returns n samples of a distribution, given by its inverse: n/1000 samples of each quantile (i+½)/1000.
func stratified(n int, inverse func(u float64) float64) []time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = time.Duration(math.Round(inverse((float64(i*1000/n) + 0.5) / 1000)))
	}
	return all
}

// Latencies agree with loopback's options, for several distributions. Confirm and delivery latencies are independent.
func TestDistributions(t *testing.T) {
	for _, x := range []struct {
		name, options string
		inverse       func(u float64) float64
	}{
		{"fixed 12.3 ms", `"12.3ms"`, func(float64) float64 { return 12.3e6 }},
		{"uniform 1–30 ms", `{"min":"1ms","max":"30ms"}`, func(u float64) float64 { return 1e6 + u*29e6 }},
		{"exponential, mean 10 ms", `{"mean":"10ms"}`, func(u float64) float64 { return -10e6 * math.Log(1-u) }},
		{"lognormal, median 5 ms, σ 1", `{"median":"5ms","sigma":1}`,
			func(u float64) float64 { return 5e6 * math.Exp(math.Sqrt2*math.Erfinv(2*u-1)) }},
		{"99 of 100 1 ms, one 700 ms", `{"values":[` + repeated(`"1ms"`, 99) + `,"700ms"]}`, func(u float64) float64 {
			if u > 0.99 {
				return 700e6
			}
			return 1e6
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			want := stratified(10_000, x.inverse)
			confirm := in(t, `{"confirmDelay":`+x.options+`}`, steady)
			confirm.quantiles(t, "confirm "+x.name, "publish", want)
			confirm.quantiles(t, "confirm "+x.name, "publish.intended", want)
			in(t, `{"delay":`+x.options+`}`, steady).quantiles(t, "delivery "+x.name, "e2e", want)
		})
	}
}

func repeated(text string, n int) string {
	all := text
	for range n - 1 {
		all += "," + text
	}
	return all
}

// A stall of the broker for one second affects every message that is due meanwhile: a message that is due k ms before
// its end waits k ms. Publishers below the maximum in flight continue to send, so publish latency shows the same.
func TestStallWindow(t *testing.T) {
	var want, received []time.Duration
	for i := range 10_000 {
		late := max(0, i-9000+1) // 9,000 messages do not wait; the others wait 1 ms, 2 ms, … 1,000 ms
		want = append(want, 3*ms+time.Duration(late)*ms)
		received = append(received, 5*ms+time.Duration(late)*ms)
	}
	truth := "stall of 1 s, confirm-window"
	m := in(t, `{"delay":"5ms","confirmDelay":"3ms","stalls":[{"at":"4s","for":"1s"}]}`, func(w *plan.Workload) {
		steady(w)
		w.Publishers.Threads = 4
	})
	m.quantiles(t, truth, "publish.intended", want)
	m.quantiles(t, truth, "publish", want)
	m.quantiles(t, truth, "e2e", received)
	m.quantiles(t, truth, "send_delay", make([]time.Duration, 10_000))
	m.count(t, truth, "lost", 0)
}

// lindley computes the latencies of one publisher with one message in flight, for all messages that are due before the
// end. A message is sent when it is due or when the previous one is confirmed, whichever is later.
func lindley(first, every, end time.Duration, confirm func(sent time.Duration) time.Duration) (send, due,
	blocked []time.Duration) {
	var free time.Duration = math.MinInt64
	for at := first; at < end; at += every {
		sent := max(at, free)
		free = confirm(sent)
		if at >= 0 {
			send, due, blocked = append(send, free-sent), append(due, free-at), append(blocked, sent-at)
		}
	}
	return send, due, blocked
}

// With one message in flight, a publisher cannot send while the broker stalls. Publish latency has one sample of the
// stall. Latency from the intended send time shows the whole stall. The wait counts as back-pressure, not as send
// delay.
func TestStallEach(t *testing.T) {
	const publishers, period = 4, 4 * ms
	var send, due, blocked []time.Duration
	for i := range publishers {
		s, d, b := lindley(-time.Second+time.Duration(i)*ms, period, 10*time.Second,
			func(sent time.Duration) time.Duration {
				if at := sent + 3*ms; at < 3*time.Second || at >= 4*time.Second {
					return at
				}
				return 4 * time.Second
			})
		send, due, blocked = append(send, s...), append(due, d...), append(blocked, b...)
	}
	slices.Sort(send)
	slices.Sort(due)
	slices.Sort(blocked)
	truth := "stall of 1 s, confirm-each"
	m := in(t, `{"confirmDelay":"3ms","stalls":[{"at":"4s","for":"1s"}]}`, func(w *plan.Workload) {
		steady(w)
		w.Publishers.Threads, w.Publishers.Mode = publishers, "confirm-each"
	})
	m.quantiles(t, truth, "publish", send)
	m.quantiles(t, truth, "publish.intended", due)
	m.quantiles(t, truth, "backpressure", blocked)
	m.quantiles(t, truth, "send_delay", make([]time.Duration, len(due)))
}

// With 200 samples, p95 is a number, because ten samples are above it. p99 and p99.9 are lower bounds, and below the
// quantiles of the distribution.
func TestTailsOfFewSamples(t *testing.T) {
	m := in(t, `{"confirmDelay":{"mean":"10ms"}}`, func(w *plan.Workload) { w.Publishers.Rate = 20 })
	for name, u := range map[string]float64{"publish.p95": 0, "publish.p99": 0.99, "publish.p99.9": 0.999} {
		v := m.Values[name]
		if bound := u > 0; v.Over > 0 != bound || bound && (v.Number <= 0 || v.Number > -0.010*math.Log(1-u)) {
			t.Errorf("%s is %+v, want a bound: %v", name, v, bound)
		}
	}
}

// With Poisson arrivals, the times between sends are exponential. The bound for 10,000 samples is the
// Kolmogorov–Smirnov distance 2.1/√n, which one in 2,500 samples exceeds. The seed is fixed, so the sample is always
// the same.
func TestPoisson(t *testing.T) {
	var at []time.Time
	defer loopback.Tap("default", func(s loopback.Stamp) {
		if s.Kind == loopback.Accepted {
			at = append(at, s.At)
		}
	})()
	in(t, `{}`, func(w *plan.Workload) { w.Publishers.Rate, w.Publishers.Arrivals = 1000, plan.ArrivalsPoisson })
	gaps := make([]time.Duration, len(at)-1)
	for i := range gaps {
		gaps[i] = at[i+1].Sub(at[i])
	}
	slices.Sort(gaps)
	n := float64(len(gaps))
	truth := "Poisson arrivals, 1,000/s for 11 s"
	check(t, row{truth: truth, value: "(messages)", want: 11_000, got: n + 1, bound: 3.5 * math.Sqrt(11_000)})
	distance := 0.0
	for i, g := range gaps {
		f := 1 - math.Exp(-g.Seconds()*1000)
		distance = max(distance, math.Abs(f-float64(i)/n), math.Abs(f-float64(i+1)/n))
	}
	check(t, row{truth: truth, value: "(distance to exponential)", want: 0, got: distance, bound: 2.1 / math.Sqrt(n)})
}

// A broker stalls for 3 s shortly before the end of the measurement. The messages that are due are sent after the
// stall, and all of them are in the latencies. The wait is attributed to the broker. The warning needs a rate that is
// more than 2 % too low. That of the two short stalls is less.
func TestStallAtTheEnd(t *testing.T) {
	const publishers = 4
	for _, before := range []time.Duration{100 * ms, 190 * ms, time.Second, 5 * time.Second} {
		var due []time.Duration
		from := 10*time.Second - before
		for i := range publishers {
			_, d, _ := lindley(-time.Second+time.Duration(i)*ms, publishers*ms, 10*time.Second,
				func(sent time.Duration) time.Duration {
					if at := sent + 3*ms; at < from || at >= from+3*time.Second {
						return at
					}
					return from + 3*time.Second
				})
			due = append(due, d...)
		}
		slices.Sort(due)
		truth := fmt.Sprintf("stall of 3 s from %v before the end", before)
		m := in(t, fmt.Sprintf(`{"confirmDelay":"3ms","stalls":[{"at":%q,"for":"3s"}]}`, time.Second+from),
			func(w *plan.Workload) {
				steady(w)
				w.Publishers.Threads, w.Publishers.Mode = publishers, "confirm-each"
			})
		m.quantiles(t, truth, "publish.intended", due)
		m.count(t, truth, "unsent", 0)
		m.count(t, truth, "lost", 0)
		m.flagged(t, truth, "publish.intended.p99", plan.ClientBound, false)
		m.warned(t, truth, "publishers waited for the broker", before >= time.Second)
	}
}

// A stall of 3 s in the last second is in the default table, also of a terminal of 80 columns. The latency from the
// publish call does not show it: publishers call again only after the stall.
func TestStallInTheDefaultTable(t *testing.T) {
	truth := "400/s, stall of 3 s from 1 s before the end, no consumers"
	m := in(t, `{"confirmDelay":"3ms","stalls":[{"at":"10s","for":"3s"}]}`, func(w *plan.Workload) {
		w.Publishers.Threads, w.Publishers.Mode, w.Publishers.Rate, w.Consumers.Nodes = 4, "confirm-each", 400, 0
	})
	cell := plan.Cell{ID: "truth", Workload: m.work,
		Coordinates: []plan.Coordinate{{Axis: "mode", Value: json.RawMessage(`"connection-per-message-confirm"`)}}}
	run := plan.Run{ID: "truth", Name: "truth", Repeat: 1, Axes: []string{"mode"}, Cells: []plan.Cell{cell}}
	run.Tables = []plan.Table{{Rows: run.Axes, Values: plan.DefaultValues(run.Cells)}}
	outcomes := []plan.Outcome{m.Outcome}
	tables := report.Build(run, outcomes)
	var text strings.Builder
	if err := report.Results(&text, run, outcomes, tables, 80); err != nil {
		t.Fatal(err)
	}
	at := slices.Index(tables[0].Head, "Publish intended p99")
	if at < 0 || strings.Contains(text.String(), "columns that need a wider terminal: Publish intended") {
		t.Fatalf("got the columns %q and\n%s, want Publish intended p99", tables[0].Head, text.String())
	}
	// 400 of 4,000 messages wait. The 40th longest wait begins 0.1 s after the beginning of the stall.
	if got := tables[0].Rows[0][at].Number; got == nil || *got < 2.9 || *got > 2.98 {
		t.Errorf("%s: got %v, want 2.9 s to 2.98 s", truth, got)
	}
	check(t, row{truth: truth, value: "(publish.p99 below 20 ms)", want: 1,
		got: map[bool]float64{true: 1}[m.number(t, "publish.p99") < 0.02]})
}

// The publish rate is four times the broker's limit with one message in flight. The waits count as back-pressure, not
// as send delay, and the cell is not client-bound. All messages are sent in the drain, and wait for up to half a
// minute.
func TestBlockedIsNotLate(t *testing.T) {
	send, due, blocked := lindley(0, 2500*time.Microsecond, 10*time.Second,
		func(sent time.Duration) time.Duration { return sent + 10*ms })
	slices.Sort(due)
	slices.Sort(blocked)
	truth := "confirms take 10 ms, 400/s asked for, confirm-each"
	m := in(t, `{"confirmDelay":"10ms"}`, func(w *plan.Workload) {
		w.Publishers.Rate, w.Publishers.Mode, w.Warmup = 400, "confirm-each", 0
	})
	m.quantiles(t, truth, "publish", send)
	m.quantiles(t, truth, "publish.intended", due)
	m.quantiles(t, truth, "backpressure", blocked)
	m.quantiles(t, truth, "send_delay", make([]time.Duration, len(due)))
	check(t, row{truth: truth, value: "publish.rate", want: 100, got: m.number(t, "publish.rate")})
	m.count(t, truth, "unsent", 0)
	bound := 0.0
	for _, f := range m.Values["publish.rate"].Flags {
		if f == plan.ClientBound {
			bound = 1
		}
	}
	check(t, row{truth: truth, value: "(client-bound)", want: 0, got: bound})
}

// For messages that are unsent at the end of the drain, only the age is known. Quantiles among them are lower bounds,
// and rules are evaluated with the bound.
func TestUnsentAtTheEndOfTheDrain(t *testing.T) {
	// Message n is due at 2.5n ms and sent at 10n ms. Message 1,500 is in flight at the end of the drain, at 15,005 ms.
	// It is confirmed when the link is closed.
	var due []time.Duration
	for n := range 4000 {
		at := time.Duration(n) * 2500 * time.Microsecond
		if sent := time.Duration(n) * 10 * ms; n <= 1500 {
			due = append(due, sent+10*ms-at)
		} else {
			due = append(due, 15_005*ms-at)
		}
	}
	slices.Sort(due)
	truth := "the same with a drain of at most 5 s"
	m := in(t, `{"confirmDelay":"10ms"}`, func(w *plan.Workload) {
		w.Publishers.Rate, w.Publishers.Mode, w.Warmup, w.Drain.Timeout = 400, "confirm-each", 0, plan.Duration(5005*ms)
	})
	m.quantiles(t, truth, "publish.intended", due)
	m.count(t, truth, "unsent", 2499)
	for rule, want := range map[string]bool{"publish.intended.p99 < 50ms": false, "publish.intended.p50 < 20s": false,
		"publish.intended.p50 > 1s": true, "unsent == 0": false} {
		condition, err := rules.ParseCondition(rule, m.work, nil)
		if err != nil {
			t.Fatal(err)
		}
		if holds, why := condition.Holds(m.Values); holds != want {
			t.Errorf("%s: %v: %s", rule, holds, why)
		}
	}
	if v := m.Values["publish.intended.p50"]; v.Over != 2499 {
		t.Errorf("the median is %+v, want a bound by 2,499 messages", v)
	}
}

// Of 200 messages, 3 are still at the broker when the drain times out after 20 s. They count as end-to-end latencies of
// at least 20 s, and rules are evaluated with that bound.
func TestUndeliveredAtTheEndOfTheDrain(t *testing.T) {
	truth := "3 of 200 not delivered within the drain of 20 s"
	task := taskOf(func(w *plan.Workload) {
		steady(w)
		w.Drain.Timeout = plan.Duration(20 * time.Second)
	})
	m := judgedBy(task, judge.Facts{DrainCut: true}, play(t, "loopback",
		`{"delay":{"values":[`+repeated(`"10ms"`, 197)+`,"1h","1h","1h"]}}`, whole(task)))
	m.count(t, truth, "undrained", 165)
	check(t, row{truth: truth, value: "e2e.p95", want: 0.01, got: m.number(t, "e2e.p95"), bound: bucket(0.01),
		unit: plan.Seconds})
	check(t, row{truth: truth, value: "e2e.p99", want: 20, got: m.number(t, "e2e.p99"), bound: bucket(20),
		unit: plan.Seconds})
	check(t, row{truth: truth, value: "(messages that bound e2e.p99)", want: 150,
		got: float64(m.Values["e2e.p99"].Over), unit: plan.Count})
	condition, err := rules.ParseCondition("e2e.p99 < 2s", m.work, nil)
	if err != nil {
		t.Fatal(err)
	}
	if holds, why := condition.Holds(m.Values); holds {
		t.Errorf("e2e.p99 < 2s holds: %s", why)
	}
}

// A closed loop reaches the broker's rate limit exactly, in every second. With a higher publish rate, the limit shows
// in the latency from the intended send time.
func TestRateLimit(t *testing.T) {
	options := `{"rate":20000,"burst":1}`
	m := in(t, options, func(w *plan.Workload) { w.Publishers.Threads, w.Measure = 4, plan.Duration(5*time.Second) })
	truth := "limit of 20,000/s, closed loop"
	for _, name := range []string{"publish.rate", "confirm.rate", "consume.rate"} {
		check(t, row{truth: truth, value: name, want: 20_000, got: m.number(t, name)})
	}
	for second := range 5 {
		sent := float64(m.merge.Sum(record.Sent, second, second+1))
		check(t, row{truth: truth, value: fmt.Sprintf("(sent in second %d)", second+1), want: 20_000, got: sent})
	}
	// Message n is due at 40n µs and accepted at 50n µs. 25,000 of the messages that are due in 5 s are accepted later.
	var want []time.Duration
	for n := range 125_000 {
		want = append(want, time.Duration(n)*10*time.Microsecond)
	}
	m = in(t, options, func(w *plan.Workload) {
		w.Publishers.Rate, w.Measure, w.Warmup = 25_000, plan.Duration(5*time.Second), 0
	})
	m.quantiles(t, "limit of 20,000/s, 25,000/s asked for", "publish.intended", want)
}

// Every lost, duplicated, reordered or rejected message is counted, and no other.
func TestCounts(t *testing.T) {
	for _, x := range []struct {
		truth, options, value string
		want                  float64
	}{
		{"every 1,000th lost", `{"lose":1000}`, "lost", 22},
		{"every 500th delivered twice", `{"duplicate":500}`, "duplicated", 44},
		{"3 pairs of each publisher swapped", `{"swap":[10,700,4094]}`, "reordered", 6},
		{"every 100th refused", `{"reject":100}`, "rejected", 220},
		{"nothing wrong", `{}`, "lost", 0},
	} {
		m := in(t, x.options, func(w *plan.Workload) {
			w.Publishers.Rate, w.Publishers.Threads = 2000, 2
		})
		m.count(t, x.truth, "sent", 22_000)
		for _, value := range []string{"lost", "duplicated", "reordered", "rejected"} {
			if value == x.value {
				m.count(t, x.truth, value, x.want)
			} else if got := m.number(t, value); got != 0 {
				t.Errorf("%s: %s is %v, want 0", x.truth, value, got)
			}
		}
	}
}

// Rates count only the first delivery of a message, in messages and in bytes.
func TestRatesLeaveOutDuplicates(t *testing.T) {
	truth := "every 2nd delivered twice, 1,000/s of 200 bytes"
	m := in(t, `{"duplicate":2}`, func(w *plan.Workload) {
		steady(w)
		w.Message.Size = 200
	})
	check(t, row{truth: truth, value: "consume.rate", want: 1000, got: m.number(t, "consume.rate")})
	check(t, row{truth: truth, value: "consume.bytes", want: 200_000, got: m.number(t, "consume.bytes")})
	m.count(t, truth, "duplicated", 5500)
}
