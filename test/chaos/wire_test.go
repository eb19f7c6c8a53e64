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
		{name: "messages twice/as sent", do: func(r *row) { r.repeatMessages(true, 0) }},
		{name: "messages twice/late", short: true, do: func(r *row) { r.repeatMessages(false, 0) }},
		{name: "messages twice/of earlier tasks", do: func(r *row) { r.repeatMessages(false, 5*time.Second) }},
		{name: "heartbeat of a previous process", do: previousHeartbeat},
	}
}

// repeatedHeader is the header of messages that the test repeats.
const repeatedHeader = "Chaos-Again"

// repeatedKinds are the kinds of messages that are repeated: those between controller and agents.
var repeatedKinds = []string{"command", "agent.arrive", "agent.snapshot", "agent.heartbeat"}

// repeatMessages repeats the messages of the control plane after some time, from a second connection. Without its id,
// the server cannot detect a repeated message.
func (r *row) repeatMessages(id bool, later time.Duration) {
	f := r.startFleet(fleetSpec{plane: 1, agents: []string{"a1", "a2"}})
	nc, err := natsgo.Connect(f.url)
	if err != nil {
		r.t.Fatal(err)
	}
	defer nc.Close()
	stop, stopped := make(chan struct{}), make(chan int)
	go func() { stopped <- f.repeatMessages(nc, id, later, stop) }()
	end := sync.OnceFunc(func() { close(stop) })
	defer end()
	f.submit(f.matrix(2, ""))
	code := f.ctl.ExitCode()
	end()
	n := <-stopped
	r.describe("%d messages repeated, after %v and more, with their id: %v", n, later, id)
	if n < 50 {
		r.t.Errorf("only %d messages were repeated", n)
	}
	if code != 0 {
		r.t.Errorf("ctl exited with %d, want 0", code)
	}
	f.checkRecord().checkVerdicts("", plan.Valid)
}

// repeatMessages publishes each message of these kinds again, and returns the number of messages.
func (f *fleet) repeatMessages(nc *natsgo.Conn, id bool, later time.Duration, stop <-chan struct{}) (n int) {
	type dueMessage struct {
		m  *natsgo.Msg
		at time.Time
	}
	var pending []dueMessage
	next := 0
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return n
		case <-tick.C:
		}
		f.mu.Lock()
		added := f.messages[next:]
		next = len(f.messages)
		f.mu.Unlock()
		for _, m := range added {
			if m.Header.Get(repeatedHeader) == "" && slices.Contains(repeatedKinds, kind(m.Subject)) {
				pending = append(pending, dueMessage{m, time.Now().Add(later + f.between(0, time.Second))})
			}
		}
		pending = slices.DeleteFunc(pending, func(d dueMessage) bool {
			if time.Now().Before(d.at) {
				return false
			}
			repeat := natsgo.NewMsg(d.m.Subject)
			repeat.Data = d.m.Data
			for k, v := range d.m.Header {
				if k != "Nats-Msg-Id" || id {
					repeat.Header[k] = v
				}
			}
			repeat.Header.Set(repeatedHeader, "1")
			if nc.PublishMsg(repeat) == nil {
				n++
			}
			return true
		})
	}
}

// previousHeartbeat sends a heartbeat of a killed agent's process while its successor runs. It must not replace the
// successor.
func previousHeartbeat(r *row) {
	f := r.startFleet(fleetSpec{plane: 1, agents: []string{"a1", "a2"}})
	target := r.oneOf("a1", "a2")
	old,
		_ := f.awaitMessage(0, "a heartbeat", stepLimit,
		func(m *natsgo.Msg) bool { return m.Subject == "lockstep.agent.heartbeat."+target })
	f.submit(f.matrix(3, ""))
	b := f.awaitTaskPhase(r, 2, inMeasure)
	f.agents[target].Kill()
	f.awaitEvent(b.next, wire.AgentLost, stepLimit)
	f.restart(target)
	for n := 3; n < 6; n++ {
		f.awaitTaskPhase(r, n, r.oneOf(phases...))
		if err := f.nc.PublishMsg(&natsgo.Msg{Subject: old.Subject, Reply: old.Reply, Header: old.Header,
			Data: old.Data}); err != nil {
			r.t.Fatal(err)
		}
	}
	r.describe("heartbeats of a previous process of agent %s while its successor works", target)
	f.awaitEnd(0).checkRepeated(b.Task)
}
