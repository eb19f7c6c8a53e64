package engine

import (
	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
)

// lifetime determines when one thread of a role is active. Fields, and the method at, count ns since the beginning of
// the measurement. With warm-up "auto" that is not T0. The other methods count from T0. The cycles of a
// role's threads are shifted evenly against each other.
type lifetime struct {
	timeline *timeline

	from, to   int64
	stay, away int64 // length of active and inactive periods; 0: no cycles
	shift      int64 // of this thread's cycles
	always     int64 // always active from then on: consumers are active during the drain
}

// newLifetime returns nil for a thread that is always active.
func newLifetime(t *timeline, p plan.Lifetime, i, total int, always int64) *lifetime {
	if p == (plan.Lifetime{}) {
		return nil
	}
	l := &lifetime{timeline: t, from: int64(p.ConnectAt), to: forever, stay: int64(p.Stay), away: int64(p.Away),
		always: always}
	if p.DisconnectAt > 0 {
		l.to = int64(p.DisconnectAt)
	}
	l.shift = int64(float64(l.stay+l.away) * float64(i) / float64(max(1, total)))
	return l
}

// at reports whether the thread is active, and until when that does not change. During warm-up the state is that of the
// beginning of the measurement.
func (l *lifetime) at(now int64) (active bool, until int64) {
	now = max(now, 0)
	switch {
	case now >= l.always:
		return true, forever
	case now < l.from:
		return false, min(l.from, l.always)
	case now >= l.to:
		return false, l.always
	case l.stay == 0:
		return true, min(l.to, l.always)
	}
	period := l.stay + l.away
	at := (now - l.from + l.shift) % period
	if at < l.stay {
		return true, min(now+l.stay-at, l.to, l.always)
	}
	return false, min(now+period-at, l.always)
}

// activeSince returns the beginning of the active period that contains now. It returns -forever if the thread was
// already active in warm-up.
func (l *lifetime) activeSince(now int64) int64 {
	from := l.timeline.from.Load()
	if from == notYetKnown {
		return -forever
	}
	at := l.from
	now -= from
	switch {
	case now >= l.always:
		at = l.always
	case now <= 0:
		return -forever
	case l.stay > 0:
		at = max(at, now-(now-l.from+l.shift)%(l.stay+l.away))
	}
	if at <= 0 {
		return -forever
	}
	return at + from
}

// activeAtStart reports whether the thread is active when the load starts.
func (l *lifetime) activeAtStart() bool {
	if l == nil {
		return true
	}
	active, _ := l.at(0)
	return active
}

// activeAt reports whether the thread is active at a time, and until when. until is notYetKnown if the state does not
// change any more, or if the beginning of the measurement is not known.
func (l *lifetime) activeAt(now int64) (active bool, until int64) {
	from := l.timeline.from.Load()
	if from == notYetKnown {
		active, _ = l.at(0)
		return active, notYetKnown
	}
	if active, until = l.at(now - from); until == forever {
		return active, notYetKnown
	}
	return active, until + from
}

// wake returns the reading of the clock at which to call activeAt again. It is soon while the beginning of the
// measurement is not known.
func (l *lifetime) wake(until int64) int64 {
	if l.timeline.from.Load() == notYetKnown {
		return clock.Now() + int64(minNotice/2)
	}
	return min(until, forever) + l.timeline.origin.Load()
}
