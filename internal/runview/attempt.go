package runview

import (
	"slices"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
)

// maxSeries is the maximum number of metrics kept per attempt: two minutes.
const maxSeries = 120

// Attempt is an attempt in flight.
type Attempt struct {
	Ref     wire.Ref
	Started wire.RunEvent
	At      time.Time // the time of Started, or when that was read, whichever is earlier
	Task    plan.Task // or a step of its search
	// Series are the last metrics in order of time, one per second of the load.
	Series []Metrics
	// Since is the time since the measurement began, as reported at ReportedAt. It is negative in warm-up, and Unsteady
	// while that start is not known. ReportedAt is zero before the load begins.
	Since      time.Duration
	ReportedAt time.Time
	// Abandoned means that the attempt's controller was lost. Its agents will end it.
	Abandoned bool

	meter   *meter
	metered int64 // time of the newest of Series, ns since T0; 0: none
}

// Unsteady is the value of Since and Metrics.Since while the start of the measurement is not known.
const Unsteady time.Duration = -1

// Phase is the phase of an attempt.
type Phase string

// The phases in order.
const (
	Connecting  Phase = "connecting"
	UntilSteady Phase = "warm-up until steady" // of unknown duration
	WarmUp      Phase = "warm-up"
	Measuring   Phase = "measuring"
	Draining    Phase = "draining"
	Abandoned   Phase = "abandoned"
)

// maxAhead is the maximum time since the last report that is added. Agents report once per second.
const maxAhead = 2 * time.Second

// Phase returns the phase at the time now, and the time since the measurement began, which is negative in warm-up.
func (a *Attempt) Phase(now time.Time) (p Phase, since time.Duration) {
	switch since = a.Since + min(max(0, now.Sub(a.ReportedAt)), maxAhead); {
	case a.Abandoned:
		return Abandoned, 0
	case a.ReportedAt.IsZero():
		return Connecting, 0
	case a.Since == Unsteady:
		return UntilSteady, 0
	case since < 0:
		return WarmUp, since
	case since < a.Task.Cell.Workload.Measure.D():
		return Measuring, since
	}
	return Draining, since
}

// Newest returns the newest metrics; nil: none.
func (a *Attempt) Newest() *Metrics {
	if len(a.Series) == 0 {
		return nil
	}
	return &a.Series[len(a.Series)-1]
}

// Takes reports whether a snapshot belongs to this attempt and to an agent with a part in it. The receiver may be nil.
func (a *Attempt) Takes(ref wire.Ref, s *record.Snapshot) bool {
	if a == nil || a.Abandoned || ref != a.Ref || wire.CheckData(a.Task, s) != nil {
		return false
	}
	observes := func(o wire.Observer) bool { return o.Agent == s.Agent }
	return slices.Contains(a.Started.Agents, s.Agent) || slices.ContainsFunc(a.Started.Observers, observes)
}

// add adds a snapshot. It reports whether there are new metrics, which are at least one second of the load apart. The
// interval is measured on the agents' time, so a late reader gets the earlier metrics at once.
func (a *Attempt) add(s *record.Snapshot, now time.Time) (metrics bool) {
	if s.Host.Broker != "" && len(s.Windows) == 0 || s.At == 0 { // an observer, or before the load
		return false
	}
	a.ReportedAt, a.Since = now, time.Duration(s.At-s.Begin)
	if s.Begin == 0 && a.Task.Cell.Workload.Steady.Auto {
		a.Since = Unsteady
	}
	a.meter.add(s)
	if a.metered != 0 && s.At-a.metered < int64(time.Second) {
		return false
	}
	a.metered = s.At
	f := a.meter.metrics()
	f.Since = a.Since
	if a.Series = append(a.Series, f); len(a.Series) > maxSeries {
		a.Series = slices.Delete(a.Series, 0, len(a.Series)-maxSeries)
	}
	return true
}
