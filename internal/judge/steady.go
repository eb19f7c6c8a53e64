package judge

import (
	"fmt"
	"math"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/stats"
)

// When a load is called steady. See NotSteady.
const (
	// minSteady is how many seconds a steady part has at least: the error of a slope through five points has three
	// degrees of freedom, and is taken 3.2 times (Student's t at 97.5 %); through four it would be 4.3 times, through
	// three 12.7 times, and of many 2.0 times.
	minSteady   = 5
	horizon     = 10.0 // seconds over which a trend is told: the default measurement
	rateTrend   = 0.05 // most that a rate may change in that time, of its level
	rateSpread  = 0.20 // most coefficient of variation of its seconds
	delayTrend  = 0.10 // the same of the median latency, which other programs on the host disturb more
	delaySpread = 0.40
	oneSide     = 0.025 // probability of error of each of two one-sided tests
	// few is how many events a second are too few to show how steady their rate is, second by second; see NotSteady.
	few = 30.0
)

// Second is what a load did in one second, on all agents together.
type Second struct {
	Sent, Received float64
	Latency        float64 // median, seconds: publish call to confirm or, where there are no confirms, processing
	Samples        float64 // that it is the median of
}

// NotSteady is why a load is not steady at the end of these seconds, which are all since it began, the last one whole;
// empty if it is. It is pure.
//
// Of the rates of sending and receiving, and of the median latency, each by itself, the beginning is cut where MSER
// puts it: so that the standard error of the mean of the rest is least (White, An effective truncation heuristic for
// bias reduction in simulation output, 1997). The rest, at least five seconds, is steady when
//
//   - it has no trend: the slope of the least-squares line through it is shown to be less than the limit, rather than
//     not shown to be more, by two one-sided tests at 2.5 % (Schuirmann, 1987). What is noisy has to be watched for
//     longer before that can be shown: with a noise of 10 %, for about half a minute.
//   - it varies little: its coefficient of variation is below a limit (as Georges, Buytaert and Eeckhout have it,
//     Statistically rigorous Java performance evaluation, 2007).
//
// Of fewer than 30 messages a second neither can be shown, as counting them is too coarse. There the rest must have 30
// messages, no trend that shows, and no more variation than counting brings.
func NotSteady(seconds []Second, confirmed, received bool) (why string) {
	for _, q := range quantities(seconds, confirmed, received) {
		if why := q.notSteady(); why != "" {
			return why
		}
	}
	return ""
}

// quantity is one metric of a load over time.
type quantity struct {
	name          string
	x, y          []float64 // second, and metric in it
	n             []float64 // events that it is made of
	trend, spread float64   // limits
}

// quantities are those of a load that are tested: the rates of sending and receiving, and the median latency.
func quantities(seconds []Second, confirmed, received bool) []quantity {
	column := func(f func(Second) (float64, bool)) (x, y []float64) {
		for i, s := range seconds {
			if v, is := f(s); is {
				x, y = append(x, float64(i)), append(y, v)
			}
		}
		return x, y
	}
	send := quantity{name: "publish rate", trend: rateTrend, spread: rateSpread}
	send.x, send.y = column(func(s Second) (float64, bool) { return s.Sent, true })
	send.n = send.y
	all := []quantity{send}
	if received {
		receive := quantity{name: "consume rate", trend: rateTrend, spread: rateSpread}
		receive.x, receive.y = column(func(s Second) (float64, bool) { return s.Received, true })
		receive.n = receive.y
		all = append(all, receive)
	}
	if confirmed || received {
		delay := quantity{name: "median of end-to-end latency", trend: delayTrend, spread: delaySpread}
		if confirmed {
			delay.name = "median of publish latency"
		}
		delay.x, delay.y = column(func(s Second) (float64, bool) { return s.Latency, s.Samples > 0 })
		_, delay.n = column(func(s Second) (float64, bool) { return s.Samples, s.Samples > 0 })
		if confirmed || len(delay.y) > 0 { // nothing is received, as where consumers join later: that does not change
			all = append(all, delay)
		}
	}
	return all
}

// notSteady is why the quantity is not steady; empty if it is.
func (q quantity) notSteady() string {
	if len(q.y) < minSteady {
		return fmt.Sprintf("%s: known of %d seconds only", q.name, len(q.y))
	}
	from := truncate(q.y)
	l := fit(q.x[from:], q.y[from:])
	events := stats.Mean(q.n[from:])
	switch {
	case l.level == 0 && q.name == "publish rate":
		return "nothing was sent"
	case l.level == 0: // nothing is received: that does not change
		return ""
	case events < few && events*float64(l.n) < few:
		return fmt.Sprintf("%s: %.0f messages in %d s say too little", q.name, events*float64(l.n), l.n)
	}
	limit, doubt := q.trend/horizon*l.level, l.uncertainty(oneSide)
	slack, counting := -doubt, 0.0
	if events < few {
		slack, counting = doubt, 1/events
	}
	part := 100 * float64(l.n) / l.level
	switch {
	case math.Abs(l.slope) > limit+slack:
		return fmt.Sprintf("%s changed by %+.0f %% ± %.0f in the last %d s of warm-up: at most %.0f %% in %.0f s was to be shown",
			q.name, part*l.slope, part*doubt, l.n, 100*q.trend, horizon)
	case l.deviation/l.level > math.Sqrt(q.spread*q.spread+2*counting):
		return fmt.Sprintf("%s varied by %.0f %% (coefficient of variation) in the last %d s of warm-up",
			q.name, 100*l.deviation/l.level, l.n)
	}
	return ""
}

