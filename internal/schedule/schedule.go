// Package schedule is what a schedule is and does, without a clock, a network or a file: its slots, what comes of each
// by its policies, its history, and what hooks are told. Whoever leads keeps the time and the store; every change of a
// Schedule is a method that can be made again on a newer copy of it.
package schedule

import (
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

// Policies for slots that came while nobody led, and for those that come while the schedule's last run is not over.
const (
	MissedSkip      = "skip"
	MissedOnce      = "once" // the last one is caught up, if it is not too old
	OverlapSkip     = "skip"
	OverlapQueueOne = "queue-one" // one waits, further ones are skipped
)

// Bounds of what a schedule holds: it is one value of the control plane.
const (
	MaxText    = 256 << 10 // bytes of a matrix
	MaxHistory = 100
	MaxHooks   = 10
	MaxWithin  = 7 * 24 * time.Hour
	maxFlags   = 100
	maxFlag    = 4 << 10
)

// Schedule is one schedule with its state, as the control plane keeps it. Not safe for concurrent use; the text of its
// matrix holds no secrets.
type Schedule struct {
	Version int    `json:"version"` // plan.RecordFormat
	ID      string `json:"id"`      // of this schedule among all that ever had its name
	Edit    int    `json:"edit"`    // counts changes by people
	Definition

	Added   time.Time `json:"added"`
	Changed time.Time `json:"changed"`
	By      string    `json:"by"` // user@host of the last change
	Paused  bool      `json:"paused,omitempty"`

	Since   time.Time `json:"since"`             // all slots up to it are settled
	Asked   *Slot     `json:"asked,omitempty"`   // somebody wants a run now
	Waiting *Slot     `json:"waiting,omitempty"` // behind Current
	Current *Entry    `json:"current,omitempty"` // its run is being made, waits in the queue, or runs
	History []Entry   `json:"history,omitempty"` // oldest first
}

// Definition is what a person says of a schedule.
type Definition struct {
	Name       string        `json:"name"`
	Cron       string        `json:"cron"`
	Zone       string        `json:"tz"`
	MissedRuns string        `json:"missedRuns"`
	Within     plan.Duration `json:"within"` // MissedOnce: how old a slot may be that is caught up
	Overlap    string        `json:"overlap"`
	Hooks      []string      `json:"hooks,omitempty"` // names in the controllers' hooks file
	Matrix     Matrix        `json:"matrix"`
}

// Matrix is the matrix as it was when the schedule was added, and what narrows it.
type Matrix struct {
	File   string   `json:"file"` // base name
	Path   string   `json:"path"` // on the host of whoever added it
	Server string   `json:"server,omitempty"`
	Text   string   `json:"text"`
	Quick  bool     `json:"quick,omitempty"`
	Set    []string `json:"set,omitempty"`
	Filter []string `json:"filter,omitempty"`
}

// Slot is a time at which a run is due.
type Slot struct {
	At     time.Time `json:"at"`
	Asked  bool      `json:"asked,omitempty"`  // not by the timetable
	By     string    `json:"by,omitempty"`     // who asked
	Missed int       `json:"missed,omitempty"` // slots before it, or it and those before it, that came while nobody led
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Check returns every error of a definition, each on a line of its own; nil: there is none. It does not look into the
// matrix.
func (d Definition) Check() error {
	var faults []error
	report := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	report(!plainName.MatchString(d.Name), "name %.80q: give letters, digits, \".\", \"_\" and \"-\", at most 64",
		d.Name)
	_, err := NewTimetable(d.Cron, d.Zone)
	report(err != nil, "%w", err)
	report(d.MissedRuns != MissedSkip && d.MissedRuns != MissedOnce, "missed %q: give %s or %s", d.MissedRuns,
		MissedSkip, MissedOnce)
	report(d.Overlap != OverlapSkip && d.Overlap != OverlapQueueOne, "overlap %q: give %s or %s", d.Overlap,
		OverlapSkip, OverlapQueueOne)
	report(d.Within < 0 || d.Within.D() > MaxWithin, "within %s: give a duration up to %s", d.Within, MaxWithin)
	report(len(d.Hooks) > MaxHooks, "%d hooks: give %d at most", len(d.Hooks), MaxHooks)
	for i, hook := range d.Hooks {
		report(!plainName.MatchString(hook), "hook %.80q: give a name of the controllers' hooks file", hook)
		report(slices.Contains(d.Hooks[:i], hook), "hook %.80q is given twice", hook)
	}
	report(d.Matrix.Text == "" || len(d.Matrix.Text) > MaxText, "matrix %s has %d bytes: give one of 1 to %d",
		d.Matrix.File, len(d.Matrix.Text), MaxText)
	flags := slices.Concat(d.Matrix.Set, d.Matrix.Filter)
	report(len(flags) > maxFlags, "%d times --set and --filter: give %d at most", len(flags), maxFlags)
	report(slices.ContainsFunc(flags, func(f string) bool { return len(f) > maxFlag }),
		"a --set or --filter is longer than %d bytes", maxFlag)
	return errors.Join(faults...)
}

// Read returns a schedule as it was stored, or why it cannot be used.
func Read(r io.Reader) (Schedule, error) {
	var s Schedule
	if err := plan.Decode(r, plan.MaxDocument, &s); err != nil {
		return s, fmt.Errorf("read schedule: %w", err)
	}
	if err := plan.CheckFormat(s.Version); err != nil {
		return s, fmt.Errorf("read schedule %.80q: %w", s.Name, err)
	}
	if err := s.Check(); err != nil {
		return s, fmt.Errorf("read schedule %.80q: %w", s.Name, err)
	}
	return s, nil
}

// New is a schedule whose slots begin after now. id tells it from others of its name.
func New(d Definition, id, by string, now time.Time) Schedule {
	return Schedule{Version: plan.RecordFormat, ID: id, Edit: 1, Definition: d, Added: now, Changed: now, By: by,
		Since: now}
}

// Redefine changes what a person says of a schedule; its history and a run in flight stay, slots begin anew after now.
func (s *Schedule) Redefine(d Definition, by string, now time.Time) {
	s.Definition, s.Since, s.Waiting = d, now, nil
	s.edited(by, now)
}

// Pause makes no slot come any more, nor the one that waits, until Resume; the run in flight goes on. Slots that pass
// meanwhile are not missed.
func (s *Schedule) Pause(by string, now time.Time) {
	s.Paused, s.Waiting = true, nil
	s.edited(by, now)
}

// Resume has slots come again after now.
func (s *Schedule) Resume(by string, now time.Time) {
	s.Paused, s.Since = false, now
	s.edited(by, now)
}

// Ask wants a run now, paused or not. The error says why there will be none.
func (s *Schedule) Ask(by string, now time.Time) error {
	switch {
	case s.Asked != nil:
		return fmt.Errorf("a run was asked for at %s already, and no controller has taken it up yet",
			s.Asked.At.Format(time.RFC3339))
	case s.Current != nil && s.Overlap == OverlapSkip:
		return fmt.Errorf("its run %s is not over; wait for it, or cancel it", s.Current.Run)
	case s.Current != nil && s.Waiting != nil:
		return fmt.Errorf("its run %s is not over, and another waits behind it", s.Current.Run)
	}
	s.Asked = &Slot{At: now.Truncate(time.Second), Asked: true, By: by}
	s.Edit++ // and nothing of the schedule itself is changed
	return nil
}

func (s *Schedule) edited(by string, now time.Time) {
	s.Edit++
	s.By, s.Changed = by, now
}

// RunID is the id of the run of a slot, the same whoever makes it: by time of the slot, then name, then what tells it
// from all others.
func (s *Schedule) RunID(slot Slot) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d %v", s.ID, s.Name, slot.At.UnixNano(), slot.Asked))
	name := strings.Trim(strings.Map(func(r rune) rune {
		if r == '.' {
			return '-'
		}
		return r
	}, strings.ToLower(s.Name)), "-_")
	return slot.At.UTC().Format("20060102-150405") + "-" + name[:min(len(name), 24)] + "-" + hex.EncodeToString(sum[:4])
}

// Last is the newest entry of the history whose run came to an end with outcomes; nil: none.
func (s *Schedule) Last() *Entry {
	for i := len(s.History) - 1; i >= 0; i-- {
		if s.History[i].Tasks.Total() > 0 {
			return &s.History[i]
		}
	}
	return nil
}

// Clone is a copy that can be changed without changing s.
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
