package judge

import (
	"strings"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// bindings sets the values of bindings that were made and removed while messages flowed. Latencies are of bindings asked for, and of messages
// sent, inside the measurement; counts are of the whole task.
func (j *judge) bindings() {
	if j.w.Topology.Churn.Rate <= 0 {
		for _, v := range plan.Values() {
			if strings.HasPrefix(v.Name, "binding.") {
				j.na(v.Name, NANoChurn)
			}
		}
		return
	}
	first, further := j.bindingReceipts()
	further.Merge(j.m.Hist(record.BindingMessage))
	j.bindingLatency("binding", j.m.Hist(record.Binding), false)
	j.bindingLatency("binding.first", first, true)
	j.bindingLatency("binding.message", further, true)
	for name, c := range map[string]record.Counter{"made": record.BindingsMade, "removed": record.BindingsRemoved, "errors": record.BindingErrors} {
		j.number("binding."+name, float64(j.m.Total(c)))
	}
	t := j.m.Bindings()
	j.number("binding.sent", float64(t.Sent))
	if j.subs == 0 {
		j.na("binding.received", NANoConsumers)
		j.na("binding.lost", NANoConsumers)
	} else {
		j.number("binding.received", float64(t.Received))
		j.bindingLoss(t)
	}
	j.bindingRemarks(t)
}

// bindingReceipts makes distributions of the first receipts of bindings, and of those that only one agent took for the first.
func (j *judge) bindingReceipts() (first, further *record.Hist) {
	first, further = record.NewHist(), record.NewHist()
	measured := func(at int64) bool { return at >= 0 && at < int64(j.w.Measure.D()) }
	one, others := j.m.BindingReceipts()
	for _, r := range one {
		if measured(r.Called) {
			first.Record(r.At - r.Called)
		}
	}
	for _, r := range others {
		if measured(r.Sent) {
			further.Record(r.At - r.Sent)
		}
	}
	return first, further
}

// bindingLatency sets the quantiles of one distribution; across says that its ends were read on the hosts of a publisher and a consumer.
func (j *judge) bindingLatency(name string, h *record.Hist, across bool) {
	why, flags := "", []plan.Flag(nil)
	switch {
	case across && j.subs == 0:
		why = NANoConsumers
	case h.Count() == 0:
		why = NANoSamples
	}
	if across && why == "" {
		if n := h.Negative(); n > 0 {
			j.warn("%d of %d times of %s were negative and are in no quantile: the clocks of the hosts are apart", n, n+h.Count(), name)
		}
	}
	if n := h.Over(); n > 0 {
		j.warn("%d %s samples were beyond the histogram's range of an hour and count as an hour", n, name)
		flags = append(flags, plan.Clipped)
	}
	for _, q := range plan.Quantiles() {
		if why != "" {
			j.na(name+"."+q.Name, why)
		} else {
			j.out.Values[name+"."+q.Name] = distribution{hist: h}.quantile(q.Q, flags...)
		}
	}
}

// bindingLoss says how many messages were lost, where that is known: by the rules of the ledger.
func (j *judge) bindingLoss(t record.BindingTally) {
	switch {
	case j.degraded():
		j.na("binding.lost", "not known: an agent was lost")
	case j.cut():
		j.na("binding.lost", "not known: the drain was cut")
	default:
		j.number("binding.lost", float64(t.Missing))
	}
}

// bindingRemarks tells of bindings that were asked for and not made.
func (j *judge) bindingRemarks(t record.BindingTally) {
	asked, made := j.w.Topology.Churn.Rate*j.span.sending.Seconds(), j.counted(record.BindingsMade)
	if asked-made > Tolerance*asked+1 {
		j.warn("asked for %s bindings a second, made %s", grouped(j.w.Topology.Churn.Rate), grouped(made/j.span.sending.Seconds()))
	}
	if n := j.m.Total(record.BindingErrors); n > 0 {
		j.warn("%d calls to make or remove a binding failed; see the events", n)
	}
	if v := j.out.Values["binding.lost"]; v.NA == "" && v.Number > 0 {
		j.warn("%s through a new binding %s lost after the broker had confirmed the binding", messages(t.Missing), was(t.Missing))
	}
}
