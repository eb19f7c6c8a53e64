package judge

import (
	"slices"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// probesLeast is the part of the measurement's seconds that the broker has to have answered in, or the reader is told.
const probesLeast = 0.8

// moment is what a figure was at one time, all nodes added up.
type moment struct {
	at    time.Duration
	since time.Duration // the moment before, where the figure is of the time since then
	first bool          // there is none before
	value float64
}

// probes sets the figures that the broker says of itself. A moment that lacks a node which others have is left out: the sum of the rest would
// look like the whole. Means are weighed by time; medians and greatest values are of the samples.
func (j *judge) probes() {
	byName := map[string][]record.ProbeSample{}
	asked := map[int64]bool{}
	for _, s := range j.m.Probes() {
		byName[s.Name] = append(byName[s.Name], s)
		asked[s.At] = asked[s.At] || s.At >= 0 && time.Duration(s.At) <= j.length()
	}
	short := 0
	for _, f := range plan.Figures() {
		moments, incomplete := momentsOf(byName[f.Name], j.length())
		short = max(short, incomplete)
		mean, values := summary(f, moments, j.length())
		if len(values) == 0 {
			for _, s := range plan.FigureStatistics() {
				j.na(plan.FigureValue(f.Name, s), NANotSaid)
			}
			continue
		}
		j.figure(f.Name, mean, values)
	}
	if j.looksAtProcesses() {
		j.processFigures()
	} else {
		for _, f := range plan.ProcessFigures() {
			for _, s := range plan.FigureStatistics() {
				j.na(plan.FigureValue(f.Name, s), NANoProcess)
			}
		}
	}
	j.remarkProbes(asked, short)
}

// remarkProbes tells of seconds for which the broker's figures are not known.
func (j *judge) remarkProbes(asked map[int64]bool, short int) {
	answered := 0
	for _, in := range asked {
		if in {
			answered++
		}
	}
	whole := int(j.length() / time.Second)
	if len(asked) > 0 && float64(answered) < probesLeast*float64(whole) {
		j.warn("the broker told its figures %d times in a measurement of %d s: they are of those moments", answered, whole)
	}
	if short > 0 {
		j.warn("the broker's figures lacked a node %d times, which are left out of them", short)
	}
}

// momentsOf adds up the nodes of one figure's samples, sorted by time.
func momentsOf(samples []record.ProbeSample, span time.Duration) (moments []moment, incomplete int) {
	nodes := map[string]bool{}
	for _, s := range samples {
		if s.At >= 0 && time.Duration(s.At) <= span {
			nodes[s.Node] = true
		}
	}
	before, first := time.Duration(0), true
	for len(samples) > 0 {
		n := 1
		for n < len(samples) && samples[n].At == samples[0].At {
			n++
		}
		m := moment{at: time.Duration(samples[0].At), since: before, first: first}
		for _, s := range samples[:n] {
			m.value += s.Value
		}
		switch {
		case n >= len(nodes):
			moments = append(moments, m)
		case m.at >= 0 && m.at <= span:
			incomplete++
		}
		before, first, samples = m.at, false, samples[n:]
	}
	return moments, incomplete
}

// summary is the mean of a figure over the measurement, and its samples there. A sample of a moment stands for the time
// that is nearer to it than to its neighbours, and one of the time since the one before for that. The first of the
// latter has no known beginning: it counts only where there is no other.
func summary(f plan.Figure, moments []moment, span time.Duration) (mean float64, values []float64) {
	inside := slices.DeleteFunc(slices.Clone(moments), func(m moment) bool {
		if f.Since {
			m.at = (m.since + m.at) / 2
		}
		return m.at < 0 || m.at > span || f.Since && m.first && len(moments) > 1
	})
	var total float64
	for i, m := range inside {
		from, to := time.Duration(0), span
		if f.Since {
			from, to = max(m.since, 0), min(m.at, span)
		} else {
			if i > 0 {
				from = (inside[i-1].at + m.at) / 2
			}
			if i+1 < len(inside) {
				to = (m.at + inside[i+1].at) / 2
			}
		}
		values = append(values, m.value)
		length := max(time.Nanosecond, to-from).Seconds()
		total += length
		mean += (m.value - mean) * length / total
	}
	return mean, values
}
