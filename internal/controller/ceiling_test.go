package controller_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
)

// A run states the limits of the load generator for each of its loads. A later run on the same agents reuses them.
// Cells on the loopback driver have none.
func TestCeilings(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cache", "ceilings.json")
	l := newLocalFleet(t, "a1", "a2", "a3", "a4")
	l.cancelController()
	l.controllers.Wait()
	l.config.Ceilings = controller.OpenCeilings(path, "")
	l.startController()
	l.awaitAgents(4)
	mode := func(mode string) func(*plan.Cell) {
		return func(c *plan.Cell) {
			c.Broker.Driver, c.Workload.Publishers.Mode, c.Workload.Publishers.Count = "counted", mode, 10
		}
	}
	ceilings := func(changes ...func(*plan.Cell)) []plan.Ceiling {
		t.Helper()
		w := l.run(newRun(changes...), nil, nil)
		r, err := runs.Open(w.root, w.id)
		if err != nil {
			t.Fatal(err)
		}
		return r.Plan().Ceilings
	}
	got := ceilings(nil, mode("confirm-each"), mode("confirm-each"), mode("fire-and-forget"))
	if len(got) != 2 || got[0].Limits == nil || got[1].Limits == nil || got[0].Limits.Rate <= 0 {
		t.Fatalf("ceilings: got %+v, want those of two modes", got)
	}
	want := plan.LoadShape{Mode: "confirm-each", Size: 100, Nodes: 2, Threads: 1}
	if got[0].Load != want || got[1].Load.Mode != "fire-and-forget" {
		t.Errorf("loads: got %+v and %+v, want %+v and the same in fire-and-forget", got[0].Load, got[1].Load, want)
	}

	type limits struct {
		Limits   plan.Limits
		Measured time.Time
	}
	stored := map[string]limits{}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &stored)
	}
	if err != nil || len(stored) != 2 {
		t.Fatalf("stored ceilings: got %s, error %v, want two", data, err)
	}
	for key := range stored {
		stored[key] = limits{plan.Limits{Rate: 7}, time.Now()}
	}
	data, _ = json.Marshal(stored)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	got = ceilings(mode("confirm-each"), mode("confirm-batch"))
	if len(got) != 2 || got[0].Limits == nil || got[0].Limits.Rate != 7 {
		t.Errorf("same load in a second run: got %+v, want the stored ceiling of 7 msg/s", got)
	}
	if got[1].Limits == nil || got[1].Limits.Rate == 7 {
		t.Errorf("another load in a second run: got %+v, want a new ceiling", got[1])
	}

	// an unreadable file is replaced, and a ceiling that cannot be measured has no limits
	if err := os.WriteFile(path, []byte("not JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	got = ceilings(allOf(mode("confirm-each"), func(c *plan.Cell) { c.Workload.Publishers.Threads = 2 }),
		allOf(mode("confirm-each"), func(c *plan.Cell) { c.Workload.Message.Size = 1 }))
	if len(got) != 2 || got[0].Limits == nil || got[1].Limits != nil {
		t.Errorf("ceilings: got %+v, want limits only in the first", got)
	}
	if data, err = os.ReadFile(path); err != nil || !strings.HasPrefix(string(data), "{") {
		t.Errorf("file of ceilings: got %s, error %v, want JSON", data, err)
	}
}
