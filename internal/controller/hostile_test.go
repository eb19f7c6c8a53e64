package controller

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
)

// TestHostileSubmissionsAreRefused submits runs that would use unlimited memory or time.
func TestHostileSubmissionsAreRefused(t *testing.T) {
	valid := func() plan.Workload {
		w := plan.Workload{Publishers: plan.Publishers{Nodes: 1, Threads: 1}}
		w.Message.Size = 100
		return w
	}
	const many = 1_000_000_000
	for name, change := range map[string]func(*plan.Run, *plan.Workload){
		"repetitions": func(r *plan.Run, _ *plan.Workload) { r.Repeat = many },
		"negative":    func(r *plan.Run, _ *plan.Workload) { r.Repeat = -1 },
		"settle":      func(r *plan.Run, _ *plan.Workload) { r.Settle = plan.Duration(1<<63 - 1) },
		"grace":       func(r *plan.Run, _ *plan.Workload) { r.Grace = -1 },
		"until":       func(r *plan.Run, _ *plan.Workload) { r.Until = &plan.StopRule{Within: 0.1, Confidence: 1} },
		"rounds": func(r *plan.Run, _ *plan.Workload) {
			r.Until, r.Repeat = &plan.StopRule{Within: 0.1, Confidence: 0.9}, 201
		},
		"groups": func(_ *plan.Run, w *plan.Workload) {
			w.Groups = slices.Repeat([]plan.Group{{Name: "g"}}, 1001)
		},
		"no agent":        func(_ *plan.Run, w *plan.Workload) { w.Publishers.Nodes, w.Consumers.Nodes = 0, 0 },
		"nodes":           func(_ *plan.Run, w *plan.Workload) { w.Publishers.Nodes = many },
		"threads":         func(_ *plan.Run, w *plan.Workload) { w.Publishers.Threads = many },
		"consumers":       func(_ *plan.Run, w *plan.Workload) { w.Consumers.Threads = many },
		"negative window": func(_ *plan.Run, w *plan.Workload) { w.Publishers.MaxInFlight = -1 },
		"window":          func(_ *plan.Run, w *plan.Workload) { w.Publishers.MaxInFlight = many },
		"batch":           func(_ *plan.Run, w *plan.Workload) { w.Publishers.Batch.Max = many },
		"prefetch":        func(_ *plan.Run, w *plan.Workload) { w.Consumers.Prefetch = many },
		"queues":          func(_ *plan.Run, w *plan.Workload) { w.Topology.Queues = many },
		"subscriptions":   func(_ *plan.Run, w *plan.Workload) { w.Topology.Subscriptions = many },
		"bindings":        func(_ *plan.Run, w *plan.Workload) { w.Topology.Bindings = many },
		"size":            func(_ *plan.Run, w *plan.Workload) { w.Message.Size = many },
		"sizes": func(_ *plan.Run, w *plan.Workload) {
			w.Message.Sizes = []plan.SizeShare{{Min: 1,
				Max: many}}
		},
		"in flight": func(_ *plan.Run, w *plan.Workload) {
			w.Publishers.Mode, w.Publishers.MaxInFlight, w.Publishers.Threads = "confirm-window", 1_000_000, 11
		},
		"a year":  func(_ *plan.Run, w *plan.Workload) { w.Measure = plan.Duration(365 * 24 * time.Hour) },
		"measure": func(_ *plan.Run, w *plan.Workload) { w.Measure = plan.Duration(1<<63 - 1) },
		"connect": func(_ *plan.Run, w *plan.Workload) { w.Connect = plan.Duration(1<<63 - 1) },
		"drain":   func(_ *plan.Run, w *plan.Workload) { w.Drain.Timeout = plan.Duration(1<<63 - 1) },
	} {
		w := valid()
		r := plan.Run{ID: "r", Repeat: 1}
		change(&r, &w)
		r.Cells = []plan.Cell{{ID: "c", Workload: w}}
		if err := check(&wire.Submission{Run: r}); err == nil {
			t.Errorf("%s: check: got no error", name)
		}
	}
	if err := check(&wire.Submission{Run: plan.Run{ID: "r", Repeat: 1,
		Cells: []plan.Cell{{ID: "c", Workload: valid()}}}}); err != nil {
		t.Errorf("valid submission: got error %v", err)
	}
	rules := plan.Cell{ID: "c", Workload: valid()}
	for i := range plan.MaxBases + 1 {
		rules.Require = append(rules.Require, plan.Rule{Text: fmt.Sprintf("publish.rate no worse than baseline b%d by 5%%", i)})
	}
	if err := check(&wire.Submission{Run: plan.Run{ID: "r", Repeat: 1, Cells: []plan.Cell{rules}}}); err == nil ||
		!strings.Contains(err.Error(), "name 101 baselines; the maximum is 100") {
		t.Errorf("check rules with 101 baselines: got error %v", err)
	}
}

