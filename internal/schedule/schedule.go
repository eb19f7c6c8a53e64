// Package schedule has the state and the rules of schedules, without a clock, a network or files: slots, policies,
// history, and notices for hooks. The leader has the clock and the store. Every change of a Schedule is a method that
// can be repeated on a newer copy.
package schedule

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"lockstep/internal/plan"
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
	MaxText    = 256 << 10 // bytes of a matrix
	MaxHistory = 100
	MaxHooks   = 10
	MaxWithin  = 7 * 24 * time.Hour
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

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Check returns all errors of a definition, one per line; nil: none. It does not check the contents of the matrix.
func (d Definition) Check() error {
	var faults []error
	report := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	report(!plainName.MatchString(d.Name), "name %.80q: invalid; use up to 64 letters, digits, \".\", \"_\" and \"-\"",
		d.Name)
	_, err := NewTimetable(d.Cron, d.Zone)
	report(err != nil, "%w", err)
	report(d.MissedRuns != MissedSkip && d.MissedRuns != MissedOnce, "missed-runs %q: unknown policy; use %s or %s", d.MissedRuns,
		MissedSkip, MissedOnce)
	report(d.Overlap != OverlapSkip && d.Overlap != OverlapQueueOne, "overlap %q: unknown policy; use %s or %s", d.Overlap,
		OverlapSkip, OverlapQueueOne)
	report(d.Within < 0 || d.Within.D() > MaxWithin, "within %s: out of range; use a duration up to %s", d.Within, MaxWithin)
	report(len(d.Hooks) > MaxHooks, "too many hooks (%d); use at most %d", len(d.Hooks), MaxHooks)
	for i, hook := range d.Hooks {
		report(!plainName.MatchString(hook), "hook %.80q: invalid name; use a name of the controller's --hooks file", hook)
		report(slices.Contains(d.Hooks[:i], hook), "hook %.80q: given twice; omit one", hook)
	}
	report(d.Matrix.Text == "" || len(d.Matrix.Text) > MaxText, "matrix %s has %d bytes; use a matrix of 1 to %d",
		d.Matrix.File, len(d.Matrix.Text), MaxText)
	flags := slices.Concat(d.Matrix.Set, d.Matrix.Filter)
	report(len(flags) > maxFlags, "too many --set and --filter flags (%d); use at most %d", len(flags), maxFlags)
	report(slices.ContainsFunc(flags, func(f string) bool { return len(f) > maxFlag }),
		"a --set or --filter is too long; use at most %d bytes", maxFlag)
	return errors.Join(faults...)
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
	if len(s.History) > MaxHistory {
		return fmt.Errorf("it has %d entries; the maximum is %d", len(s.History), MaxHistory)
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

// Redefine replaces the definition of a schedule. Its history and a run in flight stay. Its slots begin again after
// now.
func (s *Schedule) Redefine(d Definition, by string, now time.Time) {
	s.Definition, s.Since, s.Waiting = d, now, nil
	s.edited(by, now)
}

// Pause stops all slots, including a waiting one, until Resume. The run in flight continues. Slots in that time do not
// count as missed.
func (s *Schedule) Pause(by string, now time.Time) {
	s.Paused, s.Waiting = true, nil
	s.edited(by, now)
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

// Last returns the newest entry of the history whose run has outcomes; nil: none.
func (s *Schedule) Last() *Entry {
	for i := len(s.History) - 1; i >= 0; i-- {
		if s.History[i].Tasks.Total() > 0 {
			return &s.History[i]
		}
	}
	return nil
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

func (e Entry) clone() Entry {
	e.Problems, e.Hooks = slices.Clone(e.Problems), slices.Clone(e.Hooks)
	return e
}
