package test

import (
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// If the requested rate is higher than one CPU allows, the outcome has a warning. The broker runs in the same process
// and shares the CPU, so the rate is flagged as shared-host, and not as limited by the client.
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
		t.Fatalf("ctl run: got exit code %d, want 0", code)
	}
	all := f.outcomes()
	if len(all) != 2 {
		t.Fatalf("outcomes: got %d, want 2", len(all))
	}
	for _, o := range all {
		warnings := strings.Join(o.Warnings, "\n")
		rate := o.Values["publish.rate"]
		// Other tests may use the CPU, too. Then the process sends too late, although it does not use the CPU fully.
		shared := slices.Contains(rate.Flags, plan.SharedHost) || slices.Contains(rate.Flags, plan.HostBusy)
		client := slices.Contains(rate.Flags, plan.ClientBound)
		full := slices.ContainsFunc(o.Limitations, func(l plan.Limitation) bool { return l.Cause == plan.CauseCPU })
		if shared == client || full && client {
			t.Errorf("flags of publish.rate %v: got %v, want shared-host; limitations %v", rate.Number, rate.Flags,
				o.Limitations)
		}
		// A process that waits for the CPU also reads confirms late.
		if !strings.Contains(warnings, " (send delay p99 ") || long() && strings.Contains(warnings,
			"publishers waited for the broker") {
			t.Errorf("warnings: got %q, want one about the send delay and none about waiting for the broker",
				warnings)
		}
		t.Logf("publish.rate %v, warnings: %s", o.Values["publish.rate"].Number, warnings)
	}
}