// TestAPanicOfTheJudgeIsAnOutcome judges a missing record.
func TestAPanicOfTheJudgeIsAnOutcome(t *testing.T) {
	o := judged(slog.New(slog.DiscardHandler), wire.MaxMessage, plan.Task{ID: "t", Cell: plan.Cell{Workload: plan.Default()}}, nil,
		judge.Facts{})
	if o.Verdict != plan.Unknown || !strings.Contains(strings.Join(o.Reasons, " "), wire.ErrPanic.Error()) {
		t.Errorf("outcome: got verdict %s, reasons %v, want unknown with %v", o.Verdict, o.Reasons, wire.ErrPanic)
	}
}

// TestOutcomesFitIntoTheRecord judges 36,000 events of broken links, for a server with the usual limit of 1 MiB and for
// one with a very low limit.
func TestOutcomesFitIntoTheRecord(t *testing.T) {
	m := record.NewMerged()
	for agent := range 20 {
		s := record.Snapshot{Agent: fmt.Sprint("agent-", agent), Seq: 1}
		for i := range 1800 {
			s.Events = append(s.Events, record.Event{At: int64(i), Kind: record.EventGap, Nanos: 1,
				Detail: fmt.Sprint("publisher ", i, " reconnected after 10ms; it had been closed by the broker")})
		}
		m.Add(s)
	}
	for limit, want := range map[int]bool{1<<20 - 2048: true, 1000: false} {
		o := judged(slog.New(slog.DiscardHandler), limit, plan.Task{ID: "t", Cell: plan.Cell{Workload: plan.Default()}}, m,
			judge.Facts{})
		if got := !strings.Contains(strings.Join(o.Reasons, " "), "exceed the limit"); got != want {
			t.Errorf("limit of %d bytes: outcome stored: got %v, want %v; reasons %q", limit, got, want, o.Reasons)
		}
	}
}

// TestAFloodOfAgentsIsBounded sends heartbeats with many names.
func TestAFloodOfAgentsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no agent is lost while others send heartbeats, for any duration
		f := newFleet(slog.New(slog.DiscardHandler))
		rejected := 0
		for i := range 2 * maxMembers {
			if text := f.heartbeat(wire.Heartbeat{Agent: fmt.Sprint("flood-", i), Instance: "i"}); strings.Contains(text,
				"the maximum") {
				rejected++
			}
		}
		if n := len(f.list()); n > maxMembers || rejected < maxMembers {
			t.Errorf("got %d listed agents, %d rejected, want at most %d listed, the others rejected", n, rejected,
				maxMembers)
		}
		for i := range 3 * maxMembers { // one name with many processes
			f.heartbeat(wire.Heartbeat{Agent: "flood-1", Instance: fmt.Sprint(i)})
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.previous) > maxMembers {
			t.Errorf("stored former agents: got %d, want at most %d", len(f.previous), maxMembers)
		}
	})
}

// TestAFloodOfRefusedAgentsIsBounded rejects many names.
func TestAFloodOfRefusedAgentsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(slog.New(slog.DiscardHandler))
		for i := range 3 * maxRefused {
			f.refuse(wire.Heartbeat{Agent: fmt.Sprint("flood-", i)}, "no")
		}
		if n := len(f.known()); n != maxRefused {
			t.Errorf("listed rejected agents: got %d, want %d", n, maxRefused)
		}
		time.Sleep(refusedFor)
		f.refuse(wire.Heartbeat{Agent: "late"}, "why not")
		if left := f.known(); len(left) != 1 || left[0].Agent != "late" || left[0].Refused != "why not" {
			t.Errorf("listed rejected agents after %v: got %v, want only the late one", refusedFor, left)
		}
	})
}
