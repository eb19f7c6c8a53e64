package plan

import (
	"math"
	"strings"
)

// Direction is which way a value gets better.
type Direction string

// The directions.
const (
	HigherIsBetter Direction = "higher"
	LowerIsBetter  Direction = "lower"
	NeitherBetter  Direction = "" // a fact of the load or the surroundings
)

// Worst is a number that is worse than any: that of a repetition with a backlog.
func (d Direction) Worst() float64 {
	if d == HigherIsBetter {
		return math.Inf(-1)
	}
	return math.Inf(1)
}

// directions are those of values, or of all that begin so, where that is not the same as for their unit.
var directions = []struct {
	prefix string
	better Direction
}{
	{"lateness.", NeitherBetter}, {"pacing.", NeitherBetter}, {"agent.", NeitherBetter}, {"warmup.cut", NeitherBetter}, {"start.skew", NeitherBetter},
	{"sent", NeitherBetter}, {"confirmed", NeitherBetter}, {"received", NeitherBetter}, {"nacked", NeitherBetter}, {"joins", NeitherBetter},
	{"leaves", NeitherBetter}, {"processing.negative", NeitherBetter}, {"ports.exhausted", NeitherBetter},
	{"binding.made", NeitherBetter}, {"binding.removed", NeitherBetter}, {"binding.sent", NeitherBetter}, {"binding.received", NeitherBetter},
	{"throughput", HigherIsBetter},
	{"broker.memory", LowerIsBetter}, {"broker.cpu", LowerIsBetter}, {"broker.rss", LowerIsBetter}, {"broker.disk.", LowerIsBetter},
	{"broker.lag", LowerIsBetter}, {"broker.under_replicated", LowerIsBetter}, {"broker.", NeitherBetter},
}

// Better is which way the value gets better: rates that are higher, times and failures that are lower. What the load decides, what is of the
// generator alone, and most of what a broker says of itself is neither.
func (v ValueInfo) Better() Direction {
	_, name := InGroup(v.Name)
	for _, d := range directions {
		if strings.HasPrefix(name, d.prefix) {
			return d.better
		}
	}
	switch v.Unit {
	case PerSecond, BytesRate:
		return HigherIsBetter
	case Seconds, Count:
		return LowerIsBetter
	}
	return NeitherBetter
}

// ValueNamed describes a value by the name that tables give it, "bulk/send.p99" with its group; ok is false if there is none of that name.
func ValueNamed(name string) (v ValueInfo, ok bool) {
	group, plain := InGroup(name)
	for _, v := range Values() {
		if v.Name != plain {
			continue
		}
		if group != "" {
			v.Name, v.Title = name, group+": "+v.Title
		}
		return v, true
	}
	return ValueInfo{}, false
}
