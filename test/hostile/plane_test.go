// Package hostile proves that messages that no peer sends neither end a controller nor delete data. It sends them with
// the keys of peers to a real controller, on a real control plane with the credentials of "ctl fleet init".
package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/internal/agent"
	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/internal/wire/keys"
	_ "example.org/lockstep/lockstep/pkg/drivers/loopback"
	"example.org/lockstep/lockstep/test/process"
)

// timeLimit is the time limit for events that must happen.
const timeLimit = 2 * time.Minute

// fleet is a control plane with credentials, a leading controller, and the connections of a test.
type fleet struct {
	t      *testing.T
	creds  string // folder
	users  []keys.User
	copies string // folder of the controller's copies
	url    string
	conn   *wire.Conn          // of the controller
	js     jetstream.JetStream // with the controller's permissions
	client *wire.Client
}

// startFleet starts a controller and real agents with these names. The agents a1, a2 and a3 have credentials.
func startFleet(t *testing.T, agents ...string) *fleet {
	t.Helper()
	dir := t.TempDir()
	f := &fleet{t: t, creds: filepath.Join(dir, "creds"), copies: filepath.Join(dir, "runs")}
	creds, err := keys.Make(f.creds, f.creds, []string{"bench-1.example.org"}, false)
	must(t, err)
	must(t, creds.AddAgents(1, "a1", "a2", "a3"))
	f.users = creds.Users
	server, err := wire.Embedded(t.Context(), wire.ServerConfig{Listen: "127.0.0.1:0",
		Config: filepath.Join(f.creds, "nats.conf"),
		Dir:    filepath.Join(dir, "streams"), Auth: wire.Auth{Creds: filepath.Join(f.creds, "controller.nk")}})
	must(t, err)
	t.Cleanup(server.Close)
	f.url = strings.Replace(server.URL(), "nats://", "tls://", 1)
	f.conn, err = server.Connect(t.Context())
	must(t, err)
	f.serve(func(ctx context.Context) error {
		return controller.Serve(ctx, f.conn, controller.Config{Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Copies: f.copies})
	})
	f.js, err = jetstream.New(f.dial("controller.nk"))
	must(t, err)
	f.client, err = wire.DialClient(t.Context(), f.url, f.auth("client.nk"))
	must(t, err)
	t.Cleanup(f.client.Close)
	for _, name := range agents {
		conn, err := wire.Dial(t.Context(), f.url, f.auth("agents/"+name+".nk"))
		must(t, err)
		t.Cleanup(conn.Close)
		f.serve(func(ctx context.Context) error {
			return agent.Serve(ctx, wire.NewAgent(conn),
				agent.Config{Name: name, Dir: filepath.Join(dir, name), Log: slog.New(slog.DiscardHandler)})
		})
	}
	f.awaitAgents(len(agents))
	return f
}

// serve runs a daemon until the end of the test.
func (f *fleet) serve(daemon func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := daemon(ctx); err != nil && ctx.Err() == nil {
			f.t.Errorf("a daemon ended before the test: %v", err)
		}
	}()
	f.t.Cleanup(func() {
		stop()
		<-ended
	})
}

// awaitAgents waits until the controller leads and lists this number of agents.
func (f *fleet) awaitAgents(agents int) {
	f.t.Helper()
	var listed []wire.AgentInfo
	var err error
	for end := time.Now().Add(timeLimit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if listed, err = f.client.Agents(f.t.Context()); err == nil && len(listed) == agents {
			return
		}
	}
	f.t.Fatalf("listed agents after %v: got %d, want %d (error %v)", timeLimit, len(listed), agents, err)
}

// checkController fails the test unless the controller still answers on the same connection.
func (f *fleet) checkController(after string) {
	f.t.Helper()
	if f.conn.Closed() {
		f.t.Fatalf("after %s: the controller's connection is closed", after)
	}
	if _, err := f.client.Leader(f.t.Context()); err != nil {
		f.t.Fatalf("after %s: the controller does not respond: %v", after, err)
	}
}

