package judge

import (
	"math"
	"slices"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// naNoInterval is why there is no highest quantile of a short measurement.
const naNoInterval = "the measurement is shorter than one interval"

// latencySeries are the latencies of messages, and what they are recorded as.
var latencySeries = []struct {
	name   string
	series record.Series
}{
	{"publish", record.Publish},
	{"publish.intended", record.PublishIntended},
	{"e2e", record.EndToEnd},
	{"send_delay", record.SendDelay},
	{"backpressure", record.Backpressure},
	{"publish.failed", record.PublishFailed},
	{"pacing", record.Pacing},
}

// highestSeries are those of which the highest quantiles over intervals are known.
var highestSeries = []string{"publish", "e2e"}

// latency is a distribution whose quantiles are values.
type latency struct {
	distribution
	na        string         // why it has no quantiles; empty if it has
	intervals []distribution // of the full intervals of the measurement that have samples
	across    bool           // its ends were read on the hosts of a publisher and a consumer
}

func latenciesOf(in *input, keepsUp bool) map[string]latency {
	all := map[string]latency{}
	for _, s := range latencySeries {
		median, _ := plan.ValueNamed(s.name + ".p50")
		l := latency{distribution: in.distributionOf(s.series), na: in.absent(median.Traits),
			across: s.series == record.EndToEnd}
		switch h := l.hist; {
		case l.na != "":
		case h.Count() == 0 && h.Negative() == 0:
			l.na = NANoSamples
		case s.series == record.EndToEnd && !keepsUp:
			l.na = NABacklog
		case h.Count() == 0:
			l.na = NANoSamples
		case slices.Contains(highestSeries, s.name):
			l.intervals = in.intervals(s.series)
		}
		all[s.name] = l
	}
	return all
}

// quantileValue is the value of a quantile of the whole measurement.
func (l latency) quantileValue(q float64) plan.Value {
	if l.na != "" {
		return plan.Value{NA: l.na}
	}
	return l.quantile(q)
}

// highest is the highest quantile of any full interval of the measurement: what the worst minute was like, where the
// whole hides it. What keeps a latency from being shown keeps its highest quantiles from it too.
func (l latency) highest(q float64) plan.Value {
	if whole := l.quantileValue(q); whole.NA != "" {
		return plan.Value{NA: whole.NA}
	}
	if len(l.intervals) == 0 {
		return plan.Value{NA: naNoInterval}
	}
	worst := plan.Value{NA: NAFewSamples}
	for _, d := range l.intervals {
		if v := d.quantile(q); v.NA == "" {
			// a bound may be above all
			worst.NA, worst.Number, worst.Over = "", max(worst.Number, v.Number), max(worst.Over, v.Over)
		}
	}
	return worst
}

// intervals merges the windows of the measurement's messages to full intervals; one without a sample is left out.
// Samples count in the interval in which they ended, and those that ended in the drain in the last one: a broker that
// stalls until then is not to look better for it. Where the measurement ends within an interval, what ended in the
// drain may be of the part that is none.
func (in *input) intervals(s record.Series) []distribution {
	size := max(1, seconds(in.workload.Interval.D()))
	full := int(in.span.sending / (time.Duration(size) * time.Second))
	byInterval := make([][]record.Window, full)
	whole := full*size == in.span.windows
	for _, w := range in.record.Windows() {
		i := w.Index / size
		if whole && full > 0 {
			i = min(i, full-1)
		}
		if w.Measured && w.Index >= 0 && i < full {
			byInterval[i] = append(byInterval[i], w)
		}
	}
	var some []distribution
	for _, windows := range byInterval {
		hist := func(of record.Series) *record.Hist { return record.HistOf(of, windows) }
		if d := distributionOf(s, hist, in.subscriptions); d.hist.Count() > 0 {
			some = append(some, d)
		}
	}
	return some
}

// distribution is a latency with the messages that were never answered, each with its age: the least that its latency
// can be.
type distribution struct {
	hist       *record.Hist // with the ages
	answered   *record.Hist // without; nil: all were answered
	unanswered uint64
}

// WithUnanswered returns the samples of a latency with the age of each message that was never answered, and the number
// of these. The latency from the intended send time to the confirm has one sample for each message that was due and not
// sent, and for each that failed without an answer of the broker: its age when it failed is the least that the latency
// can be. A end-to-end latency has one for each message not sent and subscription.
func WithUnanswered(s record.Series, hist func(record.Series) *record.Hist, subscriptions int) (all *record.Hist,
	n uint64) {
	d := distributionOf(s, hist, subscriptions)
	return d.hist, d.unanswered
}

// distributionOf is a series over the measurement.
func (in *input) distributionOf(s record.Series) distribution {
	return distributionOf(s, func(s record.Series) *record.Hist { return in.hists[s] }, in.subscriptions)
}

func distributionOf(s record.Series, hist func(record.Series) *record.Hist, subscriptions int) distribution {
	d := distribution{hist: hist(s)}
	var copies map[record.Series]int
	switch s {
	case record.PublishIntended:
		copies = map[record.Series]int{record.UnsentAge: 1, record.Unanswered: 1}
	case record.EndToEnd:
		copies = map[record.Series]int{record.UnsentAge: subscriptions}
	}
	for age, n := range copies {
		ages := hist(age)
		if ages.Count() == 0 {
			continue
		}
		if d.answered == nil {
			d.hist, d.answered = d.hist.Clone(), d.hist
		}
		for range n {
			d.hist.Merge(ages)
			d.unanswered += ages.Count()
		}
	}
	return d
}

// maxShift is the part by which unanswered messages may move a quantile that is still shown as a number: from counting
// with their ages to never being answered.
const maxShift = 0.01

// enough is how many samples above a quantile are expected where it is shown as a number.
const enough = 10

// quantile is a quantile as a value. It is a lower bound if it lies beyond the histogram's range, if it would be
// another one with the latencies that the unanswered messages may have, or if there are fewer than 10/(1-q) samples. In
// the latter case the bound is an order statistic with a one-sided confidence of 95 % (Thompson, On confidence ranges
// for the median and other expectation distributions, 1936): the tail that few samples show may be lighter than the
// true one, and an upper bound does not exist below log(0.05)/log(q) samples.
func (d distribution) quantile(q float64) plan.Value {
	at := d.hist.Quantile(q)
	v := plan.Value{Number: time.Duration(at).Seconds()}
	n := d.hist.Count()
	switch {
	case d.hist.OverAt(q):
		v.Over = d.hist.Over()
	case d.unanswered > 0:
		rank := q * float64(n)
		if sent := float64(d.answered.Count()); rank > sent ||
			float64(d.answered.Quantile(rank/sent)) > (1+maxShift)*float64(at) {
			v.Over = d.unanswered
		}
	}
	if q >= 1 || v.Over > 0 || float64(n)*(1-q) > enough-1e-6 {
		return v
	}
	v.Over = above(n, q)
	if v.Over > n {
		return plan.Value{NA: NAFewSamples}
	}
	v.Sample, v.Number = v.Number, time.Duration(d.hist.Quantile(float64(n-v.Over+1)/float64(n))).Seconds()
	return v
}

// above is the rank, from the greatest of n samples, of the order statistic that the quantile q is above with a
// confidence of 95 %: n+1 if none is.
func above(n uint64, q float64) uint64 {
	// As many samples are above the quantile as n draws with the probability 1-q hit.
	hits := math.Pow(q, float64(n))
	for k, sum := uint64(0), hits; k <= n; k++ {
		if sum >= 0.95 {
			return k + 1
		}
		hits *= float64(n-k) / float64(k+1) * (1 - q) / q
		sum += hits
	}
	return n + 1
}
