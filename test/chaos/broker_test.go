package chaos

import (
	"strings"
	"time"

	"lockstep/internal/plan"
)

func brokerFaults() []fault {
	return []fault{
		{name: "broker killed/memory", do: func(r *row) { r.brokerKilled("memory") }},
		{name: "broker killed/file", short: true, do: func(r *row) { r.brokerKilled("file") }},
		{name: "broker killed/for good", do: brokerGone},
	}
}

// brokerKilled kills the broker under test and starts it again. What it forgot is its own doing, and the record says
// what that was.
func (r *row) brokerKilled(storage string) {
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2"}})
	// With files it keeps what it has confirmed: a stream of one replica is written before the confirm, and what is
	// written outlives the process, though not the host, as it is synced only every two minutes. But what was on its
	// way to a consumer when it was killed is delivered again only after ackWait. The drain has to wait for that: with
	// the usual 30 s such messages count as lost.
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

// brokerGone kills the broker under test for good: no task that is left can be done, and each says why.
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
