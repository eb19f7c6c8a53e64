// Package schedule has the state and the rules of schedules, without a clock, a network or files: slots, policies,
// history, and notices for hooks. The leader has the clock and the store. Every change of a Schedule is a method that
// can be repeated on a newer copy.
package schedule

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// Policies for slots that come while no controller leads (MissedRuns), and while the schedule's last run has not ended
// (Overlap).
const (
	MissedSkip      = "skip"
	MissedOnce      = "once" // the last missed slot gets a run, if it is not too old
	OverlapSkip     = "skip"
	OverlapQueueOne = "queue-one" // one slot waits, further ones are skipped
)

// Limits of a schedule, which is one value of the control plane.
const (
	maxText    = 256 << 10 // bytes of a matrix
	maxHistory = 100
	maxHooks   = 10
	maxWithin  = 7 * 24 * time.Hour
	maxFlags   = 100
	maxFlag    = 4 << 10
	maxStored  = 2 << 20 // bytes of a schedule with its history
	maxRunID   = 200     // bytes
)

// Schedule is one schedule with its state, as stored on the control plane. The text of its matrix contains no secrets.
// Not safe for concurrent use.
type Schedule struct {
	Version int    `json:"version"` // plan.RecordFormat
	ID      string `json:"id"`      // unique among all schedules that ever had its name
	Edit    int    `json:"edit"`    // counts changes by people
	Definition

	Added   time.Time `json:"added"`
	Changed time.Time `json:"changed"`
	By      string    `json:"by"` // user@host of the last change
	Paused  bool      `json:"paused,omitempty"`

	Since   time.Time `json:"since"`             // all slots up to this time are settled
	Asked   *Slot     `json:"asked,omitempty"`   // a user has requested a run now
	Waiting *Slot     `json:"waiting,omitempty"` // for the end of Current's run
	Current *Entry    `json:"current,omitempty"` // its run is being made, queued or executed
	History []Entry   `json:"history,omitempty"` // oldest first
}

// Definition is the part of a schedule that users define.
type Definition struct {
	Name       string        `json:"name"`
	Cron       string        `json:"cron"`
	Zone       string        `json:"tz"`
	MissedRuns string        `json:"missedRuns"`
	Within     plan.Duration `json:"within"` // MissedOnce: maximum age of a missed slot that gets a run
	Overlap    string        `json:"overlap"`
	Hooks      []string      `json:"hooks,omitempty"` // names in the controllers' hooks file
	Matrix     Matrix        `json:"matrix"`
}

// Matrix is the matrix at the time when the schedule was added, and the flags that narrow it.
type Matrix struct {
	File   string   `json:"file"` // base name
	Path   string   `json:"path"` // on the host of the user who added it
	Server string   `json:"server,omitempty"`
	Text   string   `json:"text"`
	Quick  bool     `json:"quick,omitempty"`
	Set    []string `json:"set,omitempty"`
	Filter []string `json:"filter,omitempty"`
}

// Slot is a time at which a run is due.
type Slot struct {
	At     time.Time `json:"at"`
	Asked  bool      `json:"asked,omitempty"`  // requested by a user, not by the timetable
	By     string    `json:"by,omitempty"`     // the user who requested it
	Missed int       `json:"missed,omitempty"` // number of missed slots, up to this one
}

