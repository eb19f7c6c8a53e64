package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/stats"
)

// EventNotObserved is the kind of the controller's event by which a task's record says that an agent which should measure a broker's processes does
// not, from then on. NotObserved is its detail.
const EventNotObserved = "not-observed"

// NotObserved says in words that an agent does not measure a broker's processes.
func NotObserved(broker, agent, why string) string {
	return fmt.Sprintf("%s%s: %s", notObserved(broker), agent, why)
}

func notObserved(broker string) string {
	return fmt.Sprintf("not observed: broker %s by agent ", broker)
}

// processFigure is something that hosts say of the broker's processes.
type processFigure struct {
	name string
	of   func(record.HostSample) (value float64, missing string)
	most bool // a second is the greatest of its samples, not their mean
	once bool // it is of a place, whichever nodes are there
}

func processFigures() []processFigure {
	disk := func(s record.HostSample, v float64) (float64, string) { return v, s.NoDisk }
	network := func(s record.HostSample, v float64) (float64, string) { return v, s.NoNet }
	return []processFigure{
		{name: "cpu", of: func(s record.HostSample) (float64, string) { return s.BrokerCPU, "" }},
		{name: plan.FigureRSS, of: func(s record.HostSample) (float64, string) { return float64(s.BrokerRSS), "" }, most: true},
		{name: plan.FigureDiskRead, of: func(s record.HostSample) (float64, string) { return disk(s, s.DiskRead) }},
		{name: plan.FigureDiskWrite, of: func(s record.HostSample) (float64, string) { return disk(s, s.DiskWrite) }},
		{name: plan.FigureNetIn, of: func(s record.HostSample) (float64, string) { return network(s, s.NetIn) }, once: true},
		{name: plan.FigureNetOut, of: func(s record.HostSample) (float64, string) { return network(s, s.NetOut) }, once: true},
	}
}

// node is a part of the broker: its processes on one host, or those that an observer finds in one way.
type node struct {
	place   string
	samples []record.HostSample
	known   time.Duration
}

// processFigures sets the figures of the broker's processes, as their hosts say; which gives them for the figures of these names. Observers alone
// count where there are any.
func (j *judge) processFigures() {
	nodes, missing := j.nodes()
	for _, f := range processFigures() {
		j.processFigure(f, nodes, missing)
	}
}

// cell is the judge of the whole task: observers are of no group.
func (j *judge) cell() *judge {
	if j.whole != nil {
		return j.whole
	}
	return j
}

// looksAtProcesses tells whether anybody was to measure the broker's processes.
func (j *judge) looksAtProcesses() bool {
	b := j.task.Cell.Broker
	return len(b.Process) > 0 || len(j.cell().m.Observed(b.Name)) > 0 || len(j.unobserved()) > 0
}

// unobserved are the agents that did not, or not to the end, measure the broker's processes though they should.
func (j *judge) unobserved() (agents []string) {
	for _, e := range j.cell().f.Events {
		if e.Kind == EventNotObserved && strings.HasPrefix(e.Detail, notObserved(j.task.Cell.Broker.Name)) {
			agents = append(agents, e.Agent)
		}
	}
	return agents
}

// nodes are those of the broker, and the reason for which there are no figures where these do not say one. A node that was not seen at all leaves
// none: the rest would look like the whole.
func (j *judge) nodes() (all []*node, missing string) {
	observed := j.cell().m.Observed(j.task.Cell.Broker.Name)
	for _, agent := range j.unobserved() {
		if len(observed[agent]) == 0 {
			return nil, NANotObserved
		}
	}
	by := map[string]*node{}
	note := func(key, place string, samples []record.HostSample) {
		_, known := meanOf(samples, j.length(), func(s record.HostSample) (float64, bool) { return 0, s.HasBroker })
		if n := by[key]; n == nil || known > n.known {
			by[key] = &node{place: place, samples: samples, known: known}
		}
	}
	missing = NANoProcess
	for _, agent := range slices.Sorted(maps.Keys(observed)) {
		missing = NANotFound
		s := observed[agent][0]
		note(s.Place+" "+s.Node, s.Place, observed[agent])
	}
	if len(observed) == 0 {
		hosts, samples := map[string]string{}, j.m.Hosts()
		for _, a := range j.f.Agents {
			hosts[a.Agent] = cmp.Or(a.Host, a.Clock)
		}
		for _, agent := range slices.Sorted(maps.Keys(samples)) {
			note(hosts[agent], hosts[agent], samples[agent])
		}
		maps.DeleteFunc(by, func(_ string, n *node) bool { return n.known == 0 }) // no process of the broker is there
	}
	for _, key := range slices.Sorted(maps.Keys(by)) {
		n := by[key]
		if all = append(all, n); len(observed) > 0 && n.known < time.Duration(probesLeast*float64(j.length())) {
			j.warn("the processes of broker %s were seen for %v of %v by an observer", j.task.Cell.Broker.Name,
				n.known.Round(100*time.Millisecond), j.length())
		}
	}
	return all, missing
}

// processFigure sets the statistics of one figure: the mean over the whole time, and the median and greatest of its seconds, all of them sums over
// nodes. A second that some node does not know of is left out.
func (j *judge) processFigure(f processFigure, nodes []*node, missing string) {
	if f.once {
		places := map[string]bool{}
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool {
			again := places[n.place]
			places[n.place] = true
			return again
		})
	}
	whole, complete := 0.0, map[int]int{}
	sums := map[int]float64{}
	for _, n := range nodes {
		mean, seconds, why := f.over(n.samples, j.length())
		whole += mean
		missing = cmp.Or(why, missing)
		for second, v := range seconds {
			sums[second] += v
			complete[second]++
		}
	}
	var values []float64
	for second, v := range sums {
		if complete[second] == len(nodes) {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		for _, s := range plan.FigureStatistics() {
			j.na(plan.FigureValue(f.name, s), missing)
		}
		return
	}
	j.figure(f.name, whole, values)
}

// over is a figure's mean over the measurement, and what it was in each second, in which the middle of a sample lies; or why it is not known.
func (f processFigure) over(samples []record.HostSample, span time.Duration) (mean float64, seconds map[int]float64, missing string) {
	known := func(s record.HostSample) (float64, bool) {
		v, why := f.of(s)
		if why != "" && s.HasBroker {
			missing = why
		}
		return v, why == "" && s.HasBroker
	}
	mean, _ = meanOf(samples, span, known)
	weight := map[int]float64{}
	seconds = map[int]float64{}
	inside(samples, span, func(s record.HostSample, from, to time.Duration) {
		v, is := known(s)
		length, second := (to - from).Seconds(), int((from+to)/2/time.Second)
		switch {
		case is && f.most:
			seconds[second] = max(seconds[second], v)
		case is:
			weight[second] += length
			seconds[second] += (v - seconds[second]) * length / weight[second]
		}
	})
	return mean, seconds, missing
}

// figure sets the statistics of a figure that has values.
func (j *judge) figure(name string, mean float64, values []float64) {
	slices.Sort(values)
	j.number(plan.FigureValue(name, "mean"), mean)
	j.number(plan.FigureValue(name, "p50"), stats.Median(values))
	j.number(plan.FigureValue(name, "max"), values[len(values)-1])
}
