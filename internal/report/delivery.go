package report

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
)

// Delivered returns a line about the points of a run in InfluxDB. If points are missing, it includes the command that
// writes them again. The line is empty without deliveries.
func Delivered(run string, all []plan.Delivery) string {
	if len(all) == 0 {
		return ""
	}
	sum, replay := addUp(all)
	line := fmt.Sprintf("InfluxDB: %d points written to %s, bucket %s", sum.Written, sum.URL, sum.Bucket)
	if sum.Replayed {
		line += " (replayed)"
	}
	if sum.Dropped > 0 {
		line += fmt.Sprintf("; %d dropped (%s)", sum.Dropped, reasonsOf(sum.Why))
	}
	if replay.Left > 0 {
		line += fmt.Sprintf("; the replay did not write %d of %d (%s)", replay.Left, replay.Points,
			reasonsOf(replay.Why))
	}
	if replay.Incomplete {
		line += "; the replay stopped before the end of the record"
	}
	if replay.Cause != "" {
		line += ": " + replay.Cause
	}
	if sum.Dropped == 0 && replay.Left == 0 && !replay.Incomplete {
		return line
	}
	if sum.LastError != "" {
		line += "; last error: " + sum.LastError
	}
	return line + "; " + remedy(run, sum.Refused, replay.Cause)
}

// addUp adds up the deliveries that the last complete replay does not supersede. It supersedes those that ended before
// it began. replay is the last incomplete replay since then.
func addUp(all []plan.Delivery) (sum, replay plan.Delivery) {
	last, latest := -1, -1 // index of the last complete replay, and of the last incomplete one after it
	for i, d := range all {
		switch {
		case d.Replayed && d.Left == 0 && !d.Incomplete:
			last, latest = i, -1
		case d.Replayed:
			latest = i
		}
	}
	if last >= 0 {
		sum = all[last]
		sum.LastError, sum.Refused = "", 0
	}
	if latest >= 0 {
		replay = all[latest]
	}
	sum.Why = map[string]int64{}
	var live []int
	for i, d := range all {
		if i == last || i < last && (d.Replayed || !d.Ended.After(all[last].Began)) {
			continue
		}
		sum.URL, sum.Bucket = d.URL, d.Bucket
		sum.LastError, sum.Refused = cmp.Or(d.LastError, sum.LastError), cmp.Or(d.Refused, sum.Refused)
		if d.Replayed {
			continue
		}
		live = append(live, i)
		sum.Dropped += d.Dropped
		for reason, n := range d.Why {
			sum.Why[reason] += n
		}
	}
	sum.Written = 0
	for _, i := range []int{-1, last, latest} {
		sum.Written = max(sum.Written, written(all, live, i))
	}
	return sum, replay
}

// written counts the points that live deliveries and one replay have written. live and replay are indices; -1: no
// replay. Live deliveries that began before the replay ended may have written the same points, so the larger of the two
// numbers counts.
func written(all []plan.Delivery, live []int, replay int) int64 {
	var before, after int64
	for _, i := range live {
		if replay >= 0 && (i < replay || all[i].Began.Before(all[replay].Ended)) {
			before += all[i].Written
		} else {
			after += all[i].Written
		}
	}
	if replay >= 0 {
		before = max(before, all[replay].Written)
	}
	return before + after
}

// NotWritten returns the message of a replay that has not written all points, with the command that writes them. It
// does not contain the cause of an interruption.
func NotWritten(run string, d plan.Delivery) string {
	line := fmt.Sprintf("InfluxDB at %s, bucket %s, accepted %d points", d.URL, d.Bucket, d.Written)
	if d.Left > 0 {
		line = fmt.Sprintf("InfluxDB at %s, bucket %s, did not accept %d of %d points (%s)",
			d.URL, d.Bucket, d.Left, d.Points, reasonsOf(d.Why))
	}
	if d.Incomplete {
		line += "; the replay stopped before the end of the record"
	}
	if d.LastError != "" {
		line += "; last error: " + d.LastError
	}
	return line + "; " + remedy(run, d.Refused, d.Cause)
}

// remedy returns the user's next step after points were not written. status is the HTTP status of a rejection, or 0.
// cause is that of a replay that ended early although InfluxDB accepted points, or empty.
func remedy(run string, status int, cause string) string {
	command := "run: ctl runs replay " + run
	step := "correct the cause of the rejection"
	switch {
	case status == 0 && cause != "":
		return command
	case status == 0:
		step = "start InfluxDB"
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		step = "use a token with write access to the bucket"
	case status == http.StatusNotFound:
		step = "correct bucket and org"
	case status < http.StatusBadRequest:
		step = "correct the url"
	}
	return "the record is complete; " + step + ", then " + command
}

// reasonsOf lists counts by reason, the largest first.
func reasonsOf(why map[string]int64) string {
	reasons := slices.SortedFunc(maps.Keys(why), func(a, b string) int {
		return cmp.Or(cmp.Compare(why[b], why[a]), cmp.Compare(a, b))
	})
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%d %s", why[reason], reason)
	}
	return strings.Join(reasons, ", ")
}
