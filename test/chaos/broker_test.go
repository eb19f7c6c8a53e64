package chaos

import (
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

func brokerFaults() []fault {
	return []fault{
		{name: "broker killed/memory", do: func(r *row) { r.brokerKilled("memory") }},
		{name: "broker killed/file", short: true, do: func(r *row) { r.brokerKilled("file") }},
		{name: "broker killed/not restarted", do: brokerNotRestarted},
	}
}

// shortDrain lets a task end soon whose messages are lost: its publishers wait for the broker for up to the timeout,
// and then its consumers wait for messages for as long.
func (f *fleet) shortDrain(matrix string) string {
	return f.replaced(matrix, `drain: {idle: "1m", timeout: "3m"}`, `drain: {idle: "5s", timeout: "20s"}`)
}

// brokerKilled kills the broker under test and starts it again. The record reports the messages that it lost.
func (r *row) brokerKilled(storage string) {
	f := r.startFleet(fleetSpec{plane: 1, agents: []string{"a1", "a2"}})
	// With file storage, the broker keeps confirmed messages: a message of a stream with one replica is written before
	// the confirm. It survives the end of the process, though not of the host, because files are synced only every two
	// minutes. Messages that were in flight to a consumer are delivered again only after ackWait. The drain must last
	// longer: with the default of 30 s they would count as lost.
	text := strings.ReplaceAll(f.matrix(2, storage), `storage: "file"`, `storage: "file", ackWait: "3s"`)
	if storage == "memory" {
		text = f.shortDrain(text)
	}
	f.submit(text)
	phase := r.oneOf(phases...)
	b := f.awaitTaskPhase(r, 2, phase)
	r.describe("kill -9 of the broker (%s) in %s, restarted", storage, phase)
	f.mayLoseMessages = storage == "memory"
	at := f.broker.Kill()
	r.wait(r.between(0, 2*time.Second))
	f.broker.start()
	back := time.Now()
	check := f.awaitEnd(0, 3)
	r.line.resumed = check.timeToNextStart(at)
	for id, o := range check.outcomes {
		if o.Verdict != plan.Valid && id != b.Task && o.Started.After(back) {
			check.t.Errorf("task %s, started after the restart: got verdict %s, want valid: %q", id, o.Verdict,
				o.Reasons)
		}
	}
}

// brokerNotRestarted kills the broker under test and does not start it again. The remaining tasks fail, each with a
// reason.
func brokerNotRestarted(r *row) {
	f := r.startFleet(fleetSpec{plane: 1, agents: []string{"a1", "a2"}})
	f.submit(f.shortDrain(f.matrix(1, "memory")))
	b := f.awaitTaskPhase(r, 1, inMeasure)
	r.describe("kill -9 of the broker in measure, not restarted")
	f.mayLoseMessages = true
	at := f.broker.Kill()
	check := f.awaitEnd(3)
	r.line.resumed = check.timeToNextStart(at)
	for id, o := range check.outcomes {
		if o.Verdict == plan.Valid || len(o.Reasons) == 0 {
			r.t.Errorf("task %s: got verdict %s, reasons %q, want not valid, with a reason (broker killed in task %s)",
				id,
				o.Verdict, o.Reasons, b.Task)
		}
	}
}
