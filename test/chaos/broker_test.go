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
		{name: "broker killed/for good", do: brokerGone},
	}
}

// brokerKilled kills the broker under test and starts it again. The record reports the messages that it lost.
func (r *row) brokerKilled(storage string) {
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2"}})
	// With file storage, the broker keeps confirmed messages: a message of a stream with one replica is written before
	// the confirm. It survives the end of the process, though not of the host, because files are synced only every two
	// minutes. Messages that were in flight to a consumer are delivered again only after ackWait. The drain must last
	// longer: with the default of 30 s they would count as lost.
	f.submit(strings.ReplaceAll(f.matrix(2, storage), `storage: "file"`, `storage: "file", ackWait: "3s"`))
	phase := r.oneOf(phases...)
	b := f.reach(r, 2, phase)
	r.did("kill -9 of the broker (%s) in %s, restarted", storage, phase)
	f.forgetful = storage == "memory"
	at := f.broker.Kill()
	r.pass(r.between(0, 2*time.Second))
	f.broker.again()
	back := time.Now()
	a := f.ends(0, 3)
	r.line.wentOn = a.wentOn(at)
	for id, o := range a.outcomes {
		if o.Verdict != plan.Valid && id != b.Task && o.Started.After(back) {
			a.t.Errorf("task %s, which nothing was done to, is %s: %q", id, o.Verdict, o.Reasons)
		}
	}
}

// brokerGone kills the broker under test and does not start it again. The remaining tasks fail, each with a reason.
func brokerGone(r *row) {
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(1, "memory"))
	b := f.reach(r, 1, inMeasure)
	r.did("kill -9 of the broker in measure, for good")
	f.forgetful = true
	at := f.broker.Kill()
	a := f.ends(3)
	r.line.wentOn = a.wentOn(at)
	for id, o := range a.outcomes {
		if o.Verdict == plan.Valid || len(o.Reasons) == 0 {
			r.t.Errorf("task %s is %s although the broker is gone (it was killed in %s): %q", id, o.Verdict, b.Task,
				o.Reasons)
		}
	}
}
