package test

import (
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// A load generator that is asked for more than its one CPU can send says so. The broker, which here is a part of the
// process, shares that CPU: neither is blamed.
func TestLoadGeneratorLimit(t *testing.T) {
	t.Setenv("GOMAXPROCS", "1")
	f := newFleet(t, "a1")
	file := writeMatrix(t, f.dir, `package matrix
name: "limit"
brokers: l: driver: "loopback"
axes: mode: ["fire-and-forget", "confirm-window"]
cell: {
	axis: _
	publishers: {mode: axis.mode, threads: 2, rate: 1_000_000}
	consumers: {colocate: true, prefetch: 0}
	warmup: "200ms", measure: "2s", drain: {idle: "5s", timeout: "5s"}
}
tables: [{rows: ["mode"], values: ["publish.rate"]}]
`)
	ctl := start(t, f.dir, "ctl", "run", "--server", f.url, file)
	if code := ctl.ExitCode(); code != 0 {
		t.Fatalf("ctl exited with %d", code)
	}
	all := f.outcomes()
	if len(all) != 2 {
		t.Fatalf("%d outcomes", len(all))
	}
	for _, o := range all {
		said := strings.Join(o.Warnings, "\n")
		rate := o.Values["publish.rate"]
		// Other tests may use the CPU, too. If they left the process less than the CPU, it is only late.
		shared := slices.Contains(rate.Flags, plan.SharedHost) || slices.Contains(rate.Flags, plan.HostBusy)
		client := slices.Contains(rate.Flags, plan.ClientBound)
		full := slices.ContainsFunc(o.Limitations, func(l plan.Limitation) bool { return l.Cause == plan.CauseCPU })
		if shared == client || full && client {
			t.Errorf("%v/s is flagged %v, want shared-host; limitations %v", rate.Number, rate.Flags, o.Limitations)
		}
		// A process that waits for the CPU also reads confirms late.
		if !strings.Contains(said, " (send delay p99 ") || long() && strings.Contains(said, "publishers waited for the broker") {
			t.Errorf("warnings:\n%s", said)
		}
		t.Logf("%v/s: %s", o.Values["publish.rate"].Number, said)
	}
}
