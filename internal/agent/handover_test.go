package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/wire"
)

// A part that the control plane never takes keeps no other from being handed over.
func TestAPartThatIsRefusedForGoodIsPutAside(t *testing.T) {
	o := newOutage(t)
	s, err := openSpool(t.TempDir(), spoolBytes, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ref := func(task string) wire.Ref { return wire.Ref{Run: "r", Task: task, Try: "x"} }
	parts := map[string]string{"t1": strings.Repeat("x", wire.MaxMessage+1), "t2": "small"} // files are handed over in this order
	for task, said := range parts {
		err := s.put(batch{Protocol: plan.Protocol, Ref: ref(task), Agent: "a1", Key: wire.NewKey(), Snapshots: []record.Snapshot{{Protocol: plan.Protocol, Task: task, Agent: "a1", Seq: 1}},
			Arrival: &wire.Arrival{Ref: ref(task), Agent: "a1", Step: wire.StepFinish, Remark: said}})
		if err != nil {
			t.Fatal(err)
		}
	}
	names := s.waiting()
	if !s.give(t.Context(), o.conn, names[0]) || !s.give(t.Context(), o.conn, names[1]) {
		t.Error("the control plane is there, and a part is kept for later")
	}
	if left := s.waiting(); len(left) > 0 {
		t.Errorf("%v still wait", left)
	}
	if _, err := os.Stat(filepath.Join(s.dir, names[0]+".refused")); err != nil {
		t.Errorf("what was refused is not there any more: %v", err)
	}
	_, arrivals := o.stored(ref("t2"), func(_ []record.Snapshot, a []wire.Arrival) bool { return len(a) > 0 })
	if !slices.ContainsFunc(arrivals, func(a wire.Arrival) bool { return a.Remark == "small" }) {
		t.Errorf("arrivals %+v: want the other part's", arrivals)
	}
	o.server.Close()
	if err := s.put(batch{Protocol: plan.Protocol, Ref: ref("t3"), Agent: "a1", Arrival: &wire.Arrival{Ref: ref("t3"), Agent: "a1", Step: wire.StepFinish}}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := wire.Lasting(t.Context(), time.Minute)
	time.AfterFunc(100*time.Millisecond, stop)
	if s.give(ctx, o.conn, s.waiting()[0]) || len(s.waiting()) != 1 {
		t.Error("a part was put aside because the control plane is away")
	}
}
