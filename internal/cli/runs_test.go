package cli

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
)

const agentsNarrow = `AGENT           STATE     HOST           LABELS                      CLOCK       SEEN
──────────────  ────────  ─────────────  ──────────────────────────  ──────────  ─────
load-1-of-many  busy      bench-host-01  disk=ssd role=load zone=a1  -12.346 ms  700ms
load-2          leaves    bench-host-02  –                           unknown     1.2s
observer        observes  bench-host-03  –                           0.000 ms    0s
old             refused   bench-host-04  –                           unknown     3s

old is refused: the controller speaks protocol 9 and it speaks 8: install the same release of Lockstep on both
`

// A list of agents with realistic names fits 100 columns. -o wide shows everything.
func TestAgentsFitTheScreen(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	agent := func(name, host string, ago time.Duration) wire.AgentInfo {
		return wire.AgentInfo{Heartbeat: wire.Heartbeat{Agent: name, Host: host, Cores: 16,
			Version: "1.2.3 (commit 0a1b2c3d4e5f, 2026-01-02)"}, Seen: now.Add(-ago)}
	}
	one, two, three, four := agent("load-1-of-many", "bench-host-01", 700*time.Millisecond),
		agent("load-2", "bench-host-02", 1200*time.Millisecond),
		agent("observer", "bench-host-03", 0), agent("old", "bench-host-04", 3*time.Second)
	one.Labels = map[string]string{"zone": "a1", "role": "load", "disk": "ssd"}
	one.Offset, one.Busy = &wire.Offset{Offset: -12345678, Bound: 250000}, "219b602ba6ec-r1"
	two.Draining, two.Busy = true, "219b602ba6ec-r1"
	three.Observer, three.Offset = true, &wire.Offset{}
	four.Refused = "the controller speaks protocol 9 and it speaks 8: install the same release of Lockstep on both"
	all := []wire.AgentInfo{one, two, three, four}
	var narrow, wide strings.Builder
	if err := listAgents(&narrow, all, now, false); err != nil {
		t.Fatal(err)
	}
	if got := narrow.String(); got != agentsNarrow {
		t.Errorf("got\n%s\nwant\n%s", got, agentsNarrow)
	}
	for _, line := range strings.Split(narrow.String(), "\n") {
		if n := utf8.RuneCountInString(line); n > 100 && !strings.Contains(line, "is refused:") {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if err := listAgents(&wide, all, now, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CORES", "1.2.3 (commit 0a1b2c3d4e5f, 2026-01-02)", "219b602ba6ec-r1", "ms ± 0.250"} {
		if !strings.Contains(wide.String(), want) {
			t.Errorf("no %q in\n%s", want, wide.String())
		}
	}
}

// The reason why a run ended or waits does not widen the list of runs. -o wide shows all of it.
func TestRunsShortenDetails(t *testing.T) {
	all := []wire.RunState{{Run: "r", State: wire.StateQueued,
		Waiting: "2 more agents, used by run 20260102-150405-quick-3f9c, reserved for run s"}}
	for _, x := range []struct {
		wide bool
		want string
	}{
		{false, " queued: 2 more agents, used by run 20260102-150405-quick-3f…\n"},
		{true, " queued: 2 more agents, used by run 20260102-150405-quick-3f9c, reserved for run s\n"},
	} {
		var out strings.Builder
		if err := fleetRuns(&out, all, time.Now(), x.wide); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(out.String(), x.want) {
			t.Errorf("want %q at the end of\n%s", x.want, out.String())
		}
	}
}

// The newest run is first, both of a fleet and of a folder.
func TestRunsListsTheNewestFirst(t *testing.T) {
	server, lease := leading(t)
	root := t.TempDir()
	for i, id := range []string{"first", "second"} {
		if err := lease.PutRun(t.Context(), wire.RunState{Run: id, State: string(wire.EndDone),
			Seq: uint64(i + 1)}); err != nil {
			t.Fatal(err)
		}
		run := plan.Run{ID: id, Name: "x", Repeat: 1, Started: time.Date(2026, 1, 2+i, 3, 4, 5, 0, time.UTC),
			Cells: []plan.Cell{{ID: "c"}}}
		if _, err := runs.Create(root, run); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"--server", server.URL()}, {"--runs", root}} {
		for _, more := range [][]string{nil, {"-o", "json"}} {
			var out strings.Builder
			code := Ctl(t.Context(), append(append([]string{"runs", "list"}, args...), more...), nil, &out, &out)
			if first, second := strings.Index(out.String(), "first"),
				strings.Index(out.String(), "second"); code != ExitOK || second < 0 || first < second {
				t.Errorf("%v %v: code %d:\n%s", args, more, code, out.String())
			}
		}
	}
}
