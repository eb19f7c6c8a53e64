package record

import "time"

// Begin returns the beginning of the measurement since T0, if it was determined during the load (Snapshot.Begin). It
// returns 0 if no agent has reported one.
func (m *Merged) Begin() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Duration(m.begin)
}

// End returns the end of the last window since T0, rounded up to a whole second.
func (m *Merged) End() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	end := int64(0)
	for _, w := range m.windows {
		end = max(end, m.base+w.Start+w.Length)
	}
	return time.Duration((end + second - 1) / second * second)
}

// Rebase makes all times of the record count from the time from after T0, which must be whole seconds. It also applies
// to snapshots that are added later. It is used when the measurement does not begin at T0. It may be called repeatedly.
func (m *Merged) Rebase(from time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	by := int64(from) - m.base
	if by == 0 {
		return
	}
	m.base = int64(from)
	m.shift(by)
	for _, g := range m.groups { // later snapshots reach groups already shifted
		g.mu.Lock()
		g.shift(by)
		g.mu.Unlock()
	}
}

// shift subtracts by from all times. The caller holds mu.
func (m *Merged) shift(by int64) {
	old := m.windows
	m.windows = make(map[windowKey]*Window, len(old))
	for _, w := range old {
		w.shift(by)
		m.windows[windowKey{w.Index, w.Measured}] = w
	}
	for _, samples := range m.hosts {
		shiftHosts(samples, by)
	}
	for _, agents := range m.observed {
		for _, samples := range agents {
			shiftHosts(samples, by)
		}
	}
	shiftEvents(m.events, by)
	shiftProbes(m.probes, by)
	for binding, r := range m.bindings.first {
		m.bindings.first[binding] = r.shifted(by)
	}
	for i, r := range m.bindings.others {
		m.bindings.others[i] = r.shifted(by)
	}
	for _, samples := range m.clockSamples {
		shiftClocks(samples, by)
	}
	shiftGaps(m.gaps, by)
	for agent := range m.reportedUntil {
		m.reportedUntil[agent] -= by
	}
	for agent, l := range m.last {
		m.last[agent] = Last{shiftLast(l.Send, by), shiftLast(l.Confirm, by), shiftLast(l.Delivery, by)}
	}
	m.firstDelivery = shiftLast(m.firstDelivery, by)
	if !m.epoch.IsZero() {
		m.epoch = m.epoch.Add(time.Duration(by))
	}
}

// shifted returns the snapshot with by subtracted from all its times. s is not changed.
func (s Snapshot) shifted(by int64) Snapshot {
	s.At -= by
	s.Windows = append([]Window(nil), s.Windows...)
	for i := range s.Windows {
		s.Windows[i].shift(by)
	}
	if s.Host.At != 0 {
		s.Host.At -= by
	}
	s.Events = shiftEvents(append([]Event(nil), s.Events...), by)
	s.Probes = shiftProbes(append([]ProbeSample(nil), s.Probes...), by)
	s.Bindings = append([]BindingDelivery(nil), s.Bindings...)
	for i, r := range s.Bindings {
		s.Bindings[i] = r.shifted(by)
	}
	s.LastSend, s.LastConfirm, s.LastDelivery = shiftLast(s.LastSend, by), shiftLast(s.LastConfirm, by),
		shiftLast(s.LastDelivery, by)
	s.FirstDelivery, s.LastInterrupted = shiftLast(s.FirstDelivery, by), shiftLast(s.LastInterrupted, by)
	s.Clocks = shiftClocks(append([]ClockSample(nil), s.Clocks...), by)
	s.Gaps = shiftGaps(append([]Gap(nil), s.Gaps...), by)
	if !s.Epoch.IsZero() {
		s.Epoch = s.Epoch.Add(time.Duration(by))
	}
	return s
}

func (w *Window) shift(by int64) {
	w.Index -= int(by / second)
	w.Start -= by
}

func shiftHosts(samples []HostSample, by int64) {
	for i := range samples {
		samples[i].At -= by
	}
}

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

func (r BindingDelivery) shifted(by int64) BindingDelivery {
	r.Called, r.Sent, r.At = r.Called-by, r.Sent-by, r.At-by
	return r
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

// Range calls f with each window summed over the agents, unsorted, while it holds the lock. f must not keep or change
// the window.
func (m *Merged) Range(f func(*Window)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.windows {
		f(w)
	}
}
