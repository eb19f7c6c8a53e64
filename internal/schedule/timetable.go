package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // a minimal host has no time zone database

	cron "github.com/netresearch/go-cron"
)

// Timetable has the slots of a cron expression in a time zone. It is immutable and safe for concurrent use.
//
// An expression denotes times of the wall clock, and each of them is one slot. A time that exists twice, because clocks
// were set back, is a slot at its first occurrence. A time that does not exist, because clocks were set forward, is a
// slot at the moment of the change. Several such times are one slot.
type Timetable struct {
	// in UTC, where every wall-clock time exists once; Timetable handles the changes of clocks
	spec *cron.SpecSchedule
	zone *time.Location
}

// Descriptors are the words that can replace an expression.
var Descriptors = []string{"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"}

// fiveFields parses expressions like crontab: if both day fields are restricted (do not begin with "*"), either of them
// is enough.
var fiveFields = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom)

// NewTimetable parses a cron expression of five fields, or one of Descriptors, and the IANA name of a time zone. The
// error contains all errors.
func NewTimetable(expression, zone string) (*Timetable, error) {
	spec, wrong := readCron(expression)
	at, err := readZone(zone)
	if err = errors.Join(wrong, err); err != nil {
		return nil, err
	}
	return &Timetable{spec: spec, zone: at}, nil
}

const howCron = `use minute, hour, day of month, month and day of week, such as "0 2 * * *", or one of `

func readCron(expression string) (*cron.SpecSchedule, error) {
	word := strings.HasPrefix(expression, "@")
	n := len(strings.Fields(expression))
	how := howCron + strings.Join(Descriptors, ", ")
	if n == 0 {
		return nil, errors.New("cron is missing: " + how)
	}
	if strings.Contains(expression, "TZ=") {
		return nil, fmt.Errorf("cron %q: contains a time zone; omit TZ= and use tz", expression)
	}
	if word && n != 1 || !word && n != 5 {
		return nil, fmt.Errorf("cron %q has %d fields; %s", expression, n, how)
	}
	parsed, err := fiveFields.Parse(strings.TrimSpace(expression))
	if err != nil {
		return nil, fmt.Errorf("cron %q: %w; %s", expression, err, how)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok { // @every and similar denote no time of day
		return nil, fmt.Errorf("cron %q is not a time of day; %s", expression, how)
	}
	inUTC := *spec
	if fields := strings.Fields(expression); !word && (fields[2][0] == '*' || fields[4][0] == '*') {
		inUTC.DowOrDom = false // a day field with a step ("*/2") does not count as restricted, so both have to match
	}
	inUTC.Location, inUTC.MaxSearchYears = time.UTC, 30 // 29 February on a given weekday comes once in 28 years
	if inUTC.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("cron %q: no such day; use a date that exists", expression)
	}
	return &inUTC, nil
}

func readZone(name string) (*time.Location, error) {
	const how = `use a name such as "Europe/Berlin" or "UTC"`
	if name == "" {
		return nil, errors.New("tz is missing: " + how)
	}
	if name == "Local" {
		return nil, fmt.Errorf("tz %q differs between hosts; %s", name, how)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("tz %q: unknown time zone; %s", name, how)
	}
	return zone, nil
}

// Zone returns the time zone of the slots.
func (t *Timetable) Zone() *time.Location { return t.zone }

// Next returns the first slot after a time, in the timetable's zone; zero: there is none.
func (t *Timetable) Next(after time.Time) time.Time {
	// Later wall-clock times never have earlier slots. The slot of the wall-clock time at after is not later than
	// after.
	for w := t.spec.Next(wall(after.In(t.zone))); !w.IsZero(); w = t.spec.Next(w) {
		if slot := instant(w, t.zone); slot.After(after) {
			return slot
		}
	}
	return time.Time{}
}

// wall returns the wall-clock time of t as a time in UTC.
func wall(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// instant returns the first time at which the wall clock of a zone shows w. If it skips w, instant returns the time of
// the change.
func instant(w time.Time, zone *time.Location) time.Time {
	near := time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), w.Second(), 0, zone)
	begin, end := near.ZoneBounds()
	first := time.Time{}
	for _, at := range []time.Time{begin.Add(-1), near, end} { // with the offsets before, at and after w
		_, seconds := at.In(zone).Zone()
		t := w.Add(-time.Duration(seconds) * time.Second).In(zone)
		if wall(t).Equal(w) && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if !first.IsZero() {
		return first
	}
	if wall(near).After(w) {
		return begin
	}
	return end
}
