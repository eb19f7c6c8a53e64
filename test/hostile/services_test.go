package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/web"
	"example.org/lockstep/lockstep/internal/wire"
)

// Services of the leader.
var (
	clientServices = []string{"lockstep.client.submit", "lockstep.client.cancel", "lockstep.client.schedule.put",
		"lockstep.client.schedule.remove",
		"lockstep.client.baseline.set", "lockstep.client.baseline.remove"}
	viewServices = []string{"lockstep.view.leader", "lockstep.view.agents", "lockstep.view.runs", "lockstep.view.run",
		"lockstep.view.read", "lockstep.view.storage",
		"lockstep.view.history", "lockstep.view.schedules", "lockstep.view.schedule", "lockstep.view.hooks",
		"lockstep.view.baselines"}
)

// agentServices returns the services of one agent.
func agentServices(name string) (all []string) {
	for _, service := range []string{"heartbeat", "clock", "arrive", "snapshot"} {
		all = append(all, "lockstep.agent."+service+"."+name)
	}
	return all
}

// mayRequest are the services that each role may use; it has no other permissions.
var mayRequest = map[string][]string{"client.nk": slices.Concat(clientServices, viewServices),
	"viewer.nk": viewServices}

// permissionErrors returns a channel with the permission errors of a connection.
func permissionErrors(nc *nats.Conn) <-chan error {
	rejected := make(chan error, 1000)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { rejected <- err })
	return rejected
}

// TestServicesSurviveAnyRequest proves that every service responds to malformed, too long or too large requests, and
// that the fleet can execute a run afterwards.
func TestServicesSurviveAnyRequest(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	limit := int(f.dial("client.nk").MaxPayload()) - 1024
	long, deep := strings.Repeat("n", 5000), strings.Repeat("[", 100_000)
	// Services for small requests drop messages of more than 2 MiB, without an answer.
	size := map[bool]int{true: limit, false: 1 << 20}
	bodies := []string{"", "null", "[]", "{}", "{", `"x"`, "\x1f\x8b\x08\x00", deep, `{"Run":-1}`,
		`{"run":"","behind":{"events":18446744073709551615},"wait":false}`,
		fmt.Sprintf(`{"Name":%q,"Run":%q,"run":%q}`, long, long, long), `{"Name":"a.b *>\n","Run":"a.b *>\n"}`,
		`{"Run":"r","Key":"k","Submission":"H4sIAAAAAAAA"}`, `{"Name":"s","Revision":0,"Value":"eHh4"}`,
		`{"Name":"s","Revision":0,"Value":"H4sIAAAAAAAA"}`,
	}
	for key, services := range mayRequest {
		nc := f.dial(key)
		for _, service := range services {
			n := size[slices.Contains(acceptsLarge, service)]
			large := []string{`{"Name":"` + strings.Repeat("x", n-20) + `"}`, strings.Repeat("\x00", n)}
			for _, body := range slices.Concat(bodies, large) {
				for _, m := range []*nats.Msg{{Subject: service, Data: []byte(body)}, message(service, body)} {
					answer, err := nc.RequestMsg(m, timeLimit)
					if err != nil {
						t.Fatalf("request of %s to %s, %.60q: no response: %v", key, service, body, err)
					}
					rejection := answer.Header.Get("Lockstep-Error")
					if m.Header == nil && !strings.Contains(rejection, "protocol") && len(body) < 65<<10 {
						t.Errorf("request of %s to %s, %.60q, without a protocol version: got error %q, want \"protocol\"", key,
							service, body, rejection)
					}
					if strings.Contains(rejection, wire.ErrPanic.Error()) {
						t.Errorf("request of %s to %s, %.60q: the controller panicked: %s", key, service, body,
							rejection)
					}
				}
			}
		}
	}
	f.checkController("hostile requests")
	runs, err := f.client.Runs(t.Context())
	must(t, err)
	schedules, err := f.client.Schedules(t.Context())
	must(t, err)
	if len(runs) != 0 || len(schedules) != 0 {
		t.Errorf("after hostile requests: got runs %+v, schedules %+v, want none", runs, schedules)
	}
	f.executeRun("after")
}

