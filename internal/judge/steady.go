package judge

import (
	"fmt"
	"math"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/stats"
)

// Thresholds of a steady load. See NotSteady.
const (
	// minSteady is the minimum number of seconds of a steady part. The error of a slope through five points has three
	// degrees of freedom. Its factor is 3.2 (Student's t at 97.5 %). It would be 4.3 with four points and 12.7 with
	// three; with many it is 2.0.
	minSteady   = 5
	horizon     = 10.0 // seconds to which a trend refers: the default measurement
	rateTrend   = 0.05 // maximum change of a rate in that time, relative to its level
	rateSpread  = 0.20 // maximum coefficient of variation of its seconds
	delayTrend  = 0.10 // the same for the median latency, which other programs on the host affect more
	delaySpread = 0.40
	oneSide     = 0.025 // error probability of each of two one-sided tests
	// few is the number of events per second below which their rate cannot be tested second by second; see NotSteady.
	few = 30.0
)

// Second describes a load in one second, on all agents together.
type Second struct {
	Sent, Received float64
	Latency        float64 // median, seconds: publish call to confirm, or end-to-end if there are no confirms
	Samples        float64 // number of samples of the median
}

// NotSteady returns why a load is not steady at the end of these seconds; empty if it is. seconds begin with the load,
// and the last one must be complete. It is a pure function.
//
// It tests the publish rate, the consume rate, and the median latency separately. The beginning of each series is cut
// off by MSER: the mean of the remaining part has the smallest standard error. Source: White, An effective truncation
// heuristic for bias reduction in simulation output, 1997. The remaining part has at least five seconds. It is steady
// if both hold:
//
//   - It has no trend: two one-sided tests at 2.5 % show that the slope of its least-squares line is below the limit
//     (Schuirmann, 1987). Absence of evidence for a trend is not enough. With a noise of 10 % this takes about half a
//     minute.
//   - Its coefficient of variation is below a limit (Georges, Buytaert and Eeckhout, Statistically rigorous Java
//     performance evaluation, 2007).
//
// Below 30 messages per second counting is too coarse for these tests. Then the remaining part must have 30 messages,
// no significant trend, and no more variation than counting causes.
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
	x, y          []float64 // second, and metric in that second
	n             []float64 // number of events of each metric
	trend, spread float64   // limits
}

// quantities returns the tested quantities of a load: publish rate, consume rate, and median latency.
func quantities(seconds []Second, confirmed, received bool) []quantity {
	quantityOf := func(name string, trend, spread float64, of func(Second) (y, n float64, known bool)) quantity {
		q := quantity{name: name, trend: trend, spread: spread}
		for i, s := range seconds {
			if y, n, known := of(s); known {
				q.x, q.y, q.n = append(q.x, float64(i)), append(q.y, y), append(q.n, n)
			}
		}
		return q
	}
	all := []quantity{quantityOf("publish rate", rateTrend, rateSpread,
		func(s Second) (float64, float64, bool) { return s.Sent, s.Sent, true })}
	if received {
		all = append(all, quantityOf("consume rate", rateTrend, rateSpread,
			func(s Second) (float64, float64, bool) { return s.Received, s.Received, true }))
	}
	if confirmed || received {
		name := "median of end-to-end latency"
		if confirmed {
			name = "median of publish latency"
		}
		delay := quantityOf(name, delayTrend, delaySpread,
			func(s Second) (float64, float64, bool) { return s.Latency, s.Samples, s.Samples > 0 })
		if confirmed || len(delay.y) > 0 { // no delivery, for example because consumers connect later: not a change
			all = append(all, delay)
		}
	}
	return all
}

