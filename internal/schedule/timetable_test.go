package schedule

import (
	"strings"
	"testing"
	"time"
)

func table(t testing.TB, expression, zone string) *Timetable {
	t.Helper()
	table, err := NewTimetable(expression, zone)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// At changes of the clock, a time that does not exist is a slot at the change, and a time that exists twice is a slot
// once, the first time.
func TestSlots(t *testing.T) {
	for name, c := range map[string]struct {
		cron, zone, after string
		want              []string
	}{
		"every day": {"0 2 * * *", "Europe/Berlin", "2026-11-21T00:00:00+01:00",
			[]string{"2026-11-21T02:00:00+01:00", "2026-11-22T02:00:00+01:00"}},
		"the slot itself is not after it": {"0 2 * * *", "Europe/Berlin", "2026-11-21T02:00:00+01:00",
			[]string{"2026-11-22T02:00:00+01:00"}},
		"does not exist": {"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"}},
		"several that do not exist, and the one they meet": {"*/20 2,3 * * *", "Europe/Berlin",
			"2026-03-29T00:00:00+01:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-29T03:20:00+02:00", "2026-03-29T03:40:00+02:00",
				"2026-03-30T02:00:00+02:00"}},
		"exists twice": {"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+02:00",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		"between the two": {"30 2 * * *", "Europe/Berlin", "2026-10-25T02:15:00+01:00",
			[]string{"2026-10-26T02:30:00+01:00"}},
		"each hour, on the day with one hour more": {"0 * * * *", "Europe/Berlin", "2026-10-25T01:30:00+02:00",
			[]string{"2026-10-25T02:00:00+02:00", "2026-10-25T03:00:00+01:00"}},
		"midnight does not exist": {"@daily", "Africa/Cairo", "2026-04-23T12:00:00+02:00",
			[]string{"2026-04-24T01:00:00+03:00", "2026-04-25T00:00:00+03:00"}},
		"half an hour": {"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"}},
		"a whole day that does not exist": {"0 12 30 12 *", "Pacific/Apia", "2011-12-29T13:00:00-10:00",
			[]string{"2011-12-31T00:00:00+14:00", "2012-12-30T12:00:00+14:00"}},
		"either day, as crontab has it": {"0 0 13 * 5", "UTC", "2026-11-10T00:00:00Z",
			[]string{"2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z"}},
		"a day with a step is not restricted: both days match": {"0 2 */2 * 1", "UTC", "2026-11-01T00:00:00Z",
			[]string{"2026-11-09T02:00:00Z", "2026-11-23T02:00:00Z"}},
		"a leap day": {"0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z",
			[]string{"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			slots, now := table(t, c.cron, c.zone), at(t, c.after)
			for _, want := range c.want {
				if now = slots.Next(now); !now.Equal(at(t, want)) {
					t.Fatalf("slot is %s, want %s", now.Format(time.RFC3339), want)
				}
			}
		})
	}
}

// For any zone and expression, every wall-clock time is one slot: the first minute at which the clock shows it or has
// skipped it.
func TestEveryTimeOnTheWallIsOneSlot(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe",
		"Africa/Cairo", "Africa/Casablanca"} {
		t.Run(zone, func(t *testing.T) {
			for _, expression := range []string{"*/10 * * * *", "30 * * * *", "0 2 * * *", "5,35 0-3 * * *"} {
				slots := table(t, expression, zone)
				for change := time.Date(2016, 1, 1, 0, 0, 0, 0, slots.zone); ; {
					if _, change = change.ZoneBounds(); change.IsZero() || change.Year() > 2020 {
						break
					}
					walk(t, slots, change.Add(-36*time.Hour), change.Add(36*time.Hour))
				}
			}
		})
	}
}

// walk checks minute by minute.
func walk(t *testing.T, slots *Timetable, begin, end time.Time) {
	t.Helper()
	slot, nominal := slots.Next(begin), slots.spec.Next(wall(begin.In(slots.zone)))
	for now := begin.Add(time.Minute); now.Before(end); now = now.Add(time.Minute) {
		due := false
		for shown := wall(now.In(slots.zone)); !nominal.After(shown); nominal = slots.spec.Next(nominal) {
			due = true
		}
		if due != slot.Equal(now) {
			t.Fatalf("at %s the wall clock shows %v, and the slot is %s", now.In(slots.zone), due, slot)
		}
		if due {
			slot = slots.Next(now)
		}
	}
}

func TestWhatIsNoTimetable(t *testing.T) {
	for _, c := range []struct{ cron, zone, want string }{
		{"0 2 * *", "UTC", "has 4 fields"},
		{"0 0 2 * * *", "UTC", "has 6 fields"},
		{"61 2 * * *", "UTC", "61"},
		{"0 2 * * nonday", "UTC", "nonday"},
		{"0 0 30 2 *", "UTC", "no such day"},
		{"@every 1h", "UTC", "@hourly"},
		{"@reboot", "UTC", "@hourly"},
		{"@triggered", "UTC", "not a time of day"},
		{"TZ=UTC 0 2 * * *", "UTC", "omit TZ="},
		{"CRON_TZ=UTC", "UTC", "omit TZ="},
		{"", "UTC", "cron is missing"},
		{strings.Repeat("1,", 2000) + "1 2 * * *", "UTC", "too long"},
		{"0 2 * * *", "", "Europe/Berlin"},
		{"0 2 * * *", "Local", "differs between hosts"},
		{"0 2 * * *", "Europe/Berln", "unknown time zone"},
		{"0 2 * * *", "../../etc/passwd", "unknown time zone"},
		{"nothing", "Nowhere/Land", "has 1 fields"},
		{"nothing", "Nowhere/Land", "Nowhere/Land"},
	} {
		if _, err := NewTimetable(c.cron, c.zone); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q in %q: %v, want an error with %q", c.cron, c.zone, err, c.want)
		}
	}
}

func FuzzTimetable(f *testing.F) {
	f.Add("0 2 * * *", "Europe/Berlin", int64(1_774_750_000))
	f.Add("*/7 */5 1-31/3 * 1,5", "Australia/Lord_Howe", int64(1_700_000_000))
	f.Fuzz(func(t *testing.T, expression, zone string, unix int64) {
		slots, err := NewTimetable(expression, zone)
		if err != nil {
			return
		}
		after := time.Unix(unix%4_000_000_000, 0)
		if next := slots.Next(after); !next.IsZero() && !next.After(after) {
			t.Errorf("%q in %q: the slot after %s is %s", expression, zone, after, next)
		}
	})
}
