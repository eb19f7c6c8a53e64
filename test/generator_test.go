package test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/internal/plan"
)

// If the publish rate is higher than the load generator can send with one CPU, the result has a flag for that. Without
// confirms nothing else limits publishers. The broker is in the same process and shares the CPU, and so do other
// processes of the host. The free CPU decides which of three flags is set; tests of internal/judge cover the rules. On
// an idle machine (make test-long) it is the flag of a shared CPU, also with confirms.
func TestTheGeneratorsOwnLimit(t *testing.T) {
	t.Setenv("GOMAXPROCS", "1")
	modes, flags := `["fire-and-forget"]`, []plan.Flag{plan.SharedHost, plan.HostBusy, plan.ClientBound}
	consumers := "nodes: 0"
	if long() {
		modes, flags = `["fire-and-forget", "confirm-window"]`, flags[:2]
		consumers = "{colocate: true, prefetch: 0}"
	}
	f := newFleet(t, "a1")
	file := filepath.Join(f.dir, "matrix.cue")
	if err := os.WriteFile(file, fmt.Appendf(nil, `package matrix
name: "limit"
brokers: l: driver: "loopback"
axes: mode: %s
cell: {
	axis: _
	publishers: {mode: axis.mode, threads: 2, rate: 5_000_000}
	consumers: %s
	warmup: "1s", measure: "2s"
}
tables: [{rows: ["mode"], values: ["publish.rate"]}]
`, modes, consumers), 0o644); err != nil {
		t.Fatal(err)
	}
	ctl := start(t, f.dir, "ctl", "run", "--server", f.url, file)
	if code := ctl.Leaves(); code != 0 {
		t.Fatalf("ctl left with %d", code)
	}
	all := f.outcomes()
	if want := strings.Count(modes, ",") + 1; len(all) != want {
		t.Fatalf("%d outcomes, want %d", len(all), want)
	}
	for _, o := range all {
		said := strings.Join(o.Warnings, "\n")
		rate := o.Values["publish.rate"]
		if !slices.ContainsFunc(flags, func(f plan.Flag) bool { return slices.Contains(rate.Flags, f) }) ||
			long() && slices.Contains(rate.Flags, plan.ClientBound) {
			t.Errorf("%v/s is flagged %v, want one of %v; limitations %v", rate.Number, rate.Flags, flags, o.Limitations)
		}
		if !strings.Contains(said, " (send delay p99 ") || strings.Contains(said, "publishers waited for the broker") {
			t.Errorf("warnings:\n%s", said)
		}
		t.Logf("%v/s: %s", o.Values["publish.rate"].Number, said)
	}
}
