// Package judge turns the record of a task into its outcome: values, delivery accounting, flags and the verdict. It reads no clock and no file: the
// same record and facts give the same outcome.
package judge

import (
	"fmt"
	"math"
	"slices"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// Why there is no number. Reports tell apart what cannot be (a dash) from what did not work out.
const (
	NAFireAndForget = "fire-and-forget"
	NANoConfirms    = "no confirms"
	NAClosedLoop    = "closed loop"
	NANoConsumers   = "no consumers"
	NABacklog       = "backlog"
	NANoSamples     = "no samples"
	NAFewSamples    = "too few samples"
	NANotMeasured   = "not measured"
	NAApart         = "by count, an agent ended in its first second, and others later"
	NANoProcess     = "no process of the broker on an agent's host"
	NANotObserved   = "an observer of the broker was away"
	NANotFound      = "the broker's processes were not found by its observer"
	NANotSaid       = "not said by the broker"
	NANoChurn       = "no bindings made while messages flow"
	NAUndrained     = "undrained"
	NANoSearch      = "no search for capacity"
)

// Confirmed tells whether messages sent in this mode are confirmed by the broker.
func Confirmed(mode string) bool { return unconfirmedReason(mode) == "" }

// unconfirmedReason is why a mode has no send latency; empty if it has.
func unconfirmedReason(mode string) string {
	switch mode {
	case "fire-and-forget":
		return NAFireAndForget
	case "connection-per-message":
		return NANoConfirms
	}
	return ""
}

// judge is the work on one outcome.
type judge struct {
	task  plan.Task
	w     plan.Workload
	m     *record.Merge
	f     Facts
	tally record.Tally
	span  span
	subs  int  // subscriptions that have consumers: 0 without
	keeps bool // receiving kept up with sending
	out   plan.Outcome
	whole *judge // of the cell, where this is one of its groups

	known   map[string]track // what is known of agents' clocks
	windows []record.Window  // by count: read once
	every   everySecond      // read once
}

// Judge tells what came of a task: values, account, flags, verdict. The same record and facts give the same outcome. A record whose
// measurement did not begin at T0 is rebased to where it did.
func Judge(t plan.Task, m *record.Merge, f Facts) plan.Outcome {
	f.cut = Cut(t.Cell.Workload, m)
	m.Rebase(f.cut)
	var o plan.Outcome
	if len(t.Cell.Workload.Groups) > 0 {
		o = judgeGroups(t, m, f)
	} else {
		o = judgeOne(t, m, f, nil).out
	}
	for _, e := range f.Events {
		if e.Kind == eventTakenOver || e.Kind == EventNotObserved {
			o.Warnings = append(o.Warnings, e.Detail)
		}
	}
	return o
}

// Again judges a task again from its record and the facts that its outcome has. The record of a search is that of its last step.
func Again(t plan.Task, m *record.Merge, o plan.Outcome) plan.Outcome {
	facts := FactsOf(o, m)
	var again plan.Outcome
	if s := o.Search; s != nil && len(s.Steps) > 0 {
		last := s.Steps[len(s.Steps)-1]
		again = Searched(t, Judge(t.Step(last.Rate, last.Measure), m, facts), *s)
	} else {
		again = Judge(t, m, facts)
	}
	again.Try, again.Tries = o.Try, o.Tries
	return again
}

// judgeOne judges a task without groups, or one group of a whole.
func judgeOne(t plan.Task, m *record.Merge, f Facts, whole *judge) *judge {
	f.Agents = parts(m, f)
	j := &judge{task: t, w: t.Cell.Workload, m: m, f: f, whole: whole}
	if j.w.Consumers.Nodes > 0 {
		j.subs = max(1, j.w.Topology.Subscriptions)
	}
	j.tally = m.Tally(j.subs)
	j.span = spanOf(j.w, m)
	j.known = j.tracks()
	j.out = plan.Outcome{
		Version: plan.RecordFormat, Run: t.Run, Task: t.ID, Cell: t.Cell.ID, Index: t.Cell.Index, Repetition: t.Repetition,
		Values: map[string]plan.Value{}, Agents: f.Agents, Subject: f.Subject, Events: allEvents(m, f),
		Started: f.Started, Ended: f.Ended, Measured: plan.Duration(j.span.sending), Try: 1, Failure: f.Kind,
	}
	j.account()
	j.rates()
	j.latencies()
	j.highest()
	j.counts()
	j.failures()
	j.bytesRates()
	j.backlogs()
	j.gaps()
	j.hosts()
	j.probes()
	j.bindings()
	j.clocks()
	j.negatives()
	j.starts()
	j.warmup()
	j.network()
	j.drifting()
	for _, name := range []string{"capacity", "capacity.low", "capacity.high"} { // Searched knows
		j.na(name, NANoSearch)
	}
	j.doubts()
	j.verdict()
	return j
}

func (j *judge) number(name string, n float64, flags ...plan.Flag) {
	j.out.Values[name] = plan.Value{Number: n, Flags: flags}
}

func (j *judge) na(name, why string, flags ...plan.Flag) {
	j.out.Values[name] = plan.Value{NA: why, Flags: flags}
}

func (j *judge) warn(format string, args ...any) {
	j.out.Warnings = append(j.out.Warnings, fmt.Sprintf(format, args...))
}

// flag adds a flag to values, once each.
func (j *judge) flag(f plan.Flag, names ...string) {
	for _, name := range names {
		v := j.out.Values[name]
		if !slices.Contains(v.Flags, f) {
			v.Flags = append(slices.Clone(v.Flags), f)
			j.out.Values[name] = v
		}
	}
}

// span is the time that rates are per.
type span struct {
	byCount   bool
	windows   int           // record's windows 0 … windows-1 are the measurement
	sending   time.Duration // 0: nothing was measured
	receiving time.Duration
}

// spanOf is the measurement of a cell: its duration or, when publishers stop after a count, the time from the start of the measurement
// to the last confirm (unconfirmed modes: the last send) and to the last receipt. Rates are per the time in which all agents ran: see
// together.
func spanOf(w plan.Workload, m *record.Merge) span {
	s := span{windows: seconds(w.Measure.D()), sending: w.Measure.D(), receiving: w.Measure.D()}
	if w.Publishers.Count == 0 {
		return s
	}
	s.byCount = true
	last := m.Last().Send
	if Confirmed(w.Publishers.Mode) {
		last = max(last, m.Last().Confirm)
	}
	s.sending = max(0, time.Duration(last))
	s.receiving = max(0, time.Duration(m.Last().Receipt))
	s.windows = seconds(s.sending)
	return s
}

// seconds is the number of one-second windows in d, the last one perhaps shorter.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// counted is a counter over the measurement: events inside it or, by count, events of its messages.
func (j *judge) counted(c record.Counter) float64 {
	if !j.span.byCount {
		return float64(j.m.Sum(c, 0, j.span.windows))
	}
	if j.windows == nil {
		j.windows = j.m.Windows()
	}
	var n int64
	for i := range j.windows {
		if w := &j.windows[i]; w.Measured {
			n += w.Counts[c]
		}
	}
	return float64(n)
}

func (j *judge) rates() {
	sent := j.rate("send.rate", record.Sent)
	if why := unconfirmedReason(j.w.Publishers.Mode); why != "" {
		j.na("confirm.rate", why)
	} else {
		j.rate("confirm.rate", record.Confirmed)
	}
	j.out.Values["throughput"] = j.out.Values["send.rate"]
	if j.subs == 0 {
		j.na("receive.rate", NANoConsumers)
		return
	}
	j.rate("receive.rate", record.Unique)
	j.keeps = !builds(j.w.Consumers) && j.keepsUp()
	if sent && !j.keeps {
		j.flag(plan.Backlog, "throughput", "receive.rate")
	}
}

// rate sets a rate, per the time in which all agents ran, and reports whether it was measured. By count, consumers go on after publishers: if that time
// is all of the measurement, theirs is until the last delivery.
func (j *judge) rate(name string, c record.Counter) bool {
	from, to, per := j.together()
	j.out.Measured = plan.Duration(per)
	if j.span.byCount && to == j.span.windows && (c == record.Unique || c == record.ReceivedBytes) {
		to, per = math.MaxInt, max(per, j.span.receiving-time.Duration(from)*time.Second)
	}
	switch {
	case j.counted(record.Sent) == 0 || per <= 0 && (!j.span.byCount || j.span.sending <= 0 || j.degraded()):
		j.na(name, NANotMeasured)
		return false
	case per <= 0:
		j.na(name, NAApart)
		return false
	}
	j.number(name, float64(j.m.Sum(c, from, to))/per.Seconds())
	return true
}
