package controller_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// twoGroups changes a cell to have the group "bulk", with large messages by count through two queues, and the group
// "small", with small messages on one agent.
func twoGroups(c *plan.Cell) {
	w := &c.Workload
	guarantees := plan.Guarantees{ConfirmedKept: true, SentKept: true, NoDuplicates: true, Ordered: true}
	bulk := plan.Group{Name: "bulk", Publishers: w.Publishers, Consumers: w.Consumers, Topology: w.Topology,
		Message: w.Message, Guarantees: guarantees}
	bulk.Publishers.Count, bulk.Message.Size = 700, 20_000
	small := plan.Group{Name: "small", Publishers: w.Publishers, Consumers: w.Consumers, Topology: w.Topology,
		Message: w.Message, Guarantees: guarantees}
	small.Publishers.Nodes, small.Publishers.Mode, small.Publishers.Count, small.Publishers.Threads = 1, "confirm-each",
		90, 3
	small.Consumers.Nodes, small.Consumers.Threads, small.Consumers.Colocate = 1, 2, true
	d := plan.Default()
	w.Publishers, w.Consumers, w.Topology, w.Message = d.Publishers, d.Consumers, d.Topology, d.Message
	w.Groups = []plan.Group{bulk, small}
}

func TestGroupsOnOneBroker(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4", "a5")
		l.awaitAgents(5)
		run := newRun(twoGroups)
		w := l.run(run, nil, nil)
		if len(w.outcomes()) != 1 {
			t.Fatalf("got %d outcomes, end %+v, want 1 outcome", len(w.outcomes()), w.end)
		}
		o := w.outcomes()[0]
		if o.Verdict != plan.Valid || len(o.Reasons) > 0 {
			t.Errorf("got verdict %s, want valid: %q", o.Verdict, o.Reasons)
		}
		exact := func(n uint64) plan.Ledger { return plan.Ledger{Sent: n, Confirmed: n, Received: n} }
		if len(o.Groups) != 2 || o.Groups[0].Name != "bulk" || o.Groups[1].Name != "small" {
			t.Fatalf("groups: got %+v, want bulk and small", o.Groups)
		}
		if bulk, small := o.Groups[0].Ledger, o.Groups[1].Ledger; bulk != exact(1400) || small != exact(270) ||
			o.Ledger != exact(1670) {
			t.Errorf("accounting: got bulk %+v, small %+v, both %+v, want 1400, 270, 1670, all received", bulk,
				small, o.Ledger)
		}
		var who []string
		for _, a := range o.Agents {
			who = append(who, a.Agent+" "+a.Group)
		}
		if want := []string{"a1 bulk", "a2 bulk", "a3 bulk", "a4 bulk", "a5 small"}; !reflect.DeepEqual(who, want) {
			t.Errorf("agents: got %q, want %q", who, want)
		}
		if v := o.Values["publish.p99"]; v.NA != "each group has its own" {
			t.Errorf("publish.p99 of both groups: got %+v, want not available", v)
		}
		for _, name := range []string{"bulk/publish.p99", "small/publish.p99", "small/publish.rate"} {
			if v, has := o.Value(name); !has || v.NA != "" || v.Number <= 0 {
				t.Errorf("%s: got %+v, want a positive number", name, v)
			}
		}
		dir, err := runs.Open(w.root, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		again, err := dir.Rejudge(o.Task)
		if err != nil || !reflect.DeepEqual(again.Groups, onlyOutcome(t, dir).Groups) ||
			!reflect.DeepEqual(again.Values, onlyOutcome(t, dir).Values) {
			t.Errorf("new judgement: got error %v, %+v\nwant %+v", err, again, onlyOutcome(t, dir))
		}
		for _, name := range []string{"publish.hlog", "publish.bulk.hlog", "publish.small.hlog", "e2e.small.hlog"} {
			if _, err := os.Stat(filepath.Join(dir.Dir(), "tasks", o.Task, name)); err != nil {
				t.Error(err)
			}
		}
	})
}

func onlyOutcome(t *testing.T, dir *runs.Run) plan.Outcome {
	t.Helper()
	all, err := dir.Outcomes()
	if err != nil || len(all) != 1 {
		t.Fatalf("got %d outcomes, error %v, want 1", len(all), err)
	}
	return all[0]
}

// TestLostAgentOfAGroup proves that the accounting of the lost agent's group is unknown, and that of the other group is
// unaffected.
func TestLostAgentOfAGroup(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4", "a5")
		l.awaitAgents(5)
		killed := false
		w := l.run(newRun(func(c *plan.Cell) {
			longCell(c)
			twoGroups(c)
			for i := range c.Workload.Groups {
				g := &c.Workload.Groups[i] // a light load, so that no other agent is lost on a busy machine
				g.Publishers.Count, g.Publishers.Rate, g.Message.Size = 0, 100, 1000
			}
		}), nil, func(p controller.Progress) {
			if p.Kind == liveMetrics && sinceBegin(p) > time.Second && !killed {
				killed = true
				l.killAgent("a2")
			}
		})
		if len(w.outcomes()) != 1 || w.end.Reason != wire.EndDone {
			t.Fatalf("got %d outcomes, end %+v, want 1 outcome", len(w.outcomes()), w.end)
		}
		o := firstAttempt(t, w, w.outcomes()[0].Task)
		if text := strings.Join(o.Reasons, "; "); o.Verdict != plan.Unknown ||
			!strings.Contains(text, "group bulk: agent a2 lost in phase") {
			t.Errorf("got verdict %s, reasons %q, want unknown with the group and the agent", o.Verdict, text)
		}
		bulk, small := o.Groups[0], o.Groups[1]
		if bulk.Verdict != plan.Unknown || len(bulk.Values["publish.rate"].Flags) == 0 ||
			bulk.Values["publish.rate"].Flags[len(bulk.Values["publish.rate"].Flags)-1] != plan.Degraded {
			t.Errorf("group bulk: got verdict %s, publish rate %+v, want unknown, flag %s", bulk.Verdict,
				bulk.Values["publish.rate"], plan.Degraded)
		}
		if small.Ledger.Sent == 0 || small.Ledger.Unknown > 0 ||
			strings.Contains(strings.Join(small.Reasons, ";"), "a2 lost in phase") {
			t.Errorf("group small, without a lost agent: got %+v %q, want no unknown messages", small.Ledger,
				small.Reasons)
		}
	})
}