// Check returns all errors of a definition, one per line; nil: none. It does not check the contents of the matrix.
func (d Definition) Check() error {
	var errs []error
	report := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	report(!plan.IsName(d.Name, 64), "name %.80q: invalid; use up to 64 letters, digits, \".\", \"_\" and \"-\"",
		d.Name)
	_, err := NewTimetable(d.Cron, d.Zone)
	report(err != nil, "%w", err)
	report(d.MissedRuns != MissedSkip && d.MissedRuns != MissedOnce, "missed-runs %q: unknown policy; use %s or %s", d.MissedRuns,
		MissedSkip, MissedOnce)
	report(d.Overlap != OverlapSkip && d.Overlap != OverlapQueueOne, "overlap %q: unknown policy; use %s or %s", d.Overlap,
		OverlapSkip, OverlapQueueOne)
	report(d.Within < 0 || d.Within.D() > maxWithin, "within %s: out of range; use a duration up to %s", d.Within, maxWithin)
	report(len(d.Hooks) > maxHooks, "too many hooks (%d); use at most %d", len(d.Hooks), maxHooks)
	for i, hook := range d.Hooks {
		report(!plan.IsName(hook, 64), "hook %.80q: invalid name; use a name of the controller's --hooks file", hook)
		report(slices.Contains(d.Hooks[:i], hook), "hook %.80q: given twice; omit one", hook)
	}
	report(d.Matrix.Text == "" || len(d.Matrix.Text) > maxText, "matrix %s has %d bytes; use a matrix of 1 to %d",
		d.Matrix.File, len(d.Matrix.Text), maxText)
	flags := slices.Concat(d.Matrix.Set, d.Matrix.Filter)
	report(len(flags) > maxFlags, "too many --set and --filter flags (%d); use at most %d", len(flags), maxFlags)
	report(slices.ContainsFunc(flags, func(f string) bool { return len(f) > maxFlag }),
		"a --set or --filter is too long; use at most %d bytes", maxFlag)
	return errors.Join(errs...)
}

// Read reads a stored schedule. The error is the reason why it cannot be used.
func Read(r io.Reader) (Schedule, error) {
	var s Schedule
	if err := plan.Decode(r, maxStored, &s); err != nil {
		return s, fmt.Errorf("read schedule: %w", err)
	}
	if err := plan.CheckFormat(s.Version); err != nil {
		return s, fmt.Errorf("read schedule %.80q: %w", s.Name, err)
	}
	if err := errors.Join(s.Check(), s.checkState()); err != nil {
		return s, fmt.Errorf("read schedule %.80q: %w", s.Name, err)
	}
	return s, nil
}

// checkState returns an error if the history is too long, or a run has an invalid id: clients write schedules, and ids
// are used in paths and subjects.
func (s *Schedule) checkState() error {
	if len(s.History) > maxHistory {
		return fmt.Errorf("it has %d entries; the maximum is %d", len(s.History), maxHistory)
	}
	var ids []string
	for _, e := range s.History {
		ids = append(ids, e.Run, e.Previous)
	}
	if s.Current != nil {
		ids = append(ids, s.Current.Run, s.Current.Previous)
	}
	for _, id := range ids {
		if id == "" { // a slot without a run
			continue
		}
		if err := plan.CheckRunID(id); err != nil || len(id) > maxRunID {
			return cmp.Or(err, fmt.Errorf("the id of a run has %d bytes; the maximum is %d", len(id), maxRunID))
		}
	}
	return nil
}

// New returns a schedule whose slots begin after now. id distinguishes it from others of the same name.
func New(d Definition, id, by string, now time.Time) Schedule {
	return Schedule{Version: plan.RecordFormat, ID: id, Edit: 1, Definition: d, Added: now, Changed: now, By: by,
		Since: now}
}

// Redefine replaces the definition of a schedule. Its history and a run in flight stay. A waiting slot is skipped. Its
// slots begin again after now.
func (s *Schedule) Redefine(d Definition, by string, now time.Time) {
	s.skipWaiting("the schedule was replaced")
	s.Definition, s.Since = d, now
	s.edited(by, now)
}

// Pause stops all slots, including a waiting one, until Resume. The run in flight continues. Slots in that time do not
// count as missed.
func (s *Schedule) Pause(by string, now time.Time) {
	s.skipWaiting("the schedule was paused")
	s.Paused = true
	s.edited(by, now)
}

func (s *Schedule) skipWaiting(why string) {
	if s.Waiting != nil {
		s.skip(*s.Waiting, why)
	}
	s.Waiting = nil
}

// Resume starts the slots again after now.
func (s *Schedule) Resume(by string, now time.Time) {
	s.Paused, s.Since = false, now
	s.edited(by, now)
}

// Ask requests a run now, even if the schedule is paused. The error is the reason why there will be none.
func (s *Schedule) Ask(by string, now time.Time) error {
	switch {
	case s.Asked != nil:
		return fmt.Errorf("a run was already requested at %s, and no controller has started it yet",
			s.Asked.At.Format(time.RFC3339))
	case s.Current != nil && s.Overlap == OverlapSkip:
		return fmt.Errorf("its run %s is still active; wait for it, or cancel it", s.Current.Run)
	case s.Current != nil && s.Waiting != nil:
		return fmt.Errorf("its run %s is still active, and another run is queued", s.Current.Run)
	}
	s.Asked = &Slot{At: now.Truncate(time.Second), Asked: true, By: by}
	s.Edit++ // By and Changed stay, as the definition does not change
	return nil
}

