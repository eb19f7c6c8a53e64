package plan

import "time"

// MinGap is the shortest time without a confirm that a publisher keeps, and without a delivery that a consumer keeps:
// shorter ones cannot be told from the ordinary time between two of them. It is 20 ms, or three times that time where
// the workload says it: each of the threads has an equal part of the (lowest) rate, and where nothing is due at times
// of its own no confirm comes in less than a round trip.
func (w Workload) MinGap() (confirm, delivery time.Duration) {
	const least = 20 * time.Millisecond
	between := func(threads int) time.Duration {
		expected := w.Network.Latency.D() + w.Network.Jitter.D()
		if rate := w.Publishers.lowest(); rate > 0 {
			expected = max(expected, time.Duration(float64(threads)/rate*float64(time.Second)))
		}
		return max(least, 3*expected)
	}
	return between(w.Publishers.Nodes * w.Publishers.Threads), between(w.Consumers.Nodes * w.Consumers.Threads)
}

// lowest is the lowest rate above zero that the publishers are to send at; 0: none is said.
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
