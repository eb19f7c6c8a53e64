package accuracy

import (
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// row is a known number with its measurement.
type row struct {
	truth, value string // the injected condition; the name of the value
	want, got    float64
	bound        float64 // maximum difference
	unit         plan.Unit
}

// table collects the rows of all tests.
var table struct {
	sync.Mutex
	rows []row
}

// check adds a row, and fails the test if the difference exceeds the bound.
func check(t *testing.T, r row) {
	t.Helper()
	if r.off() {
		t.Errorf("%s: %s is %s, want %s, off by %s; at most %s", r.truth, r.value, r.show(r.got), r.show(r.want),
			r.show(r.got-r.want), r.show(r.bound))
	}
	table.Lock()
	defer table.Unlock()
	table.rows = append(table.rows, r)
}

// off reports whether a number is outside its bound, or NaN.
func (r row) off() bool { return !(math.Abs(r.got-r.want) <= r.bound) }

// show formats a number with its unit, with enough digits to show one bucket.
func (r row) show(x float64) string {
	if r.unit == plan.Seconds && !math.IsNaN(x) {
		d := time.Duration(math.Round(x * 1e9))
		if d > 10*time.Millisecond || d < -10*time.Millisecond {
			d = d.Round(time.Microsecond)
		}
		return d.String()
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", x), "0"), ".")
}

// bucket returns the width in seconds of the histogram bucket of a time: 3 significant digits are 1024 buckets per
// power of two.
func bucket(seconds float64) float64 {
	ns := uint64(max(0, seconds*1e9))
	return float64(uint64(1)<<max(0, bits.Len64(ns)-11)) / 1e9
}

// quantile returns the quantile of exact samples, by rank round(q·n) as in the histogram.
func quantile(sorted []time.Duration, q float64) float64 {
	rank := max(1, int(q*float64(len(sorted))+0.5))
	return sorted[min(rank, len(sorted))-1].Seconds()
}

func write(w io.Writer) {
	table.Lock()
	defer table.Unlock()
	if len(table.rows) == 0 {
		return
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "INJECTED TRUTH\tVALUE\tTRUTH\tMEASURED\tERROR\tBOUND\t")
	last := ""
	for _, r := range table.rows {
		if !r.off() && folded(r.value) {
			continue
		}
		truth := r.truth
		if truth == last {
			truth = ""
		}
		last = r.truth
		verdict := ""
		if r.off() {
			verdict = "OUT OF BOUND"
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", truth, r.value, r.show(r.want), r.show(r.got),
			r.show(r.got-r.want), r.show(r.bound), verdict)
	}
	out.Flush()
	fmt.Fprintf(w,
		"%d numbers checked; p90, p95 and p99.9 of loopback's latencies are shown only where they are out of their bounds\n", len(table.rows))
}

// folded reports whether a value is shown only if it is wrong, because the table is long.
func folded(value string) bool {
	return strings.HasSuffix(value, ".p90") || strings.HasSuffix(value, ".p95") || strings.HasSuffix(value, ".p99.9")
}

func TestMain(m *testing.M) {
	code := m.Run()
	to, done := printer(code)
	write(to)
	done()
	os.Exit(code)
}

// printer returns the writer for the table. go test hides the output of a package that passes, unless -v is set, so the
// table is written to go test's own output.
func printer(code int) (to io.Writer, done func()) {
	nothing := func() {}
	if code != 0 || testing.Verbose() {
		return os.Stdout, nothing
	}
	parent := fmt.Sprintf("/proc/%d", os.Getppid())
	if name, err := os.ReadFile(parent + "/comm"); err != nil || strings.TrimSpace(string(name)) != "go" {
		return os.Stdout, nothing
	}
	file, err := os.OpenFile(parent+"/fd/1", os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return os.Stdout, nothing
	}
	return file, func() { _ = file.Close() }
}
