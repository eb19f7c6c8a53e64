package plan

import "time"

// MinGap returns the minimum length of recorded gaps: between two confirms of a publisher, and between two deliveries
// of a consumer. It is 20 ms, or three times the expected time between two of them if that is longer. The expected time
// follows from the lowest rate, shared equally by all threads, and is at least the simulated latency plus jitter.
func (w Workload) MinGap() (confirm, delivery time.Duration) {
	const minimum = 20 * time.Millisecond
	between := func(threads int) time.Duration {
		expected := w.Network.Latency.D() + w.Network.Jitter.D()
		if rate := w.Publishers.lowest(); rate > 0 {
			expected = max(expected, time.Duration(float64(threads)/rate*float64(time.Second)))
		}
		return max(minimum, 3*expected)
	}
	return between(w.Publishers.Nodes * w.Publishers.Threads), between(w.Consumers.Nodes * w.Consumers.Threads)
}

// lowest returns the lowest configured rate above zero of the whole cell; 0 if none is configured.
func (p Publishers) lowest() float64 {
	rate := p.Rate
	for _, s := range p.Profile {
		for _, r := range []*float64{&s.Rate, s.To} {
			if r != nil && *r > 0 && (rate == 0 || *r < rate) {
				rate = *r
			}
		}
	}
	return rate
}
