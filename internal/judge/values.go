package judge

import (
	"math"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// latencies are the names of values that have quantiles, and their series.
var latencies = []struct {
	name   string
	series record.Series
}{
	{"send", record.Send},
	{"send.due", record.SendDue},
	{"processing", record.Processing},
	{"lateness", record.Lateness},
	{"blocked", record.Blocked},
	{"send.failed", record.SendFailed},
	{"pacing", record.Pacing},
}

// noLatency is why a latency cannot have a number; empty if it can.
func (j *judge) noLatency(s record.Series) string {
	unconfirmed := unconfirmedReason(j.w.Publishers.Mode)
	open := j.w.Publishers.Open()
	switch {
	case s == record.Send && unconfirmed != "":
		return unconfirmed
	case (s == record.SendDue || s == record.Lateness || s == record.Blocked || s == record.Pacing) && !open:
		return NAClosedLoop
	case s == record.SendDue && unconfirmed != "":
		return unconfirmed
	case s == record.Processing && j.subs == 0:
		return NANoConsumers
	}
	return ""
}

func (j *judge) latencies() {
	for _, l := range latencies {
		d := distributionOf(l.series, j.m.Hist, j.subs)
		why := j.noLatency(l.series)
		var flags []plan.Flag
		if why == "" {
			why, flags = j.doubtLatency(l.name, l.series, d.hist)
		}
		for _, q := range plan.Quantiles() {
			if name := l.name + "." + q.Name; why != "" {
				j.na(name, why, flags...)
			} else {
				j.out.Values[name] = d.quantile(q.Q, flags...)
			}
		}
	}
}

// distribution is a latency with the messages that were never answered, each with its age: the least that its latency
// can be.
type distribution struct {
	hist       *record.Hist // with the ages
	answered   *record.Hist // without; nil: all were answered
	unanswered uint64
}

// WithUnanswered returns the samples of a latency with the age of each message that was never answered, and the number
// of these. The latency from the due time to the confirm has one sample for each message that was due and not sent, and
// for each that failed without an answer of the broker: its age when it failed is the least that the latency can be. A
// processing latency has one for each message not sent and subscription.
func WithUnanswered(s record.Series, hist func(record.Series) *record.Hist, subscriptions int) (all *record.Hist, n uint64) {
	d := distributionOf(s, hist, subscriptions)
	return d.hist, d.unanswered
}

func distributionOf(s record.Series, hist func(record.Series) *record.Hist, subscriptions int) distribution {
	d := distribution{hist: hist(s)}
	var copies map[record.Series]int
	switch s {
	case record.SendDue:
		copies = map[record.Series]int{record.UnsentAge: 1, record.Unanswered: 1}
	case record.Processing:
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
func (d distribution) quantile(q float64, flags ...plan.Flag) plan.Value {
	at := d.hist.Quantile(q)
	v := plan.Value{Number: time.Duration(at).Seconds(), Flags: flags}
	n := d.hist.Count()
	switch {
	case d.hist.OverAt(q):
		v.Over = d.hist.Over()
	case d.unanswered > 0:
		rank := q * float64(n)
		if sent := float64(d.answered.Count()); rank > sent || float64(d.answered.Quantile(rank/sent)) > (1+maxShift)*float64(at) {
			v.Over = d.unanswered
		}
	}
	if q >= 1 || v.Over > 0 || float64(n)*(1-q) > enough-1e-6 {
		return v
	}
	v.Over = above(n, q)
	if v.Over > n {
		return plan.Value{NA: NAFewSamples, Flags: flags}
	}
	v.Sample, v.Number = v.Number, time.Duration(d.hist.Quantile(float64(n-v.Over+1)/float64(n))).Seconds()
	return v
}

// above is the rank, from the greatest of n samples, of the order statistic that the quantile q is above with a confidence of 95 %: n+1 if none is.
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

// doubtLatency tells why a latency that this cell could have is not shown, and what is doubtful about it.
func (j *judge) doubtLatency(name string, s record.Series, h *record.Hist) (why string, flags []plan.Flag) {
	if h.Count() == 0 && h.Negative() == 0 {
		return NANoSamples, nil
	}
	if s == record.Processing {
		if n := h.Negative(); n > 0 {
			j.warn("%d of %d processing latencies were negative and are in no quantile: the clocks of the hosts are apart", n, n+h.Count())
		}
		if !j.keeps {
			return NABacklog, append(flags, plan.Backlog)
		}
	}
	if n := h.Over(); n > 0 {
		j.warn("%d %s samples were beyond the histogram's range of an hour and count as an hour", n, name)
		flags = append(flags, plan.Clipped)
	}
	if h.Count() == 0 {
		return NANoSamples, flags
	}
	return "", flags
}

// roles tells which agents publish and which consume, by their indexes, as plan.Assign shares the task out.
func (j *judge) roles() (publishers, consumers []plan.AgentPart) {
	first := j.w.Publishers.Nodes
	if j.w.Consumers.Colocate {
		first = 0
	}
	for _, a := range j.f.Agents {
		if a.Index < j.w.Publishers.Nodes {
			publishers = append(publishers, a)
		}
		if a.Index >= first && a.Index < first+j.w.Consumers.Nodes {
			consumers = append(consumers, a)
		}
	}
	return publishers, consumers
}

// counts sets the values that are counts of the whole task.
func (j *judge) counts() {
	l := j.out.Ledger
	j.number("sent", float64(l.Sent))
	if j.w.Publishers.Open() {
		j.number("unsent", float64(j.m.Total(record.Unsent)))
	} else {
		j.na("unsent", NAClosedLoop)
	}
	j.number("unroutable", float64(l.Unroutable))
	if why := unconfirmedReason(j.w.Publishers.Mode); why != "" {
		j.na("confirmed", why)
		j.na("rejected", why)
	} else {
		j.number("confirmed", float64(l.Confirmed))
		j.number("rejected", float64(l.Rejected))
	}
	for name, n := range map[string]uint64{
		"received": l.Received, "lost": l.Lost, "undrained": l.Undrained, "unknown": l.Unknown,
		"duplicated": l.Duplicated, "reordered": l.Reordered,
	} {
		if j.subs == 0 {
			j.na(name, NANoConsumers)
		} else {
			j.number(name, float64(n))
		}
	}
	if l.Undrained > 0 { // lost or late: nobody waited to see
		j.na("lost", NAUndrained)
	}
	if h := j.m.Hist(record.Processing); j.subs == 0 {
		j.na("processing.negative", NANoConsumers)
	} else {
		j.number("processing.negative", float64(h.Negative()))
	}
	j.number("publish.errors", float64(j.m.Total(record.PublishErrors)))
	j.number("ports.exhausted", float64(j.m.Total(record.PortsExhausted)))
	j.number("reconnects", float64(j.m.Total(record.Reconnects)))
	j.number("connection.blocked", time.Duration(j.m.Total(record.ConnBlockedNanos)).Seconds())
	j.number("gap.longest", longestGap(j.m).Seconds())
}

func longestGap(m *record.Merge) time.Duration {
	var longest int64
	for _, e := range m.Events() {
		if e.Kind == record.EventGap {
			longest = max(longest, e.Nanos)
		}
	}
	return time.Duration(longest)
}