// TestRolesReachNoStream proves that clients, viewers and agents cannot create a consumer, read a message of a stream,
// or make the server publish one. The reply subject has no effect, because the server replaces it between accounts.
func TestRolesReachNoStream(t *testing.T) {
	f := startFleet(t)
	must(t, f.client.PutSchedule(t.Context(), schedule.New(schedule.Definition{Name: "example", Cron: "@yearly",
		Zone: "UTC", MissedRuns: schedule.MissedSkip,
		Overlap: schedule.OverlapSkip, Matrix: schedule.Matrix{File: "x.cue", Text: "package matrix"}}, "id", "me",
		time.Now()), 0))
	_, err := f.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LOCKSTEP_EVENTS_example",
		Subjects: []string{"lockstep.events.example.>"}})
	must(t, err)
	_, err = f.js.Publish(t.Context(), "lockstep.events.example.plan", []byte("x"))
	must(t, err)
	before := f.streamInfos()
	var apis, replies []string
	for name, info := range before {
		api := "$JS.API."
		apis = append(apis, api+"STREAM.INFO."+name, api+"STREAM.DELETE."+name, api+"STREAM.PURGE."+name,
			api+"CONSUMER.CREATE."+name,
			api+"CONSUMER.CREATE."+name+".spy", api+"CONSUMER.MSG.NEXT."+name+".spy", api+"DIRECT.GET."+name,
			api+"STREAM.MSG.GET."+name)
		for subject := range info.State.Subjects {
			apis = append(apis, subject, api+"DIRECT.GET."+name+"."+subject)
			replies = append(replies, subject)
		}
		replies = append(replies, api+"STREAM.DELETE."+name, api+"STREAM.PURGE."+name, api+"CONSUMER.CREATE."+name)
	}
	replies = append(replies, "$KV.LOCKSTEP_LEASE.leader", "$KV.LOCKSTEP_SCHEDULES.spy", "$KV.LOCKSTEP_BASELINES.spy",
		"lockstep.queue.submit.forged", "lockstep.events.example.event", "_R_.forged")
	roles := maps.Clone(mayRequest)
	roles["agents/a1.nk"] = agentServices("a1")
	for key, services := range roles {
		nc := f.dial(key)
		rejected := permissionErrors(nc)
		for _, subject := range apis {
			for _, reply := range append([]string{nc.NewInbox()}, replies...) {
				must(t, nc.PublishMsg(&nats.Msg{Subject: subject, Reply: reply,
					Data: []byte(`{"batch":1,"no_wait":true}`)}))
			}
			if _, err := nc.Request(subject, nil, 50*time.Millisecond); err == nil {
				t.Errorf("request of %s to %s: got a response, want none", key, subject)
			}
		}
		for _, service := range services {
			for _, reply := range replies {
				for _, m := range []*nats.Msg{{Subject: service}, message(service, "{}"),
					message(service, `{"Name":"example","run":"example"}`)} {
					m.Reply = reply
					must(t, nc.PublishMsg(m))
				}
			}
			// the requests before it were handled
			if _, err := nc.RequestMsg(message(service, "{}"), timeLimit); err != nil {
				t.Errorf("request of %s to %s: no response: %v", key, service, err)
			}
		}
		if len(rejected) < len(apis) {
			t.Errorf("%s: got %d permission errors, want at least one for each of %d subjects", key, len(rejected),
				len(apis))
		}
	}
	after := f.streamInfos()
	for name, stream := range before {
		now, ok := after[name]
		switch {
		case !ok || !now.Created.Equal(stream.Created):
			t.Errorf("stream %s was deleted", name)
		case name == "KV_LOCKSTEP_LEASE", name == "LOCKSTEP_QUEUE": // the lease is renewed, and a client may cancel
		case now.State.Msgs != stream.State.Msgs || now.State.LastSeq != stream.State.LastSeq:
			t.Errorf("stream %s: got %d messages, last sequence number %d, want %d and %d", name, now.State.Msgs,
				now.State.LastSeq, stream.State.Msgs, stream.State.LastSeq)
		}
	}
	f.checkController("hostile replies")
}

