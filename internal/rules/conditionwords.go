package rules

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
)

// shortNames maps the short names of conditions to values. With consumers they are the quantiles of end-to-end latency
// and the consume rate. Without consumers they are the publish rate and the quantiles of publish latency. That is from
// the intended send time in open loop, and from the call in closed loop.
func shortNames(w plan.Workload) map[string]string {
	latency, rate := "e2e", "consume.rate"
	if w.Consumers.Nodes == 0 {
		latency, rate = "publish", "publish.rate"
		if w.Publishers.Open() || w.Search != nil {
			latency = "publish.intended"
		}
	}
	names := map[string]string{"rate": rate}
	for _, q := range plan.Quantiles() {
		names[q.Name] = latency + "." + q.Name
	}
	return names
}

// constant parses a number ("20_000", "0.5"), a rate ("20_000/s"), a duration ("50ms", "1m30s") or an amount of memory
// ("500MiB").
func constant(text string) (number float64, unit plan.Unit, ok bool) {
	plain := strings.ReplaceAll(text, "_", "")
	if rate, is := strings.CutSuffix(plain, "/s"); is {
		n, err := strconv.ParseFloat(rate, 64)
		return n, plan.PerSecond, err == nil
	}
	if n, err := strconv.ParseFloat(plain, 64); err == nil {
		return n, plan.Count, true
	}
	if d, err := time.ParseDuration(plain); err == nil {
		return d.Seconds(), plan.Seconds, true
	}
	for _, m := range memoryUnits {
		if head, is := strings.CutSuffix(plain, m.name); is {
			n, err := strconv.ParseFloat(head, 64)
			return n * m.bytes, plan.Bytes, err == nil
		}
	}
	return 0, "", false
}

// Memory parses an amount of memory or disk: bytes such as "1073741824", or with a unit, such as "4GiB" or "500MB". ok
// is false if the text is none, or not a whole number of bytes.
func Memory(text string) (bytes int64, ok bool) {
	n, unit, ok := constant(text)
	if !ok || unit != plan.Bytes && unit != plan.Count || n < 0 || n != math.Trunc(n) || n >= math.MaxInt64 {
		return 0, false
	}
	return int64(n), true
}

// memoryUnits are in the order of matching. B is last, because it is a suffix of all others.
var memoryUnits = []struct {
	name  string
	bytes float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}}

// mismatch returns an error text if a value cannot be compared with a constant because of their units; empty if it can.
func mismatch(value operand, of plan.Unit, with operand) string {
	n := strings.TrimSuffix(with.text, "/s")
	switch {
	case of == with.unit || of == plan.Text && with.unit == plan.PerSecond:
	case of == plan.Seconds && with.unit == plan.Count:
		return fmt.Sprintf("%s is a time: write a duration, %sms or %ss", value.text, n, n)
	case of == plan.Seconds:
		return fmt.Sprintf("%s is a time: write a duration, as 50ms", value.text)
	case with.unit == plan.Count: // rates, counts, cores and bytes accept a plain number
	case of == plan.PerSecond || of == plan.Text:
		return fmt.Sprintf("%s is a rate: write messages per second, as 20_000", value.text)
	case of == plan.Bytes:
		return fmt.Sprintf("%s is memory: write bytes, as 500MiB", value.text)
	default:
		return fmt.Sprintf("%s is a plain number: write it without a unit", value.text)
	}
	return ""
}

// quantity formats a number with its unit: "61.3 ms", "20,050/s", "3".
func quantity(x float64, unit plan.Unit) string {
	switch unit {
	case plan.Seconds:
		return display.Seconds(x)
	case plan.PerSecond, plan.Text:
		return display.Number(x) + "/s"
	case plan.Bytes:
		return display.Bytes(x)
	}
	return display.Number(x)
}
