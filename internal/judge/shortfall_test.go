package judge

import (
	"strings"
	"testing"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

func warned(t *testing.T, o plan.Outcome, want bool, parts ...string) {
	t.Helper()
	all := strings.Join(o.Warnings, "\n")
	for _, p := range parts {
		if strings.Contains(all, p) != want {
			t.Errorf("warnings %q contain %q: %v, want %v", o.Warnings, p, !want, want)
		}
	}
}

func TestMissingConfirmsAreTold(t *testing.T) {
	x := newWorld(nil)
	x.steady(1000, atOnce)
	warned(t, x.judge(), false, "never confirmed")
	for range 3 { // sent, and nothing heard of it
		x.set(record.SetSent, 0).Add(x.next)
		x.set(record.SetReceived, 0).Add(x.next)
		x.next++
	}
	warned(t, x.judge(), true, "3 of 11003 messages were never confirmed")
}

// TestARateThatWasNotReached tells what was sent instead, and whether broker or generator was the reason.
func TestARateThatWasNotReached(t *testing.T) {
	asking := func(rate float64) *world {
		x := newWorld(func(w *plan.Workload) { w.Publishers.Rate = rate })
		x.steady(500, atOnce)
		return x
	}
	for rate, want := range map[float64]bool{500: false, 505: false, 520: true, 1000: true} {
		warned(t, asking(rate).judge(), want, "asked for")
	}
	x := asking(1000)
	x.sample(record.Blocked, 2*time.Second)
	x.sample(record.Lateness, time.Microsecond)
	x.count(0, record.Unsent, 5000)
	o := x.judge()
	warned(t, o, true, "asked for 1,000/s, sent 500/s: publishers waited for the broker (blocked p99 2", "messages due and never sent: 5000")
	verdict(t, o, plan.Valid, "")

	x = asking(1000)
	x.sample(record.Lateness, 2*time.Second)
	o = x.judge()
	warned(t, o, true, "asked for 1,000/s, sent 500/s: client-bound (lateness p99 2")
	warned(t, o, false, "publishers waited")

	for name, end := range map[string]func(*Facts){"failed": func(f *Facts) { f.Failure = "no broker" }, "stopped": func(f *Facts) { f.Cancelled = true }} {
		x = asking(1000)
		end(&x.facts)
		if o = x.judge(); strings.Contains(strings.Join(o.Warnings, "\n"), "asked for") {
			t.Errorf("of a task that %s: %q", name, o.Warnings)
		}
	}

	closed := newWorld(nil)
	closed.steady(500, atOnce)
	warned(t, closed.judge(), false, "asked for")
}

// TestByCountTheRateIsOfTheTimeOfSending: the wait for the last confirm is not time in which something was due.
func TestByCountTheRateIsOfTheTimeOfSending(t *testing.T) {
	x := newWorld(func(w *plan.Workload) { w.Publishers.Rate, w.Publishers.Count, w.Warmup = 100, 100, 0 })
	for i := range 100 {
		at := time.Duration(i) * 10 * time.Millisecond
		x.receive(x.send(at), 0, at+time.Millisecond)
	}
	x.last.LastConfirm = int64(2 * time.Second)
	warned(t, x.judge(), false, "asked for")
}

// TestByCountPoissonPublishersEndApart: each of 100 has its count of 100 by accident earlier or later, and the last of them 20 % later than on average.
func TestByCountPoissonPublishersEndApart(t *testing.T) {
	for last, short := range map[time.Duration]bool{1200 * time.Millisecond: false, 2 * time.Second: true} {
		x := newWorld(func(w *plan.Workload) {
			w.Publishers.Threads, w.Publishers.Count, w.Publishers.Rate, w.Publishers.Arrivals, w.Warmup = 100, 100, 10_000, plan.ArrivalsPoisson, 0
		})
		x.count(0, record.Sent, 10_000)
		x.last.LastSend, x.last.LastConfirm = int64(last), int64(last)
		warned(t, x.judge(), short, "asked for")
	}
}

func TestNumbersForPeople(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 19.46: "19.5", 100: "100", 999.6: "1,000", 1234567: "1,234,567"} {
		if got := grouped(x); got != want {
			t.Errorf("%v reads %q, want %q", x, got, want)
		}
	}
	for ns, want := range map[int64]string{0: "below 1µs", 999: "below 1µs", 1234: "1.234µs", 12345: "12.35µs", 9876543210: "9.877s"} {
		if got := roughly(ns); got != want {
			t.Errorf("%d ns read %q, want %q", ns, got, want)
		}
	}
}
