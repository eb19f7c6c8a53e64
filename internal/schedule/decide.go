package schedule

import (
	"fmt"
	"slices"
	"time"
)

// OnTime is how late a slot may be taken up without having been missed: somebody else takes the lead within seconds.
const OnTime = time.Minute

// Bounds of the look at slots that were missed, and of how often the making of a run is begun.
const (
	maxMissed = 1000
	maxBegun  = 3
)

// Wake is when Due has something to do next, by the timetable; zero: never.
func (s *Schedule) Wake(t *Timetable) time.Time {
	if s.Paused {
		return time.Time{}
	}
	return t.Next(s.Since)
}

// Due settles every slot up to now: it is started, waits behind the run before it, or is skipped by a policy, and why.
// It reports whether anything has changed; the slot to be started is Current then, and has to be stored before anything
// is done for it.
func (s *Schedule) Due(t *Timetable, now time.Time) (changed bool) {
	if s.Since.After(now.Add(time.Hour)) { // the clock that was read last time was wrong
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
	why := "no controller led when it came"
	if s.MissedRuns == MissedOnce {
		why += fmt.Sprintf(", and it is older than %s", s.Within)
	}
	if n > 1 {
		more := fmt.Sprint(n)
		if n == maxMissed {
			more += " or more"
		}
		why += fmt.Sprintf("; with it %s slots since %s", more, from.In(t.zone).Format(time.RFC3339))
	}
	s.skip(slot, why)
	return true
}

// passed is the last slot after Since up to now, and how many there are, up to maxMissed.
func (s *Schedule) passed(t *Timetable, now time.Time) (last time.Time, n int) {
	for next := t.Next(s.Since); !next.IsZero() && !next.After(now) && n < maxMissed; next = t.Next(next) {
		last, n = next, n+1
	}
	if n < maxMissed {
		return last, n
	}
	for reach := time.Hour; ; reach *= 2 { // there are many: look for the last one from now backwards
		for next := t.Next(now.Add(-reach)); !next.IsZero() && !next.After(now); next = t.Next(next) {
			last, reach = next, 0
		}
		if reach == 0 {
			return last, n
		}
	}
}

// arrive starts a slot, or does what the policy says if the last run is not over.
func (s *Schedule) arrive(slot Slot) {
	run := s.RunID(slot)
	if s.Current != nil && s.Current.Run == run || s.Waiting != nil && s.RunID(*s.Waiting) == run ||
		slices.ContainsFunc(s.History, func(e Entry) bool { return e.Run == run }) {
		return // the clock was put back: it has its run, had it, or waits already
	}
	switch {
	case s.Current == nil && s.Waiting == nil:
		s.begin(slot)
	case s.Current == nil: // what waits has come first
		s.begin(*s.Waiting)
		s.Waiting = &slot
	case s.Overlap == OverlapQueueOne && s.Waiting == nil:
		s.Waiting = &slot
	case s.Overlap == OverlapQueueOne:
		s.skip(slot, fmt.Sprintf("run %s is not over, and the slot of %s waits behind it", s.Current.Run,
			s.Waiting.At.Format(time.RFC3339)))
	default:
		s.skip(slot, fmt.Sprintf("run %s is not over", s.Current.Run))
	}
}

func (s *Schedule) begin(slot Slot) {
	e := Entry{Slot: slot, Run: s.RunID(slot), State: Starting}
	if last := s.Last(); last != nil {
		e.Previous = last.Run
	}
	s.Current = &e
}

// skip notes a slot that gets no run.
func (s *Schedule) skip(slot Slot, why string) {
	s.close(Entry{Slot: slot, State: Skipped, Why: why})
}

// Begin counts that the leader of an epoch makes the run of Current, which has to be stored before it does; however
// often it tries, it counts once. After a few that ended in the middle it gives the slot up instead: whatever ended
// them will end the next one, too. It reports whether anything has changed.
func (s *Schedule) Begin(run string, epoch uint64, now time.Time) bool {
	e := s.Current
	if e == nil || e.Run != run || e.State != Starting || e.Begun > 0 && e.Epoch == epoch {
		return false
	}
	if e.Begun >= maxBegun {
		s.Fail(run, fmt.Sprintf("%d controllers ended while they made a run of the matrix", e.Begun), now)
		return true
	}
	e.Begun++
	e.Epoch, e.Started = epoch, now
	return true
}

// Submit notes that the run of Current is in the queue.
func (s *Schedule) Submit(run string) bool {
	if s.Current == nil || s.Current.Run != run || s.Current.State != Starting {
		return false
	}
	s.Current.State = Submitted
	return true
}

// Fail notes that no run could be made of Current.
func (s *Schedule) Fail(run, why string, now time.Time) bool {
	if s.Current == nil || s.Current.Run != run || s.Current.State != Starting {
		return false
	}
	s.Current.State, s.Current.Why = Faulty, why
	s.end(now)
	return true
}

// Result is how the run of a slot ended.
type Result struct {
	State    State
	Why      string
	Ended    time.Time
	Tasks    Tasks
	Problems []string
}

// End notes how the run of Current ended; its hooks are pending from then on.
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

// Called notes what came of a hook's call, and what a comparison said.
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
					fmt.Sprintf("what it said is more than %d bytes with the other comparisons, and was not kept",
						MaxCompared)
			}
			c.Why = Cut(c.Why, maxWhy)
			e.Hooks[k] = c
			return true
		}
	}
	return false
}

// Uncalled is the oldest entry with hooks that are not called yet; nil: none.
func (s *Schedule) Uncalled() *Entry {
	for i := range s.History {
		if _, is := s.History[i].Pending(); is {
			return &s.History[i]
		}
	}
	return nil
}