// notSteady returns why the quantity is not steady; empty if it is.
func (q quantity) notSteady() string {
	if len(q.y) < minSteady {
		return fmt.Sprintf("%s: known for only %d seconds", q.name, len(q.y))
	}
	from := truncate(q.y)
	l := fit(q.x[from:], q.y[from:])
	events := stats.Mean(q.n[from:])
	switch {
	case l.level == 0 && q.name == "publish rate":
		return "nothing was sent"
	case l.level == 0: // no delivery: not a change
		return ""
	case events < few && events*float64(l.n) < few:
		return fmt.Sprintf("%s: %.0f messages in %d s are too few", q.name, events*float64(l.n), l.n)
	}
	limit, uncertainty := q.trend/horizon*l.level, l.uncertainty(oneSide)
	slack, counting := -uncertainty, 0.0
	if events < few {
		slack, counting = uncertainty, 1/events
	}
	part := 100 * float64(l.n) / l.level
	switch {
	case math.Abs(l.slope) > limit+slack:
		return fmt.Sprintf("%s changed by %+.0f %% ± %.0f in the last %d s of warm-up, and the limit is %.0f %% in %.0f s",
			q.name, part*l.slope, part*uncertainty, l.n, 100*q.trend, horizon)
	case l.deviation/l.level > math.Sqrt(q.spread*q.spread+2*counting):
		return fmt.Sprintf("%s varied by %.0f %% (coefficient of variation) in the last %d s of warm-up",
			q.name, 100*l.deviation/l.level, l.n)
	}
	return ""
}

// drift returns the change of a quantity over all its seconds, as a fraction of its level. shown is true if the
// confidence interval of that change lies beyond the limits of NotSteady. Below ten seconds, the limits apply to the
// change in ten seconds at the same slope. falsely is the error probability on each side.
func (q quantity) drift(falsely float64) (part float64, shown bool) {
	if len(q.y) < minSteady {
		return 0, false
	}
	l := fit(q.x, q.y)
	seconds := max(horizon, float64(l.n))
	return l.slope * float64(l.n) / l.level, (math.Abs(l.slope)-l.uncertainty(falsely))*seconds > q.trend*l.level
}

// truncate returns the index where MSER cuts a series: the remaining mean has the smallest standard error.
func truncate(y []float64) int {
	var n, sum, squares float64
	best, cut := math.Inf(1), len(y)-minSteady
	centre := y[len(y)-1] // differences to a value of the series keep precision at any level
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
	level, slope, deviation float64 // mean; per second; standard deviation around the mean
	err                     float64 // standard error of slope; not defined below three points
	xx                      float64 // sum of squared differences of x to its mean
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

// uncertainty returns the one-sided half-width of the slope's confidence interval. more is the probability that the
// error is larger.
func (l line) uncertainty(more float64) float64 {
	return l.err * stats.StudentQuantile(1-more, float64(l.n-2))
}

// LoadSamples returns the load in each second from T0 to until, as input of NotSteady.
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
		s.Received += float64(w.Counts[record.Unique])
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

// Cut returns the duration of the load before the measurement with warm-up "auto". It is the whole load if there was no
// measurement. The record must be rebased to it before it is judged.
func Cut(w plan.Workload, m *record.Merged) time.Duration {
	if !w.Steady.Auto {
		return 0
	}
	if begin := m.Begin(); begin > 0 {
		return begin
	}
	return m.End()
}

// drift is the change of a quantity in the measurement, as a fraction of its level.
type drift struct {
	name    string
	part    float64
	seconds int
}

// driftsOf returns the rates and the median latency that changed in the measurement. It returns none for cells in which
// changes are intended: profiles, faults, and clients that connect or disconnect.
func driftsOf(in *input) (drifts []drift) {
	p, c := in.workload.Publishers, in.workload.Consumers
	if len(p.Profile) > 0 || len(in.workload.Faults) > 0 || p.Lifetime != (plan.Lifetime{}) ||
		c.Lifetime != (plan.Lifetime{}) {
		return nil
	}
	confirmed := p.Confirmed()
	load := LoadSamples(in.record, confirmed, min(time.Duration(in.overlap.to)*time.Second, in.span.sending))
	all := quantities(load[min(in.overlap.from, len(load)):], confirmed, in.subscriptions > 0)
	for _, q := range all {
		if part, shown := q.drift(falseFlags / float64(2*len(all))); shown {
			drifts = append(drifts, drift{q.name, part, len(q.y)})
		}
	}
	return drifts
}
