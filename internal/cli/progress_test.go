package cli

import (
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

// A takeover is printed as one line, after the line that a controller leads again.
func TestATakeoverIsPrintedOnceAndInOrder(t *testing.T) {
	var out strings.Builder
	p := newProgress(newConsole(&out), wire.Submission{}, false)
	p.away("no controller leads")
	p.away("no controller leads")
	const detail = "controller c has taken over: the task in flight is repeated"
	p.show(controller.Progress{Kind: wire.TakenOver, N: 2, Of: 3, Detail: detail})
	p.show(controller.Progress{Kind: wire.TaskInterrupted, N: 2, Of: 3, Detail: detail})
	p.back()
	p.show(controller.Progress{Kind: wire.TaskInterrupted, N: 3, Of: 3, Detail: "cancelled"})
	const want = `no controller leads
a controller leads again; the run continues
[2/3] controller c has taken over: the task in flight is repeated
[3/3] interrupted: cancelled
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// A resumed run prints no lines about the time before its end.
func TestAResumedRunPrintsNoEarlierLines(t *testing.T) {
	var out strings.Builder
	p := newProgress(newConsole(&out), wire.Submission{}, false)
	p.since = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, ago := range []time.Duration{time.Minute, 0, -time.Second} {
		p.show(controller.Progress{Kind: wire.TaskInterrupted, At: p.since.Add(-ago), N: 2, Of: 3,
			Detail: "cancelled"})
		p.show(controller.Progress{Kind: controller.TaskEnded, At: p.since.Add(-ago), N: 3, Of: 3,
			Outcome: plan.Outcome{Verdict: plan.Valid}})
	}
	if want := "[2/3] interrupted: cancelled\n[3/3]: valid\n"; out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
