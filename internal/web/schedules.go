package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/schedule"
)

// slotForm is the format of slots, in the time zone of the schedule.
const slotForm = "Mon 2006-01-02 15:04 MST"

// maxSlots is the number of next slots on a page.
const maxSlots = 5

// scheduleView is a schedule with the texts that pages show.
type scheduleView struct {
	Schedule schedule.Schedule
	Error    string // why the schedule cannot be used
	Next     []string
	Now      string
	Current  runLink // the active run; without an id: none
	Flags    []string
	Entries  []entryView // newest first
}

// entryView is one slot of the history with its result.
type entryView struct {
	Entry   schedule.Entry
	Link    runLink // without an id: the slot has no run
	Slot    string
	Class   string
	Results []remark // results of comparison hooks
	Digest  string   // link to the digest of the run; empty: the copy has none
}

// remark is the output of a comparison hook.
type remark struct {
	Hook, Title string
	Lines       []string
	Text        string // other output, as a text or indented JSON
}

// link names the runs of the schedule. names contains the names of runs by id.
func (v *scheduleView) link(names map[string]string) {
	if current := v.Schedule.Current; current != nil {
		v.Current = runLink{current.Run, names[current.Run]}
	}
	for i, e := range v.Entries {
		v.Entries[i].Link = runLink{e.Entry.Run, names[e.Entry.Run]}
	}
}

// Last returns the newest entry, or nil.
func (v scheduleView) Last() *entryView {
	if len(v.Entries) == 0 {
		return nil
	}
	return &v.Entries[0]
}

// describe returns a schedule with its state, next slots and history.
func describe(s schedule.Schedule, now time.Time) (scheduleView, error) {
	v := scheduleView{Schedule: s, Now: stateText(s)}
	table, err := schedule.NewTimetable(s.Cron, s.Zone)
	if err != nil {
		return v, err
	}
	for next := table.Next(now); !s.Paused && len(v.Next) < maxSlots && !next.IsZero(); next = table.Next(next) {
		v.Next = append(v.Next, next.Format(slotForm))
	}
	v.Flags = plan.Source{Quick: s.Matrix.Quick, Set: s.Matrix.Set, Filter: s.Matrix.Filter}.Flags()
	for _, e := range slices.Backward(s.History) {
		v.Entries = append(v.Entries, entryView{Entry: e, Slot: e.At.In(table.Zone()).Format(slotForm),
			Class: entryClass(e), Results: compared(e.Compared)})
	}
	return v, nil
}

// stateText returns the current state of a schedule as text.
func stateText(s schedule.Schedule) string {
	var words []string
	switch {
	case s.Current != nil:
		words = append(words, string(s.Current.State))
	case s.Asked != nil:
		words = append(words, "a run was requested")
	}
	if s.Paused {
		words = append(words, "paused")
	}
	if len(words) == 0 {
		return "waiting for its next slot"
	}
	return strings.Join(words, ", ")
}

func entryClass(e schedule.Entry) string {
	switch {
	case e.State == schedule.Skipped || e.State == schedule.Gone:
		return "idle"
	case e.State != schedule.Done || e.Tasks.Invalid > 0:
		return "invalid"
	case e.Tasks.Unknown > 0:
		return "unknown"
	}
	return "valid"
}

// compared returns the results of comparison hooks, sorted by the name of the hook. Old entries are a text without
// names.
func compared(kept json.RawMessage) (all []remark) {
	var byHook map[string]json.RawMessage
	if json.Unmarshal(kept, &byHook) != nil {
		if len(kept) > 0 {
			all = append(all, saidBy("comparison", kept))
		}
		return all
	}
	for _, hook := range slices.Sorted(maps.Keys(byHook)) {
		all = append(all, saidBy(hook, byHook[hook]))
	}
	return all
}

func saidBy(hook string, printed json.RawMessage) remark {
	one := remark{Hook: hook}
	var read struct {
		Title string
		Lines []string
	}
	if json.Unmarshal(printed, &read) == nil && read.Title != "" {
		one.Title, one.Lines = read.Title, read.Lines
		return one
	}
	var text bytes.Buffer
	if json.Unmarshal(printed, &one.Text) != nil && json.Indent(&text, printed, "", "  ") == nil {
		one.Text = text.String()
	}
	return one
}

// CameOf returns the result of an entry as text.
func (e entryView) CameOf() string {
	tasks := e.Entry.Tasks
	if tasks.Total() == 0 {
		return string(e.Entry.State)
	}
	return fmt.Sprintf("%s: %d valid, %d invalid, %d failed", e.Entry.State, tasks.Valid, tasks.Invalid, tasks.Unknown)
}
