package schedule

import (
	"fmt"
	"slices"
	"time"
)

// OnTime is how late a slot may be handled without counting as missed: another controller takes the lead within
// seconds.
const OnTime = time.Minute

// maxMissed is the maximum number of missed slots that are counted. maxBegun is the maximum number of attempts to make
// a run.
const (
	maxMissed = 1000
	maxBegun  = 3
)

// Wake returns the time of the next slot; zero: there is none.
func (s *Schedule) Wake(t *Timetable) time.Time {
	if s.Paused {
		return time.Time{}
	}
	return t.Next(s.Since)
}

// Due settles every slot up to now: the slot is started, waits for the run before it, or is skipped with a reason. It
// reports whether anything has changed. A slot to be started becomes Current, which must be stored before its run is
// made.
func (s *Schedule) Due(t *Timetable, now time.Time) (changed bool) {
	if s.Since.After(now.Add(time.Hour)) { // the clock was wrong at the last reading
		s.Since, changed = now, true
	}
	if !s.Paused {
		changed = s.take(t, now) || changed
	}
	if s.Asked != nil {
		s.arrive(*s.Asked)
		s.Asked, changed = nil, true
	}
	if s.Current == nil && s.Waiting != nil {
		s.begin(*s.Waiting)
		s.Waiting, changed = nil, true
	}
	return changed
}

// take settles the slots of the timetable between Since and now.
func (s *Schedule) take(t *Timetable, now time.Time) bool {
	last, n := s.passed(t, now)
	if n == 0 {
		return false
	}
	from := s.Since
	s.Since = last
	late := now.Sub(last)
	slot := Slot{At: last, Missed: n}
	if late <= OnTime {
		slot.Missed--
		s.arrive(slot)
		return true
	}
	if s.MissedRuns == MissedOnce && late <= s.Within.D() {
		s.arrive(slot)
		return true
	}
	why := "no controller led at the time of the slot"
	if s.MissedRuns == MissedOnce {
		why += fmt.Sprintf(", and the slot is older than %s", s.Within)
	}
	if n > 1 {
		more := fmt.Sprint(n)
		if n == maxMissed {
			more += " or more"
		}
		why += fmt.Sprintf("; %s slots missed since %s", more, from.In(t.zone).Format(time.RFC3339))
	}
	s.skip(slot, why)
	return true
}

// passed returns the last slot after Since up to now, and the number of these slots, up to maxMissed.
func (s *Schedule) passed(t *Timetable, now time.Time) (last time.Time, n int) {
	for next := t.Next(s.Since); !next.IsZero() && !next.After(now) && n < maxMissed; next = t.Next(next) {
		last, n = next, n+1
	}
	if n < maxMissed {
		return last, n
	}
	for reach := time.Hour; ; reach *= 2 { // there are many: search backwards from now for the last one
		for next := t.Next(now.Add(-reach)); !next.IsZero() && !next.After(now); next = t.Next(next) {
			last, reach = next, 0
		}
		if reach == 0 {
			return last, n
		}
	}
}

// arrive starts a slot, or applies the overlap policy if the last run has not ended.
func (s *Schedule) arrive(slot Slot) {
	run := s.RunID(slot)
	if s.Current != nil && s.Current.Run == run || s.Waiting != nil && s.RunID(*s.Waiting) == run ||
		slices.ContainsFunc(s.History, func(e Entry) bool { return e.Run == run }) {
		return // the clock was set back: the slot has had its run, or waits already
	}
	switch {
	case s.Current == nil && s.Waiting == nil:
		s.begin(slot)
	case s.Current == nil: // the waiting slot is earlier
		s.begin(*s.Waiting)
		s.Waiting = &slot
	case s.Overlap == OverlapQueueOne && s.Waiting == nil:
		s.Waiting = &slot
	case s.Overlap == OverlapQueueOne:
		s.skip(slot, fmt.Sprintf("run %s is still active, and the slot of %s is queued", s.Current.Run,
			s.Waiting.At.Format(time.RFC3339)))
	default:
		s.skip(slot, fmt.Sprintf("run %s is still active", s.Current.Run))
	}
}

func (s *Schedule) begin(slot Slot) {
	e := Entry{Slot: slot, Run: s.RunID(slot), State: Starting}
	if last := s.Last(); last != nil {
		e.Previous = last.Run
	}
	s.Current = &e
}

// skip adds a slot without a run to the history.
func (s *Schedule) skip(slot Slot, why string) {
	s.close(Entry{Slot: slot, State: Skipped, Why: why})
}

// Begin counts an attempt of the leader of an epoch to make the run of Current. It must be stored before the attempt.
// Repeated attempts in one epoch count once. After maxBegun attempts that ended the controller, it gives the slot up,
// as the next attempt would probably end the same way. It reports whether anything has changed.
func (s *Schedule) Begin(run string, epoch uint64, now time.Time) bool {
	e := s.Current
	if e == nil || e.Run != run || e.State != Starting || e.Begun > 0 && e.Epoch == epoch {
		return false
	}
	if e.Begun >= maxBegun {
		s.Fail(run, fmt.Sprintf("%d controllers failed while they expanded the matrix", e.Begun), now)
		return true
	}
	e.Begun++
	e.Epoch, e.Started = epoch, now
	return true
}

// Submit records that the run of Current was queued.
func (s *Schedule) Submit(run string) bool {
	if s.Current == nil || s.Current.Run != run || s.Current.State != Starting {
		return false
	}
	s.Current.State = Submitted
	return true
}

// Fail records that no run could be made for Current.
func (s *Schedule) Fail(run, why string, now time.Time) bool {
	if s.Current == nil || s.Current.Run != run || s.Current.State != Starting {
		return false
	}
	s.Current.State, s.Current.Why = Faulty, why
	s.end(now)
	return true
}

// Result describes how the run of a slot ended.
type Result struct {
	State    State
	Why      string
	Ended    time.Time
	Tasks    Tasks
	Problems []string
}

// End records the result of Current's run. Its hooks are then pending.
func (s *Schedule) End(run string, r Result) bool {
	e := s.Current
	if e == nil || e.Run != run {
		return false
	}
	e.State, e.Why, e.Tasks = r.State, r.Why, r.Tasks
	for _, p := range r.Problems {
		e.Problem(p)
	}
	s.end(r.Ended)
	return true
}

func (s *Schedule) end(at time.Time) {
	e := *s.Current
	e.Ended = at
	for _, hook := range s.Hooks {
		e.Hooks = append(e.Hooks, Call{Hook: hook, State: CallPending})
	}
	s.Current = nil
	s.close(e)
}

// Called records the result of a hook call, and the output of a comparison.
func (s *Schedule) Called(run string, c Call, compared []byte) bool {
	for i := range s.History {
		e := &s.History[i]
		if e.Run != run {
			continue
		}
		for k := range e.Hooks {
			if e.Hooks[k].Hook != c.Hook || e.Hooks[k].State != CallPending {
				continue
			}
			if len(compared) > 0 && !e.Compare(c.Hook, compared) {
				c.State, c.Why = CallFailed,
					fmt.Sprintf("its output is not stored: more than %d bytes with the other comparisons",
						MaxCompared)
			}
			c.Why = Cut(c.Why, maxWhy)
			e.Hooks[k] = c
			return true
		}
	}
	return false
}

// Uncalled returns the oldest entry with pending hooks; nil: none.
func (s *Schedule) Uncalled() *Entry {
	for i := range s.History {
		if _, is := s.History[i].Pending(); is {
			return &s.History[i]
		}
	}
	return nil
}
