package judge

import (
	"math"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// naNoInterval is the reason for no highest quantile in a short measurement.
const naNoInterval = "the measurement is shorter than one interval"

// latencySeries are the latencies. Each quantile of one is a value.
var latencySeries = []struct {
	name   string
	series record.Series
	across bool // measured between the hosts of a publisher and a consumer
}{
	{"publish", record.Publish, false},
	{"publish.intended", record.PublishIntended, false},
	{"e2e", record.EndToEnd, true},
	{"send_delay", record.SendDelay, false},
	{"backpressure", record.Backpressure, false},
	{"publish.failed", record.PublishFailed, false},
	{"pacing", record.Pacing, false},
	{"binding", record.Binding, false},
	{"binding.first", bindingFirst, true},
	{"binding.message", record.BindingMessage, true},
}

// latency is a distribution whose quantiles are values.
type latency struct {
	distribution distribution
	name         string
	na           string                // reason for no quantiles; empty: it has quantiles
	intervals    func() []distribution // full intervals of the measurement that have samples
	across       bool
	bound        float64 // maximum error of the clocks at both ends, in seconds
}

func latenciesOf(in *input, keepsUp bool, clocks clockComparison) map[string]latency {
	latencies := map[string]latency{}
	for _, s := range latencySeries {
		median, _ := plan.Metrics(nil).ValueNamed(s.name + ".p50")
		whole := func(s record.Series) *record.Hist { return in.hists[s] }
		all, answered := WithUnanswered(s.series, whole, in.subscriptions, in.undrained())
		l := latency{distribution: distribution{all, answered}, name: s.name, na: in.absent(median.Traits),
			across: s.across, intervals: sync.OnceValue(func() []distribution { return in.intervals(s.series) })}
		switch h := l.distribution.hist; {
		case l.na != "":
		case s.series == record.EndToEnd && !keepsUp && h.Count()+h.Negative() > 0:
			l.na = NABacklog
		case h.Count() == 0:
			l.na = NANoSamples
		}
		if s.across && !clocks.unknown {
			l.bound = clocks.bound.Seconds()
		}
		latencies[s.name] = l
	}
	return latencies
}

// value returns a quantile of the whole measurement or, if highest is true, the highest one of its intervals. A latency
// without quantiles has no highest quantiles.
func (l latency) value(q float64, highest bool) plan.Value {
	if l.na != "" {
		return plan.Value{NA: l.na}
	}
	v := l.distribution.quantile(q)
	if highest && v.NA == "" {
		v = l.highest(q)
	}
	if v.NA == "" {
		v.Bound = l.bound
	}
	return v
}

// highest returns the highest quantile of any full interval of the measurement. It shows the worst interval, which the
// quantile of the whole measurement hides.
func (l latency) highest(q float64) plan.Value {
	intervals := l.intervals()
	if len(intervals) == 0 {
		return plan.Value{NA: naNoInterval}
	}
	worst := plan.Value{NA: NAFewSamples}
	for _, d := range intervals {
		if v := d.quantile(q); v.NA == "" {
			// the lower bound of one interval may exceed all numbers
			worst.NA, worst.Number, worst.Over = "", max(worst.Number, v.Number), max(worst.Over, v.Over)
		}
	}
	return worst
}

// distribution is a latency that includes the messages without an answer, each with its age. The age is the minimum of
// its latency. Quantiles among them are bounds.
type distribution struct {
	hist     *record.Hist // with the ages
	answered *record.Hist // without the ages
}

// Undrained is the number of messages of the measurement that were sent, and not delivered when the drain timed out.
// Age is the minimum of their ages.
type Undrained struct {
	Count uint64
	Age   time.Duration
}

// UndrainedOf returns the undrained messages of a task or group, if the drain timed out. l is its delivery accounting,
// which also has the messages of the warm-up. The counts of the measurement limit the number. They have a message that
// two consumers received twice, and deliveries that were not expected: of rejected messages, and of failed publish
// calls. The ledger has the number of both.
func UndrainedOf(w plan.Workload, m *record.Merged, l plan.Ledger, timedOut bool) Undrained {
	if l.Undrained == 0 || !timedOut {
		return Undrained{}
	}
	subscriptions := int64(max(1, w.Topology.Subscriptions))
	unexpected := int64(l.Received+l.Dropped+l.Undrained) - subscriptions*int64(l.Sent-l.Rejected-l.Unroutable)
	missing, twice := max(0, unexpected), -int64(l.Received)
	m.Range(func(x *record.Window) {
		twice += x.Counts[record.Unique]
		if x.Measured {
			missing += subscriptions*(x.Counts[record.Sent]+x.Counts[record.PublishErrors]-
				x.Counts[record.Rejected]-x.Counts[record.Returned]) - x.Counts[record.Unique]
		}
	})
	return Undrained{min(l.Undrained, uint64(max(0, missing+max(0, twice)))), w.Drain.Timeout.D()}
}

// WithUnanswered returns the samples of a latency, with and without the age of each message without an answer. The
// latency from the intended send time to the confirm includes each unsent message, and each that failed without an
// answer of the broker. The end-to-end latency includes each unsent message, once per subscription, and each undrained
// one. The age of a failed message is its age at the failure.
func WithUnanswered(s record.Series, hist func(record.Series) *record.Hist, subscriptions int,
	undrained Undrained) (all, answered *record.Hist) {
	all = hist(s)
	answered = all
	var copies map[record.Series]int
	switch s {
	case record.PublishIntended:
		copies = map[record.Series]int{record.UnsentAge: 1, record.Unanswered: 1}
	case record.EndToEnd:
		copies = map[record.Series]int{record.UnsentAge: subscriptions}
	}
	for age, n := range copies {
		if ages := hist(age); ages.Count() > 0 {
			all = all.Clone()
			for range n {
				all.Merge(ages)
			}
		}
	}
	if s == record.EndToEnd && undrained.Count > 0 {
		all = all.Clone()
		all.RecordN(int64(undrained.Age), undrained.Count)
	}
	return all, answered
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
	case n > d.answered.Count():
		rank := q * float64(n)
		if sent := float64(d.answered.Count()); rank > sent ||
			float64(d.answered.Quantile(rank/sent)) > (1+maxShift)*float64(at) {
			v.Over = n - d.answered.Count()
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
