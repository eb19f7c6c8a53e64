package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"lockstep/internal/plan"
)

// Delivered is a line on what came of handing a run's points to InfluxDB; empty if nobody asked for that.
func Delivered(all []plan.Delivery) string {
	if len(all) == 0 {
		return ""
	}
	var sum plan.Delivery
	why := map[string]int64{}
	for i, d := range all {
		if d.Replayed && d.Dropped == 0 { // all of it is there, whatever came of it before
			sum, why = plan.Delivery{}, map[string]int64{}
			all = all[i:]
		}
		sum.Written += d.Written
		sum.Dropped += d.Dropped
		sum.URL, sum.Bucket = d.URL, d.Bucket
		sum.LastError = cmp.Or(d.LastError, sum.LastError)
		for reason, n := range d.Why {
			why[reason] += n
		}
	}
	sum.Spooled = all[len(all)-1].Spooled // what earlier ones had left the last one has found
	line := fmt.Sprintf("InfluxDB: %d points written to %s, bucket %s", sum.Written, sum.URL, sum.Bucket)
	if sum.Spooled > 0 {
		line += fmt.Sprintf("; %d wait on disk", sum.Spooled)
	}
	if sum.Dropped == 0 && sum.Spooled == 0 {
		return line
	}
	reasons := slices.SortedFunc(maps.Keys(why), func(a, b string) int { return cmp.Or(cmp.Compare(why[b], why[a]), cmp.Compare(a, b)) })
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%d %s", why[reason], reason)
	}
	if sum.Dropped > 0 {
		line += fmt.Sprintf("; %d dropped (%s)", sum.Dropped, strings.Join(reasons, ", "))
	}
	if sum.LastError != "" {
		line += "; last error: " + sum.LastError
	}
	return line + "; the record has all that they say: ctl sink replay writes it again"
}
