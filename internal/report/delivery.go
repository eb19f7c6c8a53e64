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

// Delivered is a line on what came of handing a run's points to InfluxDB; empty if nobody asked for that.
func Delivered(all []plan.Delivery) string {
	if len(all) == 0 {
		return ""
	}
	sum, vain := together(all)
	line := fmt.Sprintf("InfluxDB: %d points written to %s, bucket %s", sum.Written, sum.URL, sum.Bucket)
	if sum.Spooled > 0 {
		line += fmt.Sprintf("; %d wait on disk", sum.Spooled)
	}
	if sum.Dropped > 0 {
		line += fmt.Sprintf("; %d dropped (%s)", sum.Dropped, reasonsOf(sum.Why))
	}
	if vain.Replayed {
		line += fmt.Sprintf("; of a replay %d of %d were not taken (%s)", vain.Left+vain.Dropped, vain.Points, reasonsOf(vain.Why))
	}
	if sum.Dropped == 0 && sum.Spooled == 0 && !vain.Replayed {
		return line
	}
	if sum.LastError != "" {
		line += "; last error: " + sum.LastError
	}
	return line + "; the record has all that they say: " + cure(sum.Refused) + "ctl sink replay writes it again"
}

// together adds up deliveries since the last replay that InfluxDB took whole: then all of it is there, whatever came of it before. vain is the last
// replay of which something is left; it lost nothing.
func together(all []plan.Delivery) (sum, vain plan.Delivery) {
	sum.Why = map[string]int64{}
	for _, d := range all {
		left := d.Left + d.Dropped // an earlier release called what was left of a replay dropped
		if d.Replayed && left == 0 {
			sum, vain = plan.Delivery{Why: map[string]int64{}}, plan.Delivery{}
		}
		sum.URL, sum.Bucket = d.URL, d.Bucket
		sum.LastError, sum.Refused = cmp.Or(d.LastError, sum.LastError), cmp.Or(d.Refused, sum.Refused)
		if d.Replayed && left > 0 {
			vain, sum.Written = d, max(sum.Written, d.Written) // the same points
			continue
		}
		sum.Written += d.Written
		sum.Dropped += d.Dropped
		sum.Spooled = d.Spooled // what earlier ones had left the last one has found
		for reason, n := range d.Why {
			sum.Why[reason] += n
		}
	}
	return sum, vain
}

// NotTaken says of a replay of which something is left what is to be done. It ends in the command, without the run.
func NotTaken(d plan.Delivery) string {
	line := fmt.Sprintf("InfluxDB at %s, bucket %s, has not taken %d of %d points (%s)", d.URL, d.Bucket, d.Left, d.Points, reasonsOf(d.Why))
	if d.LastError != "" {
		line += "; last error: " + d.LastError
	}
	line += "; nothing is lost: the record has all that they say; "
	if d.Refused != 0 {
		return line + cure(d.Refused) + "then ctl sink replay"
	}
	return line + "when InfluxDB answers again, ctl sink replay"
}

// cure is what to do about a refusal, before another try can do better; status is that of HTTP.
func cure(status int) string {
	switch {
	case status == 0:
		return ""
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return "put the token right, which has to be one that may write to the bucket, and "
	case status == http.StatusNotFound:
		return "put bucket and org right, and "
	case status < http.StatusBadRequest:
		return "put the url right, and "
	}
	return "put right what it refuses, and "
}

// reasonsOf lists counts by reason, the greatest first.
func reasonsOf(why map[string]int64) string {
	reasons := slices.SortedFunc(maps.Keys(why), func(a, b string) int { return cmp.Or(cmp.Compare(why[b], why[a]), cmp.Compare(a, b)) })
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%d %s", why[reason], reason)
	}
	return strings.Join(reasons, ", ")
}
