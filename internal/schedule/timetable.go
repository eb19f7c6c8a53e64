package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // a bare host has no time zones of its own

	cron "github.com/netresearch/go-cron"
)

// Timetable knows the slots of a cron expression in a time zone. Immutable and safe for concurrent use.
//
// An expression names times on the wall clock, and each of them is one slot. One that exists twice, because clocks were
// put back, is its first occurrence. One that does not exist, because clocks were put forward, is the moment at which
// they were; several of them are one slot then.
type Timetable struct {
	// in UTC, where every time on the wall exists once: the days of change are Timetable's business
	spec *cron.SpecSchedule
	zone *time.Location
}

// Descriptors are the words that stand for an expression.
var Descriptors = []string{"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"}

// fiveFields reads what crontab reads: where both days are restricted, either one is enough.
var fiveFields = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom)

// NewTimetable reads a cron expression of five fields, or one of Descriptors, and an IANA name of a time zone. The
// error holds every fault.
func NewTimetable(expression, zone string) (*Timetable, error) {
	spec, wrong := readCron(expression)
	at, err := readZone(zone)
	if err = errors.Join(wrong, err); err != nil {
		return nil, err
	}
	return &Timetable{spec: spec, zone: at}, nil
}

const howCron = `give minute, hour, day of month, month and day of week, as in "0 2 * * *", or one of `

func readCron(expression string) (*cron.SpecSchedule, error) {
	word := strings.HasPrefix(expression, "@")
	n := len(strings.Fields(expression))
	how := howCron + strings.Join(Descriptors, ", ")
	if n == 0 {
		return nil, errors.New("cron is missing: " + how)
	}
	if strings.Contains(expression, "TZ=") {
		return nil, fmt.Errorf("cron %q: the time zone is given beside it; leave TZ= out and use tz", expression)
	}
	if word && n != 1 || !word && n != 5 {
		return nil, fmt.Errorf("cron %q has %d fields; %s", expression, n, how)
	}
	parsed, err := fiveFields.Parse(strings.TrimSpace(expression))
	if err != nil {
		return nil, fmt.Errorf("cron %q: %w; %s", expression, err, how)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok { // @every and the like name no time on the wall
		return nil, fmt.Errorf("cron %q is not a time of day; %s", expression, how)
	}
	inUTC := *spec
	inUTC.Location, inUTC.MaxSearchYears = time.UTC, 30 // 29 February on a given weekday comes once in 28 years
	if inUTC.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("cron %q: there is no such day; give one that comes", expression)
	}
	return &inUTC, nil
}

func readZone(name string) (*time.Location, error) {
	const how = `give a name like "Europe/Berlin", or "UTC"`
	if name == "" {
		return nil, errors.New("tz is missing: " + how)
	}
	if name == "Local" {
		return nil, fmt.Errorf("tz %q says nothing to another host; %s", name, how)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("tz %q is not known; %s", name, how)
	}
	return zone, nil
}

// Zone is the time zone of the slots.
func (t *Timetable) Zone() *time.Location { return t.zone }

// Next is the first slot after a time, in the timetable's zone; zero: there is none.
func (t *Timetable) Next(after time.Time) time.Time {
	// Later times on the wall are never earlier slots, and the wall's time at after is a slot at after or before.
	for w := t.spec.Next(wall(after.In(t.zone))); !w.IsZero(); w = t.spec.Next(w) {
		if slot := instant(w, t.zone); slot.After(after) {
			return slot
		}
	}
	return time.Time{}
}

// wall is what the wall clock shows at t, as if it were in UTC.
func wall(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// instant is when the wall clock of a zone shows w for the first time, or, if it never does, when it jumps over w.
func instant(w time.Time, zone *time.Location) time.Time {
	near := time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), w.Second(), 0, zone)
	begin, end := near.ZoneBounds()
	first := time.Time{}
	for _, at := range []time.Time{begin.Add(-1), near, end} { // the offsets around: each may show w, or not
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
