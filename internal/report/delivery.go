package report

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"lockstep/internal/plan"
)

// Delivered is a line on the points of a run for InfluxDB, with the command that writes them again if some were dropped.
// It is empty if there is no delivery.
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
		line += fmt.Sprintf("; a replay has not written %d of %d (%s)", replay.Left, replay.Points, reasonsOf(replay.Why))
	}
	if sum.Dropped == 0 && replay.Left == 0 {
		return line
	}
	if sum.LastError != "" {
		line += "; last error: " + sum.LastError
	}
	return line + "; " + remedy(run, sum.Refused)
}

// addUp adds up the deliveries since the last complete replay, which has written all points, whatever was dropped before.
// replay is the last incomplete one since then.
func addUp(all []plan.Delivery) (sum, replay plan.Delivery) {
	sum.Why = map[string]int64{}
	for _, d := range all {
		if d.Replayed && d.Left == 0 {
			sum, replay = d, plan.Delivery{}
			sum.Why, sum.LastError, sum.Refused = map[string]int64{}, "", 0
			continue
		}
		sum.URL, sum.Bucket = d.URL, d.Bucket
		sum.LastError, sum.Refused = cmp.Or(d.LastError, sum.LastError), cmp.Or(d.Refused, sum.Refused)
		if d.Replayed {
			replay, sum.Written = d, max(sum.Written, d.Written) // the same points
			continue
		}
		sum.Written += d.Written
		sum.Dropped += d.Dropped
		for reason, n := range d.Why {
			sum.Why[reason] += n
		}
	}
	return sum, replay
}

// NotWritten is the message of a replay of which points are left, with the command that writes them.
func NotWritten(run string, d plan.Delivery) string {
	line := fmt.Sprintf("InfluxDB at %s, bucket %s, has not taken %d of %d points (%s)", d.URL, d.Bucket, d.Left, d.Points, reasonsOf(d.Why))
	if d.LastError != "" {
		line += "; last error: " + d.LastError
	}
	return line + "; " + remedy(run, d.Refused)
}

// remedy is the user's next step after points were not written; status is the HTTP status of a refusal, or 0.
func remedy(run string, status int) string {
	step := "correct the cause of the refusal"
	switch {
	case status == 0:
		step = "start InfluxDB"
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		step = "use a token that may write to the bucket"
	case status == http.StatusNotFound:
		step = "correct bucket and org"
	case status < http.StatusBadRequest:
		step = "correct the url"
	}
	return "the record is complete: " + step + ", then run: ctl sink replay " + run
}

// reasonsOf lists counts by reason, the greatest first.
func reasonsOf(why map[string]int64) string {
	reasons := slices.SortedFunc(maps.Keys(why), func(a, b string) int { return cmp.Or(cmp.Compare(why[b], why[a]), cmp.Compare(a, b)) })
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%d %s", why[reason], reason)
	}
	return strings.Join(reasons, ", ")
}
