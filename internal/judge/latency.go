package judge

import (
	"math"
	"slices"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// naNoInterval is the reason for no highest quantile in a short measurement.
const naNoInterval = "the measurement is shorter than one interval"

// latencySeries are the latencies of messages, with the series in the record.
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

// highestSeries are the latencies with values for the highest quantiles over intervals.
var highestSeries = []string{"publish", "e2e"}

// latency is a distribution whose quantiles are values.
type latency struct {
	distribution
	na        string         // reason for no quantiles; empty: it has quantiles
	intervals []distribution // full intervals of the measurement that have samples
	across    bool           // measured between the hosts of a publisher and a consumer
}

func latenciesOf(in *input, keepsUp bool) map[string]latency {
	all := map[string]latency{}
	for _, s := range latencySeries {
		median, _ := plan.Metrics(nil).ValueNamed(s.name + ".p50")
		whole := func(s record.Series) *record.Hist { return in.hists[s] }
		l := latency{distribution: distributionOf(s.series, whole, in.subscriptions), na: in.absent(median.Traits),
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

// quantileValue returns the value of a quantile over the whole measurement.
func (l latency) quantileValue(q float64) plan.Value {
	if l.na != "" {
		return plan.Value{NA: l.na}
	}
	return l.quantile(q)
}

// highest returns the highest quantile of any full interval of the measurement. It shows the worst interval, which the
// quantile of the whole measurement hides. A latency without quantiles has no highest quantiles.
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
			// the lower bound of one interval may exceed all numbers
			worst.NA, worst.Number, worst.Over = "", max(worst.Number, v.Number), max(worst.Over, v.Over)
		}
	}
	return worst
}

// distribution is a latency that includes the messages without an answer, each with its age. The age is the minimum of
// its latency.
type distribution struct {
	hist       *record.Hist // with the ages
	answered   *record.Hist // without the ages; nil: all messages were answered
	unanswered uint64
}

// WithUnanswered returns the samples of a latency, including the age of each message without an answer, and the number
// of the latter. The latency from the intended send time to the confirm includes each unsent message, and each that
// failed without an answer of the broker. The end-to-end latency includes each unsent message, once per subscription.
// The age of a failed message is its age at the failure.
func WithUnanswered(s record.Series, hist func(record.Series) *record.Hist, subscriptions int) (all *record.Hist,
	n uint64) {
	d := distributionOf(s, hist, subscriptions)
	return d.hist, d.unanswered
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

// maxShift is the maximum fraction by which unanswered messages may move a quantile that is shown as a number. The
// shift is from counting them with their ages to counting them as infinite.
const maxShift = 0.01

// enough is the minimum number of samples that are expected above a quantile that is shown as a number.
const enough = 10

// quantile returns a quantile as a value. It is a lower bound if it lies beyond the histogram's range, or if unanswered
// messages could move it. It is also one if there are fewer than 10/(1-q) samples. In that case the bound is an order
// statistic with a one-sided confidence of 95 %. Source: Thompson, On confidence ranges for the median and other
// expectation distributions, 1936. The tail of few samples may be lighter than the true one. An upper bound does not
// exist below log(0.05)/log(q) samples.
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

// above returns the rank of an order statistic, counted from the maximum of n samples. It is the largest one that is
// below the quantile q with a confidence of 95 %. above returns n+1 if there is none.
func above(n uint64, q float64) uint64 {
	// The number of samples above the quantile is binomial, with n draws of probability 1-q.
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
