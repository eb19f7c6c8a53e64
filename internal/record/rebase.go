package record

func shiftEvents(events []Event, by int64) []Event {
	for i := range events {
		events[i].At -= by
	}
	return events
}

func shiftProbes(samples []ProbeSample, by int64) []ProbeSample {
	for i := range samples {
		samples[i].At -= by
	}
	return samples
}

func shiftClocks(samples []ClockSample, by int64) []ClockSample {
	for i := range samples {
		samples[i].At -= by
	}
	return samples
}

func shiftGaps(gaps []Gap, by int64) []Gap {
	for i := range gaps {
		g := &gaps[i]
		g.From, g.To, g.Waited = g.From-by, g.To-by, g.Waited-by
	}
	return gaps
}

// shiftLast keeps 0, which means never. A time that would become 0 becomes -1.
func shiftLast(last, by int64) int64 {
	switch last {
	case 0:
		return 0
	case by:
		return -1
	}
	return last - by
}
