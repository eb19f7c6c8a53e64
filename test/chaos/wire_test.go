package chaos

import (
	"slices"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

func wireFaults() []fault {
	return []fault{
		{name: "messages twice/as sent", do: func(r *row) { r.twice(true, 0) }},
		{name: "messages twice/late", short: true, do: func(r *row) { r.twice(false, 0) }},
		{name: "messages twice/of earlier tasks", do: func(r *row) { r.twice(false, 5*time.Second) }},
		{name: "heartbeat of a former process", do: formerHeartbeat},
	}
}

// again is the header of messages that the test repeats.
const again = "Chaos-Again"

// repeated are the kinds of messages that are repeated: those between controller and agents.
var repeated = []string{"command", "agent.arrive", "agent.snapshot", "agent.heartbeat"}

// twice repeats the messages of the control plane after some time, from a second connection. Without its id, the server
// cannot detect a repeated message.
func (r *row) twice(id bool, later time.Duration) {
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2"}})
	nc, err := natsgo.Connect(f.url)
	if err != nil {
		r.t.Fatal(err)
	}
	defer nc.Close()
	stop, stopped := make(chan struct{}), make(chan int)
	go func() { stopped <- f.repeat(nc, id, later, stop) }()
	end := sync.OnceFunc(func() { close(stop) })
	defer end()
	f.submit(f.matrix(2, ""))
	code := f.ctl.ExitCode()
	end()
	n := <-stopped
	r.did("%d messages repeated, after %v and more, with their id: %v", n, later, id)
	if n < 50 {
		r.t.Errorf("only %d messages were repeated", n)
	}
	if code != 0 {
		r.t.Errorf("ctl exited with %d, want 0", code)
	}
	f.account().verdict("", plan.Valid)
}

// repeat publishes each message of these kinds again, and returns the number of messages.
func (f *fleet) repeat(nc *natsgo.Conn, id bool, later time.Duration, stop <-chan struct{}) (n int) {
	type due struct {
		m  *natsgo.Msg
		at time.Time
	}
	var waiting []due
	place := 0
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return n
		case <-tick.C:
		}
		f.mu.Lock()
		news := f.all[place:]
		place = len(f.all)
		f.mu.Unlock()
		for _, m := range news {
			if m.Header.Get(again) == "" && slices.Contains(repeated, kind(m.Subject)) {
				waiting = append(waiting, due{m, time.Now().Add(later + f.between(0, time.Second))})
			}
		}
		waiting = slices.DeleteFunc(waiting, func(d due) bool {
			if time.Now().Before(d.at) {
				return false
			}
			c := natsgo.NewMsg(d.m.Subject)
			c.Data = d.m.Data
			for k, v := range d.m.Header {
				if k != "Nats-Msg-Id" || id {
					c.Header[k] = v
				}
			}
			c.Header.Set(again, "1")
			if nc.PublishMsg(c) == nil {
				n++
			}
			return true
		})
	}
}

// formerHeartbeat sends a heartbeat of a killed agent's process while its successor runs. It must not replace the
// successor.
func formerHeartbeat(r *row) {
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2"}})
	victim := r.oneOf("a1", "a2")
	old,
		_ := f.find(0, "a heartbeat", stepLimit,
		func(m *natsgo.Msg) bool { return m.Subject == "lockstep.agent.heartbeat."+victim })
	f.submit(f.matrix(3, ""))
	b := f.reach(r, 2, inMeasure)
	f.agents[victim].Kill()
	f.event(b.place, wire.AgentLost, stepLimit)
	f.restart(victim)
	for n := 3; n < 6; n++ {
		f.reach(r, n, r.oneOf(phases...))
		if err := f.nc.PublishMsg(&natsgo.Msg{Subject: old.Subject, Reply: old.Reply, Header: old.Header,
			Data: old.Data}); err != nil {
			r.t.Fatal(err)
		}
	}
	r.did("heartbeats of a former process of agent %s while its successor works", victim)
	f.ends(0).repeated(b.Task)
}
