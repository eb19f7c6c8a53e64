package results

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// When the generator, not the broker, is called the limit. See doubts.
const (
	lateLeast = time.Millisecond // lateness p99 below this is never a doubt
	latePart  = 0.1              // nor is less than this part of the p99 that it adds to
	busyPart  = 0.9              // of the host's cores
)

// skewLeast and skewPart: agents that started further from the agreed time than both are called skewed.
const (
	skewLeast = 10 * time.Millisecond
	skewPart  = 0.01 // of the measured time
)

// performance are the values that say how fast the broker was, and so are doubtful when the load was not what it should be.
func performance() []string {
	names := []string{"send.rate", "confirm.rate", "receive.rate", "throughput"}
	for _, l := range []string{"send", "send.due", "processing", "binding", "binding.first", "binding.message"} {
		for _, q := range plan.Quantiles() {
			names = append(names, l+"."+q.Name)
		}
	}
	for _, l := range []string{"send", "processing"} {
		for _, q := range plan.HighestQuantiles() {
			names = append(names, l+"."+q.Name+".highest")
		}
	}
	return names
}

// doubts sets the flags that concern many values:
//
//   - client-bound: an agent ran out of local ports, its process kept 90 % of its host's cores busy, or (open loop) the p99 of lateness
//     is above 1 ms and above a tenth of the p99 of the latency it adds to (send from due; processing where there are no
//     confirms). Waiting for the broker (blocked) never counts.
//   - skewed: an agent's actual start was off the agreed one by more than 10 ms and 1 % of the measured time.
//   - degraded, on all values: an agent was lost.
func (j *judge) doubts() {
	if j.bound = j.clientBound(); len(j.bound) > 0 {
		j.flag(plan.ClientBound, performance()...)
		for _, w := range j.bound {
			j.warn("client-bound: %s", w)
		}
	}
	for _, a := range j.f.Agents {
		if s := max(a.Skew.D(), -a.Skew.D()); s > skewLeast && s > time.Duration(skewPart*float64(j.span.sending)) {
			j.flag(plan.Skewed, performance()...)
			j.warn("skewed: agent %s started %v off the agreed time", a.Agent, a.Skew)
		}
	}
	if j.degraded() {
		j.flag(plan.Degraded, slices.Sorted(maps.Keys(j.out.Values))...)
	}
}

func (j *judge) clientBound() []string {
	var why []string
	if n := j.m.Total(record.PortsExhausted); n > 0 {
		why = append(why, fmt.Sprintf("%d connections could not be opened for want of local ports", n))
	}
	if late, limit, open := j.lateness(); open && late > limit {
		why = append(why, fmt.Sprintf("lateness p99 is %v, above %v", late.Round(time.Microsecond), limit.Round(time.Microsecond)))
	}
	hosts := j.m.Hosts()
	for _, agent := range slices.Sorted(maps.Keys(hosts)) {
		u, _ := used(hosts[agent], j.span.sending)
		if cores := j.f.Cores[agent]; cores > 0 && u.cpu() >= busyPart*float64(cores) {
			why = append(why, fmt.Sprintf("agent %s used %.2f of its host's %d cores", agent, u.cpu(), cores))
		}
	}
	return why
}

// lateness is its p99 and the limit for it; open is false where there is none.
func (j *judge) lateness() (p99, limit time.Duration, open bool) {
	h := j.m.Hist(record.Lateness)
	if !j.w.Publishers.Open() || h.Count() == 0 {
		return 0, 0, false
	}
	limit = lateLeast
	for _, s := range []record.Series{record.SendDue, record.Processing} {
		if of := j.m.Hist(s); of.Count() > 0 {
			limit = max(limit, time.Duration(latePart*float64(of.Quantile(0.99))))
			break
		}
	}
	return time.Duration(h.Quantile(0.99)), limit, true
}
