package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// When the generator, not the broker, is called the limit. See clientBound.
const (
	lateLeast  = time.Millisecond     // of lateness and scheduler latency: below it there is never a doubt
	latePart   = 0.1                  // nor where it is less than this part of the p99 that it adds to
	busyPart   = 0.9                  // of the processors that an agent may use
	pauseLeast = 5 * time.Millisecond // that a pause has to last to explain anything
	pausePart  = 0.5                  // of a value, that a pause has to be long to explain it
)

// clientBound says why all of the cell's figures of performance are the generator's as much as the broker's; nothing, if they are not.
//
//   - Ports: an agent could not open a connection for want of local ports. One is enough: what the cell asked for was not done.
//   - Lateness (open loop): its p99 is above 1 ms and above a tenth of the p99 of the latency that it adds to (send from due; processing
//     where there are no confirms). A sleep ends up to 0.2 ms late on a healthy host, so 1 ms is five times that; and what is less than a
//     tenth of a latency does not change what it says.
//   - Processors: an agent's process ran, or could have run while its host ran something else, for 90 % of the time of all processors that it
//     may use (GOMAXPROCS: a container's quota, not the host's). Beyond that queues of its own grow, as in any server. Polling the clock does not
//     count: it stops where there is work. Waiting for the host does: it is how a host that is busy with others looks from inside.
//   - A driver that is a process of its own: one thread of it ran for 90 % of the time. Most such clients have one that everything goes through.
//   - Scheduler latency: goroutines that could run waited for a processor for more than 1 ms and more than a tenth of the latency, at the p99. It is
//     in every confirm and every receipt, twice and more often.
//
// Time that the broker held publishers for (blocked) is no reason, however long.
func (j *judge) clientBound() []string {
	var why []string
	because := func(is bool, format string, args ...any) {
		if is {
			why = append(why, fmt.Sprintf(format, args...))
		}
	}
	n := j.m.Total(record.PortsExhausted)
	because(n > 0, "%d connections could not be opened for want of local ports: widen net.ipv4.ip_local_port_range or spread publishers over more hosts", n)
	if late, limit, open := j.lateness(); open {
		because(late > limit, "lateness p99 is %v, above %v: spread publishers over more agents or lower their rate",
			late.Round(time.Microsecond), limit.Round(time.Microsecond))
	}
	hosts := j.m.Hosts()
	for _, agent := range slices.Sorted(maps.Keys(hosts)) {
		u, _ := used(hosts[agent], j.span.sending)
		cores := j.f.Cores[agent]
		because(cores > 0 && u.busy() >= busyPart*float64(cores),
			"agent %s used %.2f of its host's %d cores%s: give it more, or spread the load over more agents", agent, u.cpu(), cores, u.besides())
		because(u.mean(u.thread) >= busyPart,
			"a thread of the driver's process on agent %s ran %.0f %% of the time: spread the load over more agents", agent, 100*u.mean(u.thread))
	}
	waited := j.m.Hist(record.Scheduling)
	if limit, known := j.limit(record.SendDue, record.Send, record.Processing); known && waited.Count() > 0 {
		p99 := time.Duration(waited.Quantile(0.99))
		because(p99 > limit, "goroutines of the agents waited for a processor for %v (p99), above %v: run fewer threads on each agent or give it more cores",
			p99.Round(time.Microsecond), limit.Round(time.Microsecond))
	}
	return why
}

// besides tells what else there is to say of an agent's use of processors.
func (u usage) besides() string {
	var also []string
	if spin := u.mean(u.spin); spin >= 0.01 {
		also = append(also, fmt.Sprintf("%.2f of it to poll the clock", spin))
	}
	if waited := u.mean(u.waited); waited >= 0.01 {
		also = append(also, fmt.Sprintf("waited for %.2f more", waited))
	}
	if len(also) == 0 {
		return ""
	}
	return " (" + strings.Join(also, ", ") + ")"
}

// lateness is its p99 and the limit for it; open is false where there is none.
func (j *judge) lateness() (p99, limit time.Duration, open bool) {
	h := j.m.Hist(record.Lateness)
	if !j.w.Publishers.Open() || h.Count() == 0 {
		return 0, 0, false
	}
	limit, _ = j.limit(record.SendDue, record.Processing)
	return time.Duration(h.Quantile(0.99)), limit, true
}

// limit is what may be added to the first of these latencies that there is; known is false where there is none.
func (j *judge) limit(latencies ...record.Series) (limit time.Duration, known bool) {
	for _, s := range latencies {
		if of := j.m.Hist(s); of.Count() > 0 {
			return max(lateLeast, time.Duration(latePart*float64(of.Quantile(0.99)))), true
		}
	}
	return lateLeast, false
}

// paused flags those quantiles of latencies that pauses of the agents for garbage collection explain: pauses of 5 ms and more and half the value
// and more take up as much of the time as there are samples above it (one is enough for the greatest). All others are as they were
// without a pause. It says which, if any. Below 5 ms nothing is explained: a busy host sets threads aside for a slice of some milliseconds,
// in a pause (which waits for them, and so seems long) as at any other time, and whatever the latency is it would have been without.
func (j *judge) paused() {
	pauses, agents := j.m.Hist(record.GCPause), max(1, len(j.m.Hosts()))
	var explained []string
	for _, latency := range []string{"send", "send.due", "processing"} {
		for _, q := range plan.Quantiles() {
			name := latency + "." + q.Name
			v := j.out.Values[name]
			value := time.Duration(v.Number * float64(time.Second))
			if v.NA != "" || value < pauseLeast {
				continue
			}
			long := max(pauseLeast, time.Duration(pausePart*float64(value)))
			n := pauses.AtLeast(int64(long))
			share := float64(n) * long.Seconds() / j.span.sending.Seconds() / float64(agents)
			if n > 0 && share >= 1-q.Q {
				j.flag(plan.ClientBound, name)
				explained = append(explained, name)
			}
		}
	}
	if len(explained) > 0 {
		j.warn(pausesWarning+"for garbage collection, %v at most, explain %s: keep fewer messages in flight, or raise GOGC for the agents",
			roughly(pauses.Max()), strings.Join(explained, ", "))
	}
}
