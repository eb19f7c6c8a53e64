package judge

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// manySigma is how many standard deviations a Poisson process has to be short of its mean before that is no accident: it is by chance once in
// 30,000 cells.
const manySigma = 4

// shortfall warns of an open-loop rate that was not reached, and says whose doing that was. Of a task that failed or was stopped it says nothing:
// that is why the rate was not reached.
func (j *judge) shortfall() {
	p, per := j.w.Publishers, j.span.sending
	if !p.Open() || j.f.Failure != "" || j.f.Cancelled {
		return
	}
	if j.span.byCount { // the wait for the last confirm is no time for sending
		per = time.Duration(max(0, j.m.Last().Send)) + 1
	}
	asked, sent := p.Due(per), j.counted(record.Sent)
	if p.Presence != (plan.Presence{}) { // what was due is known of those who were there alone
		asked = sent + float64(j.m.Total(record.Unsent)+j.m.Total(record.PublishErrors))
	}
	slack := Tolerance*asked + 1 // the measurement may cut off one
	if p.Arrivals == plan.ArrivalsPoisson {
		deviation := math.Sqrt(asked)
		if j.span.byCount { // each publisher has its count by accident earlier or later, and the last of them ends the time
			deviation *= math.Sqrt(float64(p.Nodes * p.Threads))
		}
		slack += manySigma * deviation
	}
	if asked-sent <= slack {
		return
	}
	late, blocked := roughly(j.m.Hist(record.Lateness).Quantile(0.99)), roughly(j.m.Hist(record.Blocked).Quantile(0.99))
	why := fmt.Sprintf("publishers waited for the broker (blocked p99 %v)", blocked)
	if limitations := j.out.Limitations; len(limitations) > 0 && j.m.Hist(record.Lateness).Quantile(0.99) > j.m.Hist(record.Blocked).Quantile(0.99) {
		why = fmt.Sprintf("%s (lateness p99 %v, blocked p99 %v)", limitations[0].Flag, late, blocked)
	}
	if n := j.m.Total(record.PublishErrors); n > 0 {
		why += fmt.Sprintf("; calls to publish that failed: %d", n)
	}
	if n := j.m.Total(record.Unsent); n > 0 {
		why += fmt.Sprintf("; messages due and never sent: %d", n)
	}
	j.warn("asked for %s/s, sent %s/s: %s", grouped(asked/per.Seconds()), grouped(sent/per.Seconds()), why)
}

// roughly is a latency for people, in three or four digits, if it can be told from nothing.
func roughly(ns int64) string {
	if float64(ns) < plan.Resolution*1e9 {
		return "below 1µs"
	}
	d, unit := time.Duration(ns), time.Duration(1)
	for d/unit >= 10_000 {
		unit *= 10
	}
	return d.Round(unit).String()
}

// grouped is a number for people: 1,000 or 19.5.
func grouped(x float64) string {
	if x < 100 {
		return strconv.FormatFloat(x, 'g', 3, 64)
	}
	digits := strconv.FormatFloat(x, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
