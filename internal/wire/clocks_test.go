package wire

import (
	"strings"
	"testing"

	"lockstep/internal/clock"
)

func TestAskClock(t *testing.T) {
	s := plane(t, ServerConfig{})
	controller, agent := link(t, s), link(t, s)
	if _, _, err := agent.AskClock(t.Context()); err == nil || !strings.Contains(err.Error(), "ask the controller for its time") {
		t.Errorf("without a controller: %v", err)
	}
	stop, err := controller.AnswerClock()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		id, x, err := agent.AskClock(t.Context())
		if err != nil || id != clock.ID() {
			t.Fatalf("clock %q, %v; want %q", id, err, clock.ID())
		}
		if !(x.Sent < x.Heard && x.Heard <= x.Answered && x.Answered < x.Received) { // all four by one clock
			t.Errorf("the times of an exchange are not in order: %+v", x)
		}
	}
	stop()
	if _, _, err := agent.AskClock(t.Context()); err == nil {
		t.Error("an answer after the controller had stopped")
	}
}