// drift is by which part of its level a quantity moved over all its seconds, if it is shown that it moved by more than
// the limits of NotSteady: the interval of the slope, with this probability of error to either side, lies beyond them.
func (q quantity) drift(falsely float64) (part float64, shown bool) {
	if len(q.y) < minSteady {
		return 0, false
	}
	l := fit(q.x, q.y)
	return l.slope * float64(l.n) / l.level, math.Abs(l.slope)-l.uncertainty(falsely) > q.trend/horizon*l.level
}

// truncate is where MSER cuts a series: the start of the rest whose mean has the least standard error.
func truncate(y []float64) int {
	var n, sum, squares float64
	best, cut := math.Inf(1), len(y)-minSteady
	centre := y[len(y)-1] // sums about a value of the series lose no digits to its level
	for i := len(y) - 1; i >= 0; i-- {
		d := y[i] - centre
		n, sum, squares = n+1, sum+d, squares+d*d
		if int(n) < minSteady {
			continue
		}
		if e := max(0, squares-sum*sum/n) / (n * n); e <= best {
			best, cut = e, i
		}
	}
	return cut
}

// line is the least-squares line through a series.
type line struct {
	n                       int
	level, slope, deviation float64 // mean; per second; standard deviation about the mean
	err                     float64 // standard error of slope; not known of fewer than three points
	xx                      float64 // sum of the squares of x about its mean
}

func fit(x, y []float64) line {
	l := line{n: len(y), level: stats.Mean(y)}
	at := stats.Mean(x)
	var xy, yy float64
	for i := range y {
		dx, dy := x[i]-at, y[i]-l.level
		l.xx, xy, yy = l.xx+dx*dx, xy+dx*dy, yy+dy*dy
	}
	l.slope = xy / l.xx
	l.deviation = math.Sqrt(yy / float64(l.n-1))
	l.err = math.Sqrt(max(0, yy-l.slope*xy) / float64(l.n-2) / l.xx)
	return l
}

// uncertainty is by how much the slope may be wrong to one side, with the probability that it is more. The slope's
// interval is as far either way.
func (l line) uncertainty(more float64) float64 {
	return l.err * stats.StudentQuantile(1-more, float64(l.n-2))
}

// LoadSamples is what a load did in each second from T0 to until, for NotSteady.
func LoadSamples(m *record.Merged, confirmed bool, until time.Duration) []Second {
	list := make([]Second, max(0, int(until/time.Second)))
	hists := make([]*record.Hist, len(list))
	series := record.EndToEnd
	if confirmed {
		series = record.Publish
	}
	m.Range(func(w *record.Window) {
		if w.Index < 0 || w.Index >= len(list) {
			return
		}
		s := &list[w.Index]
		s.Sent += float64(w.Counts[record.Sent])
		s.Received += float64(w.Counts[record.Received])
		if h := w.Hists[series]; h != nil {
			if hists[w.Index] == nil {
				hists[w.Index] = record.NewHist()
			}
			hists[w.Index].Merge(h)
		}
	})
	for i, h := range hists {
		if h != nil && h.Count() > 0 {
			list[i].Latency, list[i].Samples = time.Duration(h.Quantile(0.5)).Seconds(), float64(h.Count())
		}
	}
	return list
}

// Cut is how much of a load came before the measurement where that was found out while it ran (warmup: "auto"): all of
// it, if there was no measurement. A record is judged after it is rebased to it.
func Cut(w plan.Workload, m *record.Merged) time.Duration {
	if !w.Steady.Auto {
		return 0
	}
	if begin := m.Begin(); begin > 0 {
		return begin
	}
	return m.End()
}

// drift is by which part of its level a quantity moved in the measurement.
type drift struct {
	name    string
	part    float64
	seconds int
}

// driftsOf are the rates and the median latency that moved in a measurement of at least five seconds, though nothing of
// the cell makes them: no profile, no faults, and no client that connects or disconnects.
func driftsOf(in *input) (drifts []drift) {
	p, c := in.workload.Publishers, in.workload.Consumers
	if len(p.Profile) > 0 || len(in.workload.Faults) > 0 || p.Lifetime != (plan.Lifetime{}) ||
		c.Lifetime != (plan.Lifetime{}) {
		return nil
	}
	confirmed := Confirmed(p.Mode)
	load := LoadSamples(in.record, confirmed, min(time.Duration(in.overlap.to)*time.Second, in.span.sending))
	all := quantities(load[min(in.overlap.from, len(load)):], confirmed, in.subscriptions > 0)
	for _, q := range all {
		if part, shown := q.drift(falseFlags / float64(2*len(all))); shown {
			drifts = append(drifts, drift{q.name, part, len(q.y)})
		}
	}
	return drifts
}
