package web

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/runview"
	"example.org/lockstep/lockstep/internal/wire"
)

// The page of a run is made when fewer than the maximum are being made. Until then it waits as long as the request.
func TestPagesOfRunsAreLimited(t *testing.T) {
	s := &site{pages: make(chan struct{}, 1)}
	s.pages <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.run(httptest.NewRequestWithContext(ctx, http.MethodGet, "/runs/r", nil)); !errors.Is(err,
		context.Canceled) {
		t.Errorf("a page beyond the maximum: got error %v, want context.Canceled", err)
	}
}

// The page of the agents links the run that an agent works on, by the name of its matrix.
func TestABusyAgentIsShown(t *testing.T) {
	busy := wire.AgentInfo{Heartbeat: wire.Heartbeat{Agent: "a1", Busy: "c0-r1",
		Attempt: wire.Ref{Run: "run-1", Task: "c0-r1"}}}
	for name, want := range map[string]string{
		"nightly": `<a href="/runs/run-1">nightly</a> <small>run-1</small> c0-r1`,
		"":        `<a href="/runs/run-1">run-1</a> c0-r1`, // not known
	} {
		var text bytes.Buffer
		f := frame{view: view{Page: "agents", Body: []agentLine{{busy, runLink{"run-1", name}}}}}
		if err := pages["agents"].ExecuteTemplate(&text, "layout", f); err != nil || !strings.Contains(text.String(), want) {
			t.Errorf("%v in %s", err, text.String())
		}
	}
}

// TestGroupsAreNotAddedUp proves that the page shows each group, with full seconds that all its agents have reported,
// and the remaining time.
func TestGroupsAreNotAddedUp(t *testing.T) {
	work := plan.Default()
	work.Consumers.Nodes, work.Measure = 1, plan.Duration(10*time.Second)
	cell := plan.Cell{ID: "c", Workload: work}
	for _, name := range []string{"bulk", "light"} {
		cell.Workload.Groups = append(cell.Workload.Groups,
			plan.Group{Name: name, Publishers: work.Publishers, Consumers: work.Consumers, Topology: work.Topology,
				Message: work.Message})
	}
	run := plan.Run{ID: "r", Repeat: 1, Cells: []plan.Cell{cell}}
	task := run.Tasks()[0]
	l := newRunInfo()
	begun := time.Unix(1000, 0)
	ref := wire.Ref{Run: "r", Task: task.ID, Attempt: "1"}
	l.entry(wire.Entry{Plan: &run})
	l.entry(wire.Entry{Event: &wire.RunEvent{Kind: wire.RunAccepted, At: begun, Of: 1}})
	l.entry(wire.Entry{Event: &wire.RunEvent{Kind: wire.TaskStarted, At: begun, Task: task.ID, Attempt: "1", N: 1,
		Of: 1, Agents: []string{"bulk-1", "bulk-2", "light-1"}}})
	if got := l.view(begun).Phase; !strings.HasPrefix(got, "connecting") {
		t.Errorf("before the first report it is %q", got)
	}
	for second := range int64(6) {
		for agent, sent := range map[string]int64{"bulk-1": 700, "bulk-2": 300, "light-1": 5} {
			if agent == "bulk-2" && second == 5 {
				continue // it is late
			}
			w := record.Window{Index: int(second), Measured: true, Start: second * 1e9, Length: 1e9}
			w.Counts[record.Sent], w.Counts[record.Received], w.Counts[record.Unique] = sent, sent, sent
			group := agent[:len(agent)-2]
			l.entry(wire.Entry{Ref: ref, Snapshot: &record.Snapshot{Agent: agent, Group: group,
				At: (second+1)*1e9 + 5e8, Windows: []record.Window{w}}})
		}
	}
	v := l.view(begun.Add(6 * time.Second))
	if len(v.Flows) != 2 || v.Flows[0].Group != "bulk" || v.Flows[0].PublishRate != 1000 || v.Flows[1].PublishRate != 5 ||
		v.Flows[0].ConsumeRate != 1000 {
		t.Errorf("the flows are %+v", v.Flows)
	}
	if v.Reporting != 3 || v.Chart == "" || v.Phase != "measuring" {
		t.Errorf("%d agents, phase %q, chart of %d bytes", v.Reporting, v.Phase, len(v.Chart))
	}
	if want := "about " + display.Elapsed(plan.Estimate(cell.Workload)-6*time.Second); v.Left != want {
		t.Errorf("left: %q, want %q", v.Left, want)
	}
}

// While a backlog grows, the live view has no end-to-end latency, because that would only measure the queue.
func TestNoLatencyWhileABacklogGrows(t *testing.T) {
	for _, behind := range []bool{false, true} {
		v := liveView{Cell: "c"}
		draw(&v, &runview.Attempt{Series: []runview.Metrics{{Flows: []runview.Flow{{Known: true, Consumes: true,
			Behind: behind, EndToEnd: runview.Latency{P50: 3 * time.Second, P99: 5 * time.Second, Samples: 9}}}}}})
		var text bytes.Buffer
		if err := pages["run"].ExecuteTemplate(&text, "live", v); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text.String(), "5.00 s") == behind ||
			strings.Contains(text.String(), "<dt>e2e p99</dt><dd>backlog</dd>") != behind {
			t.Errorf("backlog grows: %v, and the page shows:\n%s", behind, text.String())
		}
	}
}

// The seconds of an automatic warm-up have no place on the axis until the measurement has begun.
func TestAutomaticWarmUpIsNotDrawn(t *testing.T) {
	flows := []runview.Flow{{Known: true, PublishRate: 1000}}
	lines := linesOf([]runview.Metrics{{Since: runview.Unsteady, Flows: flows}, {Since: -time.Second, Flows: flows},
		{Since: time.Second, Flows: flows}})
	if len(lines) != 1 || len(lines[0].Points) != 2 || lines[0].Points[0].X != -1 {
		t.Errorf("lines: got %+v, want one with points at -1 and 1 s", lines)
	}
}
