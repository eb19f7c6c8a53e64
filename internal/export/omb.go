package export

import (
	"fmt"
	"math"

	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/runs"
)

// ombPeriod is the interval of the metrics of the OpenMessaging Benchmark, in seconds. A shorter measurement is one
// interval.
const ombPeriod = 10

// ombMetrics are the latency fields of its result files: the suffix of the name, and the quantile.
var ombMetrics = []struct {
	name string
	q    float64
}{{"50pct", 0.5}, {"75pct", 0.75}, {"95pct", 0.95}, {"99pct", 0.99}, {"999pct", 0.999}, {"9999pct", 0.9999},
	{"99999pct", 0.99999}, {"Max", 1}}

// OMB returns one repetition as a result of the OpenMessaging Benchmark, for JSON. It has the fields of TestResult that
// Lockstep also measures. publishDelayLatency and partitions have no equivalent and are left out, as are values that
// the outcome does not have.
func OMB(run *runs.Run, o plan.Outcome) (map[string]any, error) {
	p := run.Plan()
	all := parts(p, []plan.Outcome{o})
	if len(all) == 0 {
		return nil, fmt.Errorf("export task %s: run %s has no such task", o.Task, p.ID)
	}
	x := all[0]
	m, err := run.Record(o.Task)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"workload": p.Name, "driver": x.task.Cell.Broker.Name}
	if name := x.task.Cell.Name(); name != "" {
		out["workload"] = p.Name + " " + name
	}
	shape(out, x.task.Cell.Workload)
	k := omb{out: out, m: m, o: o, measured: o.Measured.D().Seconds(),
		from:      judge.MeasuredFrom(x.task.Cell.Workload, o.Cut.D(), m),
		subs:      max(1, x.task.Cell.Workload.Topology.Subscriptions),
		undrained: judge.UndrainedOf(x.task.Cell.Workload, m, o.Ledger, judge.FactsOf(o, m).DrainCut)}
	k.rates(x.task.Cell.Workload)
	k.latency("publishLatency", "PublishLatency", record.Publish, "publish.p50")
	k.latency("endToEndLatency", "EndToEndLatency", record.EndToEnd, "e2e.p50")
	return out, nil
}

// shape adds the workload, as far as its numbers per topic are whole.
func shape(out map[string]any, w plan.Workload) {
	if len(w.Groups) > 0 {
		return // each group has its own
	}
	out["messageSize"] = w.Message.Size
	out["topics"] = w.Topology.Queues
	if n := w.Publishers.Nodes * w.Publishers.Threads; w.Topology.Queues > 0 && n%w.Topology.Queues == 0 {
		out["producersPerTopic"] = n / w.Topology.Queues
	}
	if n := w.Consumers.Nodes * w.Consumers.Threads; w.Topology.Queues > 0 && n%w.Topology.Queues == 0 {
		out["consumersPerTopic"] = n / w.Topology.Queues // of one subscription, as in that benchmark
	}
}

type omb struct {
	out      map[string]any
	m        *record.Merged
	o        plan.Outcome
	from     int     // the second of the measurement from which all agents ran
	measured float64 // seconds from then on
	subs     int
	// messages that were not delivered when the drain timed out: in the whole measurement, and in no period
	undrained judge.Undrained
}

// periods calls f with the first second and the end of every complete period.
func (k omb) periods(f func(from, to int)) {
	end := float64(k.from) + k.measured
	if k.measured < ombPeriod {
		if k.measured > 0 {
			f(k.from, int(math.Ceil(end)))
		}
		return
	}
	for from := k.from; from+ombPeriod <= int(end); from += ombPeriod {
		f(from, from+ombPeriod)
	}
}

// rates adds the publish, error and consume rates and the backlog, per period.
func (k omb) rates(w plan.Workload) {
	publish, failed, consume, backlog := []float64{}, []float64{}, []float64{}, []int64{}
	k.periods(func(from, to int) {
		per := func(c record.Counter) float64 {
			return float64(k.m.Sum(c, from, to)) / (min(float64(to), float64(k.from)+k.measured) - float64(from))
		}
		publish, failed, consume = append(publish, per(record.Sent)), append(failed, per(record.PublishErrors)),
			append(consume, per(record.Unique))
		const ever = -1 << 40
		sent, received := k.m.Sum(record.Sent, ever, to), k.m.Sum(record.Unique, ever, to)
		backlog = append(backlog, max(0, int64(k.subs)*sent-received))
	})
	if w.Publishers.Nodes > 0 || len(w.Groups) > 0 {
		k.out["publishRate"], k.out["publishErrorRate"] = publish, failed
	}
	if w.Consumers.Nodes > 0 || len(w.Groups) > 0 {
		k.out["consumeRate"] = consume
	}
	if w.Publishers.Nodes > 0 && w.Consumers.Nodes > 0 && len(w.Groups) == 0 {
		k.out["backlog"] = backlog
	}
}

// latency adds a latency in milliseconds, per period and for the whole measurement. It adds nothing if the outcome has
// no number for value.
func (k omb) latency(name, aggregated string, s record.Series, value string) {
	if v, has := k.o.Values[value]; !has || v.NA != "" {
		return
	}
	lists := map[string][]float64{}
	windows := k.m.Windows()
	k.periods(func(from, to int) {
		var period []record.Window
		for _, w := range windows {
			if w.Measured && from <= w.Index && w.Index < to {
				period = append(period, w)
			}
		}
		sum, _ := judge.WithUnanswered(s, func(of record.Series) *record.Hist { return record.HistOf(of, period) },
			k.subs, judge.Undrained{})
		for field, ms := range metrics(sum) {
			lists[field] = append(lists[field], ms)
		}
	})
	for field, list := range lists {
		k.out[name+field] = list
	}
	whole, _ := judge.WithUnanswered(s, k.m.Hist, k.subs, k.undrained)
	quantiles := map[string]float64{}
	for _, percent := range []float64{25, 50, 75, 90, 95, 99, 99.9, 99.99, 99.999, 100} {
		quantiles[fmt.Sprintf("%g", percent)] = ms(whole.Quantile(percent / 100))
	}
	quantiles["0"] = ms(whole.Min())
	k.out["aggregated"+aggregated+"Quantiles"] = quantiles
	for field, ms := range metrics(whole) {
		k.out["aggregated"+aggregated+field] = ms
	}
}

// metrics returns the latencies of a distribution in milliseconds, by the suffix of the field.
func metrics(h *record.Hist) map[string]float64 {
	all := map[string]float64{"Avg": h.Mean() / 1e6}
	for _, f := range ombMetrics {
		all[f.name] = ms(h.Quantile(f.q))
	}
	return all
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }
