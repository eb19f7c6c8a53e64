package hostile

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestRepliesGoToInboxesAlone proves that a reply goes only to an inbox. The client chooses the reply subject of a
// request, and the controller replies with its own permissions. It must not reply to the API, a key-value bucket or a
// stream.
func TestRepliesGoToInboxesAlone(t *testing.T) {
	f := startFleet(t)
	_, err := f.js.Publish(t.Context(), "$KV.LOCKSTEP_SCHEDULES.example", []byte("x"))
	must(t, err)
	before := f.streamInfos()
	if len(before) == 0 {
		t.Fatal("got no streams")
	}
	replies := []string{"lockstep.queue.cancel.r1", "lockstep.agent.heartbeat.a3", "lockstep.command.a3",
		"$KV.LOCKSTEP_STATE.spy", "$KV.LOCKSTEP_SCHEDULES.spy", "_INBOX"}
	for _, user := range f.users { // inbox of another user
		replies = append(replies, "_INBOX."+user.Key+".x")
	}
	for name := range before {
		replies = append(replies, "$JS.API.STREAM.PURGE."+name, "$JS.API.STREAM.DELETE."+name)
	}
	controller := f.dial("controller.nk")
	received, err := controller.SubscribeSync("lockstep.command.a3")
	must(t, err)
	must(t, controller.Flush())
	for key, subjects := range map[string][]string{
		"agents/a1.nk": agentServices("a1"),
		"viewer.nk":    viewServices,
		"client.nk":    slices.Concat(clientServices, viewServices),
	} {
		nc := f.dial(key)
		for _, subject := range subjects {
			for _, reply := range replies {
				for _, m := range []*nats.Msg{{Subject: subject}, {Subject: subject, Data: []byte("x")},
					message(subject, ""), message(subject, "{}")} {
					m.Reply = reply
					must(t, nc.PublishMsg(m))
				}
			}
			// A connection's messages are handled in order. After this response all others were handled.
			if _, err := nc.Request(subject, []byte("x"), timeLimit); err != nil {
				t.Errorf("request to %s with %s: no response in the inbox: %v", subject, key, err)
			}
		}
	}
	must(t, controller.Flush()) // all messages that the server sent to the controller have arrived
	if n, _, _ := received.Pending(); n > 0 {
		t.Errorf("got %d messages to agent a3, want none", n)
	}
	after := f.streamInfos()
	for name, stream := range before {
		now, ok := after[name]
		if !ok || !now.Created.Equal(stream.Created) || now.State.Msgs < stream.State.Msgs {
			t.Errorf("stream %s: got creation time %v, %d messages, want %v, at least %d messages", name, now.Created,
				now.State.Msgs, stream.Created, stream.State.Msgs)
		}
		for _, subject := range replies {
			if now.State.Subjects[subject] > 0 {
				t.Errorf("stream %s has a message with the reply subject %s", name, subject)
			}
		}
	}
	f.checkController("hostile replies")
}

// streamInfos returns the state of all streams, by name.
func (f *fleet) streamInfos() map[string]jetstream.StreamInfo {
	f.t.Helper()
	all := map[string]jetstream.StreamInfo{}
	names := f.js.StreamNames(f.t.Context())
	for name := range names.Name() {
		s, err := f.js.Stream(f.t.Context(), name)
		must(f.t, err)
		info, err := s.Info(f.t.Context(), jetstream.WithSubjectFilter(">"))
		must(f.t, err)
		all[name] = *info
	}
	must(f.t, names.Err())
	return all
}

// TestServerRepliesOnlyToControllers proves that only a controller may send requests to which the NATS server itself
// replies. The server replies to a pull request, and with a copy of a stored message. It replies with its own
// permissions, to the reply subject of the request.
func TestServerRepliesOnlyToControllers(t *testing.T) {
	f := startFleet(t)
	before := f.streamInfos()
	for _, key := range []string{"viewer.nk", "client.nk", "agents/a1.nk"} {
		nc := f.dial(key)
		rejected := permissionErrors(nc)
		var attacks []*nats.Msg
		for name := range before {
			consumer := `{"stream_name":"` + name +
				`","config":{"name":"spy","ack_policy":"none","deliver_policy":"all","inactive_threshold":60000000000}}`
			attacks = append(attacks, &nats.Msg{Subject: "$JS.API.CONSUMER.CREATE." + name + ".spy",
				Data: []byte(consumer), Reply: nc.NewInbox()},
				&nats.Msg{Subject: "$JS.API.CONSUMER.MSG.NEXT." + name + ".spy",
					Data: []byte(`{"batch":1,"no_wait":true}`), Reply: "$JS.API.STREAM.DELETE." + name})
		}
		for _, subject := range []string{"lockstep.queue.forged.outcome.t", "$KV.LOCKSTEP_LEASE.leader"} {
			forged := message("lockstep.queue.submit.forged", `{"task":"t"}`)
			attacks = append(attacks, forged,
				&nats.Msg{Subject: "$JS.API.DIRECT.GET.LOCKSTEP_QUEUE.lockstep.queue.submit.forged", Reply: subject})
		}
		for _, m := range attacks {
			must(t, nc.PublishMsg(m))
			must(t, nc.Flush())
			for done := false; !done; {
				select {
				case <-rejected:
					done = true
				case <-time.After(timeLimit): // the server reports an error before it answers Flush
					if after := f.streamInfos(); len(after) < len(before) ||
						after["LOCKSTEP_QUEUE"].State.Msgs > before["LOCKSTEP_QUEUE"].State.Msgs {
						t.Fatalf("request of %s to %s with the reply subject %s changed a stream", key, m.Subject,
							m.Reply)
					}
					t.Errorf("request of %s to %s with the reply subject %s: got no permission error", key, m.Subject,
						m.Reply)
					done = true
				}
			}
		}
	}
	for name, stream := range f.streamInfos() {
		if !stream.Created.Equal(before[name].Created) {
			t.Errorf("stream %s was deleted and created again", name)
		}
	}
	f.checkController("replies of the server")
}