// TestClosedConnectionsAreDialledAgain proves that a client reconnects after the server has closed its connection
// because of a limit.
func TestClosedConnectionsAreDialledAgain(t *testing.T) {
	f := startFleet(t)
	var conns []*wire.Conn
	client, err := wire.NewClient(t.Context(), func(ctx context.Context) (*wire.Conn, error) {
		conn, err := wire.Dial(ctx, f.url, f.auth("client.nk"))
		conns = append(conns, conn)
		return conn, err
	})
	must(t, err)
	t.Cleanup(client.Close)
	access, err := web.NewAccess(net.JoinHostPort("127.0.0.1", "0"), nil)
	must(t, err)
	pages := httptest.NewServer(web.New(web.Config{Conn: client, Access: access, Log: slog.New(slog.DiscardHandler)}))
	defer pages.Close()
	conns[0].Close()
	answer, err := pages.Client().Get(pages.URL + "/agents")
	must(t, err)
	must(t, answer.Body.Close())
	if answer.StatusCode != 200 || len(conns) != 2 {
		t.Errorf("page after the connection was closed: got status %d, %d connections, want 200 and 2",
			answer.StatusCode, len(conns))
	}
	client.Close()
	if _, err := client.Runs(t.Context()); !errors.Is(err, nats.ErrConnectionClosed) || len(conns) != 2 {
		t.Errorf("request of a closed client: got error %v, %d connections, want %v and 2", err, len(conns),
			nats.ErrConnectionClosed)
	}
}

// TestASubmissionIsQueuedOnce proves that a repeated request, after a lost response, queues the run only once.
func TestASubmissionIsQueuedOnce(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	nc := f.dial("client.nk")
	request := submission(t, "once", wire.Submission{Run: newRun("once")})
	accepted, ends := 0, 0
	for range 3 {
		if rejection := requestError(t, nc, request); rejection != "" {
			t.Fatal(rejection)
		}
	}
	other := submission(t, "other", wire.Submission{Run: newRun("other")})
	other.Data = bytes.Replace(other.Data, []byte(`"Key":"k-other"`), []byte(`"Key":"k-once"`), 1) // another run with this key
	if rejection := requestError(t, nc, other); rejection != "" {
		t.Fatal(rejection)
	}
	f.readRun("once", func(wire.Entry) {})
	f.readRun("other", func(wire.Entry) {})
	if rejection := requestError(t, nc, request); rejection != "" { // the run has ended
		t.Fatal(rejection)
	}
	f.executeRun("next")
	_, err := f.client.Read(t.Context(), wire.RecordQuery{Run: "once"}, func(e wire.Entry) error {
		if e.Event != nil && e.Event.Kind == wire.RunAccepted {
			accepted++
		}
		if e.Event != nil && e.Event.Kind == wire.RunEnded {
			ends++
		}
		return nil
	})
	must(t, err)
	if accepted != 1 || ends != 1 {
		t.Errorf("repeated submission: got %d starts and %d ends of the run, want 1 and 1", accepted, ends)
	}
}

// TestSecretsOfSubmissionsAreNotServed proves that a viewer cannot read literal options of a run, neither while it is
// queued nor afterwards.
func TestSecretsOfSubmissionsAreNotServed(t *testing.T) {
	const secret = "hunter2literal"
	f := startFleet(t) // without agents, so the run stays queued
	run := newRun("secret")
	run.Cells[0].Broker.Options = json.RawMessage(`{"name":"x","password":"` + secret + `"}`)
	run.Grace = plan.Duration(timeLimit)
	must(t, f.client.Submit(t.Context(), wire.Submission{Run: run}))
	nc := f.dial("viewer.nk")
	for _, service := range viewServices {
		for _, body := range []string{"{}", `{"Name":"secret"}`, `{"run":"secret"}`, `{"run":"secret","wait":true}`} {
			answer, err := nc.RequestMsg(message(service, body), timeLimit)
			must(t, err)
			if strings.Contains(string(answer.Data), secret) ||
				strings.Contains(answer.Header.Get("Lockstep-Error"), secret) {
				t.Errorf("response to %s %s contains the secret", service, body)
			}
		}
	}
}
