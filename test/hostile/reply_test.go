package hostile

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestRepliesGoToInboxesAlone: who requests something from the controller names the reply subject, and the server accepts the reply
// with the controller's permissions. It must not be an API request, a value or a message of a stream.
func TestRepliesGoToInboxesAlone(t *testing.T) {
	f := startFleet(t)
	for _, subject := range []string{"lockstep.record.kept.plan", "lockstep.task.assign.kept", "lockstep.task.release.kept", "$KV.LOCKSTEP_SCHEDULES.kept"} {
		_, err := f.js.Publish(t.Context(), subject, []byte("x"))
		must(t, err)
	}
	before := f.streams()
	if len(before) == 0 {
		t.Fatal("there are no streams")
	}
	replies := []string{"lockstep.queue.cancel.r1", "lockstep.roll", "lockstep.heartbeat.a3", "$KV.LOCKSTEP_STATE.spy", "$KV.LOCKSTEP_SCHEDULES.spy", "_INBOX"}
	for name := range before {
		replies = append(replies, "$JS.API.STREAM.PURGE."+name, "$JS.API.STREAM.DELETE."+name)
	}
	controller := f.dial("controller.nk")
	spied, err := controller.SubscribeSync("lockstep.heartbeat.a3")
	must(t, err)
	must(t, controller.Flush())
	for key, subjects := range map[string][]string{
		"agents/a1.nk": {"lockstep.heartbeat.a1", "lockstep.clock"},
		"viewer.nk":    {"lockstep.agents", "lockstep.history"},
		"client.nk":    {"lockstep.agents", "lockstep.history"},
	} {
		nc := f.dial(key)
		for _, subject := range subjects {
			for _, reply := range replies {
				for _, m := range []*nats.Msg{{Subject: subject}, {Subject: subject, Data: []byte("x")}, message(subject, ""), message(subject, "{}")} {
					m.Reply = reply
					must(t, nc.PublishMsg(m))
				}
			}
			// A connection's messages are handled in order: with the answer to this one all others were handled.
			if _, err := nc.Request(subject, []byte("x"), within); err != nil {
				t.Errorf("%s on %s: an inbox got no answer: %v", key, subject, err)
			}
		}
	}
	must(t, controller.Flush()) // what the server published for the controller before is here now
	if n, _, _ := spied.Pending(); n > 0 {
		t.Errorf("the controller sent %d messages as agent a3", n)
	}
	after := f.streams()
	for name, stream := range before {
		now, there := after[name]
		if !there || !now.Created.Equal(stream.Created) || now.State.Msgs < stream.State.Msgs {
			t.Errorf("stream %s of %v has %d messages now, and was of %v: want the same stream with at least %d", name, now.Created, now.State.Msgs, stream.Created, stream.State.Msgs)
		}
		for _, subject := range replies {
			if now.State.Subjects[subject] > 0 {
				t.Errorf("stream %s holds %s", name, subject)
			}
		}
	}
	f.alive("hostile replies")
}

// streams is how all streams are, by name.
func (f *fleet) streams() map[string]jetstream.StreamInfo {
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