func (f *fleet) auth(key string) wire.Auth {
	return wire.Auth{CA: filepath.Join(f.creds, "ca.crt"), Creds: filepath.Join(f.creds, key)}
}

// dial connects a plain NATS client with a key of the fleet.
func (f *fleet) dial(key string) *nats.Conn {
	f.t.Helper()
	seed, err := nats.NkeyOptionFromSeed(filepath.Join(f.creds, key))
	must(f.t, err)
	user := f.users[slices.IndexFunc(f.users, func(u keys.User) bool { return u.File() == key })]
	nc, err := nats.Connect(f.url, seed, nats.RootCAs(filepath.Join(f.creds, "ca.crt")),
		nats.CustomInboxPrefix("_INBOX."+user.Key))
	must(f.t, err)
	f.t.Cleanup(nc.Close)
	return nc
}

// newRun returns a run of one cell over loopback. One agent publishes 200 messages, the other one receives them.
func newRun(id string) plan.Run {
	w := plan.Default()
	w.Publishers.Count, w.Publishers.MaxInFlight = 200, 100
	w.Warmup, w.Measure = 0, plan.Duration(10*time.Minute) // it ends after the count
	w.Drain = plan.Drain{Idle: plan.Duration(timeLimit), Timeout: plan.Duration(timeLimit)}
	w.Connect = plan.Duration(timeLimit)
	options, _ := json.Marshal(map[string]any{"name": fmt.Sprintf("%.20s-%d", id, brokers.Add(1))})
	c := plan.Cell{Coordinates: []plan.Coordinate{{Axis: "n", Value: json.RawMessage("1")}}, Workload: w,
		Broker:     plan.Broker{Name: "loop", Driver: "loopback", Options: options},
		Guarantees: plan.Guarantees{ConfirmedKept: true, SentKept: true, NoDuplicates: true, Ordered: true}}
	c.Broker.Options = schematest.FillNamed(c.Broker.Driver, options)
	c.ID = plan.CellID("loop", c.Workload)
	return plan.Run{Version: plan.RecordFormat, ID: id, Name: "hostile", Repeat: 1,
		Started: time.Now().UTC().Truncate(time.Second), Axes: []string{"n"}, Agents: c.Agents(), Cells: []plan.Cell{c}}
}

var brokers atomic.Int64 // loopback brokers of this process

// readRun follows a run until its end.
func (f *fleet) readRun(run string, handle func(wire.Entry)) wire.End {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), timeLimit)
	defer cancel()
	end, err := f.client.Read(ctx, wire.RecordQuery{Run: run, Wait: true}, func(e wire.Entry) error {
		handle(e)
		return nil
	})
	must(f.t, err)
	return *end
}

// executeRun fails the test unless the fleet can execute a run.
func (f *fleet) executeRun(run string) {
	f.t.Helper()
	process.Eventually(f.t, "a leader that accepts "+run, func() bool { // the lease may have lapsed during floods
		err := f.client.Submit(f.t.Context(), wire.Submission{Run: newRun(run)})
		if err != nil {
			f.t.Log(err)
		}
		return err == nil
	})
	end := f.readRun(run, func(e wire.Entry) {
		if e.Outcome != nil && e.Outcome.Verdict != plan.Valid {
			f.t.Errorf("run %s: got verdict %s, want valid: %v", run, e.Outcome.Verdict, e.Outcome.Reasons)
		}
	})
	if end.Reason != wire.EndDone || end.Ran != 1 {
		f.t.Errorf("end of run %s: got %+v, want reason %s and 1 task", run, end, wire.EndDone)
	}
}

// message returns a message with Lockstep's headers.
func message(subject, body string) *nats.Msg {
	return &nats.Msg{Subject: subject, Data: []byte(body),
		Header: nats.Header{"Lockstep-Protocol": {strconv.Itoa(plan.Protocol)}}}
}

// requestError sends a request and returns the error of the response; empty: it was accepted.
func requestError(t *testing.T, nc *nats.Conn, m *nats.Msg) string {
	t.Helper()
	answer, err := nc.RequestMsg(m, timeLimit)
	must(t, err)
	return answer.Header.Get("Lockstep-Error")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
