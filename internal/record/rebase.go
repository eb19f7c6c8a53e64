package record

// shift moves the times of samples to a later origin. times returns the fields of a sample that are times.
func shift[T any](samples []T, by int64, times func(*T) []*int64) {
	for i := range samples {
		for _, at := range times(&samples[i]) {
			*at -= by
		}
	}
}

func hostTimes(s *HostSample) []*int64   { return []*int64{&s.At} }
func eventTimes(e *Event) []*int64       { return []*int64{&e.At} }
func probeTimes(s *ProbeSample) []*int64 { return []*int64{&s.At} }
func clockTimes(s *ClockSample) []*int64 { return []*int64{&s.At} }
func gapTimes(g *Gap) []*int64           { return []*int64{&g.From, &g.To, &g.Waited} }

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
