package wire

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"lockstep/internal/record"
)

// An agent that publishes on its own subject, with the id that another's next snapshot would have if ids were made of what everybody knows, makes nothing vanish.
func TestNobodyKnowsTheIDOfAnothersMessage(t *testing.T) {
	g := guardPlane(t)
	ref := Ref{Run: "r1", Task: "t1", Try: "y1"}
	one, two, controller := g.dial(t, "a1"), g.dial(t, "a2.zone b"), link(t, g.server)
	words := "." + ref.tokens() + "." + token("a2.zone b") + "."
	for _, id := range []string{"snapshot" + words + "1", "arrive" + words + string(StepOpen) + ".false", messageID("", "snapshot", ref.tokens(), token("a2.zone b"), "1")} {
		m, err := one.message(subjectSnapshot(ref, "a1"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := one.js.PublishMsg(t.Context(), m, jetstream.WithMsgID(id)); err != nil {
			t.Fatal(err)
		}
	}
	key := NewKey()
	for range 2 { // sent again, it is stored once
		if err := two.Snapshot(t.Context(), key, ref, record.Snapshot{Task: "t1", Agent: "a2.zone b", Seq: 1}); err != nil {
			t.Fatal(err)
		}
		if err := two.Arrive(t.Context(), key, Arrival{Ref: ref, Agent: "a2.zone b", Step: StepOpen}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := controller.js.Stream(t.Context(), streamRecord)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(recordAll("r1")))
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{subjectSnapshot(ref, "a2.zone b"), subjectArrival(ref, "a2.zone b")} {
		if n := info.State.Subjects[subject]; n != 1 {
			t.Errorf("%d messages are on %s: want one", n, subject)
		}
	}
}