func (s *Schedule) edited(by string, now time.Time) {
	s.Edit++
	s.By, s.Changed = by, now
}

// RunID returns the id of the run of a slot, which is the same for every controller. It consists of the slot's time,
// the schedule's name and a hash that makes it unique: letters, digits and "-".
func (s *Schedule) RunID(slot Slot) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d %v", s.ID, s.Name, slot.At.UnixNano(), slot.Asked))
	name := strings.Trim(strings.Map(func(r rune) rune {
		if r == '.' || r == '_' {
			return '-'
		}
		return r
	}, strings.ToLower(s.Name)), "-")
	return slot.At.UTC().Format("20060102-150405") + "-" + name[:min(len(name), 24)] + "-" + hex.EncodeToString(sum[:4])
}

// Clone returns a deep copy.
func (s Schedule) Clone() Schedule {
	copied := func(x *Slot) *Slot {
		if x == nil {
			return nil
		}
		y := *x
		return &y
	}
	s.Asked, s.Waiting = copied(s.Asked), copied(s.Waiting)
	if s.Current != nil {
		e := s.Current.clone()
		s.Current = &e
	}
	s.History = slices.Clone(s.History)
	for i := range s.History {
		s.History[i] = s.History[i].clone()
	}
	return s
}

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
	if late <= onTime {
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
	for _, earlier := range slices.Backward(s.History) {
		if earlier.Tasks.Total() > 0 {
			e.Previous = earlier.Run
			break
		}
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
	s.Current.State, s.Current.Why = MatrixError, why
	s.end(now)
	return true
}

// End records the result of Current's run: State, Why, Ended, Tasks and Problems of r. Its hooks are then pending.
func (s *Schedule) End(run string, r Entry) bool {
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
			if len(compared) > 0 && !e.compare(c.Hook, compared) {
				c.State, c.Why = CallFailed,
					fmt.Sprintf("its output is not stored: more than %d bytes with the other comparisons",
						MaxCompared)
			}
			c.Why = Cut(c.Why, maxProblem)
			e.Hooks[k] = c
			return true
		}
	}
	return false
}

// Uncalled returns the oldest entry with pending hooks; nil: none.
func (s *Schedule) Uncalled() *Entry {
	pending := func(c Call) bool { return c.State == CallPending }
	i := slices.IndexFunc(s.History, func(e Entry) bool { return slices.ContainsFunc(e.Hooks, pending) })
	if i < 0 {
		return nil
	}
	return &s.History[i]
}

// close adds an entry to the history and enforces the history's limits.
func (s *Schedule) close(e Entry) {
	e.Why = Cut(e.Why, maxWhy)
	s.History = append(s.History, e)
	if over := len(s.History) - maxHistory; over > 0 {
		s.History = slices.Delete(s.History, 0, over)
	}
	for i := range s.History[:max(0, len(s.History)-newest)] {
		if old := &s.History[i]; len(old.Compared) > maxOld {
			old.Compared, _ = json.Marshal(Cut(string(old.Compared), maxOld/2)) // a string always marshals
		}
	}
}

// Notice returns the notice of an entry for a hook. The caller adds the directories.
func (s *Schedule) Notice(e Entry, hook string) Notice {
	slot := e.At
	if zone, err := readZone(s.Zone); err == nil {
		slot = slot.In(zone)
	}
	n := Notice{Version: 1, Key: s.ID + "/" + e.Run + "/" + hook, Hook: hook, Schedule: s.Name,
		Slot: slot.Format(time.RFC3339), Asked: e.Asked,
		Missed: e.Missed, Run: e.Run, State: e.State, Why: e.Why, Started: e.Started, Ended: e.Ended, Tasks: e.Tasks,
		Problems: e.Problems, Previous: e.Previous, Comparison: e.Compared}
	if n.Problems == nil {
		n.Problems = []string{}
	}
	return n
}

// onTime is how late a slot may be handled without counting as missed: another controller takes the lead within
// seconds.
const onTime = time.Minute
