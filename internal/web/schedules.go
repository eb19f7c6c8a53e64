package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/schedule"
)

// slotForm shows the time of a slot in its schedule's zone.
const slotForm = "Mon 2006-01-02 15:04 MST"

// maxSlots is how many slots to come are shown.
const maxSlots = 5

// scheduleView is a schedule as pages show it.
type scheduleView struct {
	schedule.Schedule
	Fault   string // why it cannot be used
	Next    []string
	Now     string
	Flags   []string
	Entries []entryView // newest first
}

// entryView is one slot of a history, and what came of it.
type entryView struct {
	schedule.Entry
	Slot   string
	Class  string
	Said   []remark // by comparison hooks
	Digest string   // link to the run's digest; empty: the controller's copy has none
}

// remark is what a comparison hook printed.
type remark struct {
	Hook, Title string
	Lines       []string
	Text        string // of hooks that do not print a title and lines: as it is, JSON indented
}

// Last is the newest entry.
func (v scheduleView) Last() *entryView {
	if len(v.Entries) == 0 {
		return nil
	}
	return &v.Entries[0]
}

func (s *site) schedules(r *http.Request) (view, error) {
	all, err := s.Conn.Schedules(r.Context())
	if err != nil {
		return view{}, err
	}
	var views []scheduleView
	for _, kept := range all {
		v := scheduleView{Schedule: kept.Schedule}
		if kept.Err == nil {
			v, kept.Err = describe(kept.Schedule, time.Now())
		}
		if kept.Err != nil {
			v.Name, v.Fault = kept.Name, kept.Err.Error()
		}
		views = append(views, v)
	}
	return view{Page: "schedules", Title: "Schedules", Body: views, Refresh: 30}, nil
}

func (s *site) schedule(r *http.Request) (view, error) {
	kept, err := s.Conn.Schedule(r.Context(), r.PathValue("name"))
	if err != nil {
		return view{}, err
	}
	v, err := describe(kept.Schedule, time.Now())
	for i, e := range v.Entries {
		if slices.Contains(s.store.has(e.Run), digestFile) {
			v.Entries[i].Digest = "/runs/" + url.PathEscape(e.Run) + "/" + digestFile
		}
	}
	return view{Page: "schedule", Title: "Schedule " + kept.Name, Body: v, Refresh: 30}, err
}

// describe says what a schedule does, and did.
func describe(s schedule.Schedule, now time.Time) (scheduleView, error) {
	v := scheduleView{Schedule: s, Now: standing(s)}
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
			Class: entryClass(e), Said: compared(e.Compared)})
	}
	return v, nil
}

// standing is what a schedule does now.
func standing(s schedule.Schedule) string {
	var words []string
	switch {
	case s.Current != nil:
		words = append(words, string(s.Current.State))
	case s.Asked != nil:
		words = append(words, "a run was asked for")
	}
	if s.Paused {
		words = append(words, "paused")
	}
	if len(words) == 0 {
		return "waits for its next slot"
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

// compared is what comparison hooks said, each by its name. What is old was cut to a text.
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

// CameOf is what came of an entry, in words.
func (e entryView) CameOf() string {
	if e.Tasks.Total() == 0 {
		return string(e.State)
	}
	return fmt.Sprintf("%s: %d valid, %d invalid, %d unknown", e.State, e.Tasks.Valid, e.Tasks.Invalid, e.Tasks.Unknown)
}
