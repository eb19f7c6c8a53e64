package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"example.org/lockstep/lockstep/internal/agent"
	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/metrics"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/internal/sink"
	"example.org/lockstep/lockstep/internal/web"
	"example.org/lockstep/lockstep/internal/wire"
	_ "example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// hostile is a name that breaks a page without escaping.
const hostile = `</script><script>alert("1")</script> 'q' "q" & <b> 🐇`

// lab is a control plane with a controller, agents and pages in this process.
type lab struct {
	t       *testing.T
	server  *wire.Server
	client  *wire.Client
	copies  string
	status  *controller.Status
	working *agent.Status
	points  *sink.Counters
	pages   string // their address
}

// users contains alice with the password "correct horse".
func users(t *testing.T) web.Users {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte("correct horse"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return web.Users{"alice": hash}
}

func newLab(t *testing.T, who web.Users, agents ...string) *lab {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	l := &lab{t: t, copies: t.TempDir(), status: &controller.Status{}, working: &agent.Status{},
		points: &sink.Counters{}}
	var err error
	if l.server, err = wire.Embedded(t.Context(), wire.ServerConfig{Log: log}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		stop()
		wg.Wait()
		l.server.Close()
	})
	leads := l.connect()
	wg.Go(func() {
		if err := controller.Serve(ctx, leads, controller.Config{Log: log, Name: "head", Copies: l.copies,
			Status: l.status}); err != nil {
			t.Errorf("controller: %v", err)
		}
	})
	dir := t.TempDir()
	for i, name := range agents {
		conn, cfg := l.connect(), agent.Config{Name: name, Dir: dir, Log: log}
		if i == 0 {
			cfg.Status = l.working
		}
		wg.Go(func() { _ = agent.Serve(ctx, wire.NewAgent(conn), cfg) })
	}
	l.client = l.connectClient()
	l.eventually("a controller leads with all agents", func() bool {
		all, err := l.client.Agents(t.Context())
		return err == nil && len(all) == len(agents)
	})
	l.pages = l.serve(who)
	return l
}

// serve serves the pages as a leader's or a standby's process.
func (l *lab) serve(who web.Users) string {
	l.t.Helper()
	conn, log := l.connectClient(), slog.New(slog.NewTextHandler(l.t.Output(),
		&slog.HandlerOptions{Level: slog.LevelError}))
	at, stop, err := web.Listener{Listen: "127.0.0.1:0", Users: who,
		Log: log}.Serve(func(access *web.Access) http.Handler {
		return web.New(web.Config{Conn: conn, Copies: l.copies, Access: access, Version: "test", Log: log,
			Metrics: metrics.Controller(conn, l.status, l.points, "test", log)})
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(stop)
	return "http://" + at.String()
}

func (l *lab) connect() *wire.Conn {
	l.t.Helper()
	c, err := l.server.Connect(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(c.Close)
	return c
}

func (l *lab) connectClient() *wire.Client {
	l.t.Helper()
	c, err := l.server.Client(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(c.Close)
	return c
}

func (l *lab) eventually(what string, is func() bool) {
	l.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			l.t.Fatalf("it never came about that %s", what)
		}
	}
}

// brokers counts the loopback brokers of this process.
var brokers atomic.Int64

// aRun is a short run over loopback with hostile names.
func aRun(id string, change func(*plan.Cell)) plan.Run {
	w := plan.Default()
	w.Publishers.Count, w.Publishers.MaxInFlight = 500, 100
	w.Warmup, w.Measure = 0, plan.Duration(10*time.Minute) // it ends after the count and the last message
	w.Drain = plan.Drain{Idle: plan.Duration(2 * time.Minute), Timeout: plan.Duration(2 * time.Minute)}
	w.Connect = plan.Duration(2 * time.Minute)
	value, _ := json.Marshal(hostile)
	// parallel tests have runs with the same name
	options, _ := json.Marshal(map[string]any{"name": fmt.Sprint(id, "-", brokers.Add(1))})
	c := plan.Cell{Coordinates: []plan.Coordinate{{Axis: "n<i>", Value: value}}, Workload: w,
		Broker:     plan.Broker{Name: hostile, Driver: "loopback", Options: options},
		Guarantees: plan.Guarantees{ConfirmedKept: true, SentKept: true, NoDuplicates: true, Ordered: true}}
	if change != nil {
		change(&c)
	}
	c.Broker.Options = schematest.FillNamed(c.Broker.Driver, c.Broker.Options)
	c.ID = plan.CellID("loop", c.Workload)
	return plan.Run{Version: plan.RecordFormat, ID: id, Name: "nightly " + hostile, Repeat: 1,
		Grace: plan.Duration(100 * time.Millisecond), Started: time.Now().UTC().Truncate(time.Second),
		Source: plan.Source{File: hostile + ".cue", Text: "// " + hostile}, Axes: []string{"n<i>"}, Agents: c.Agents(),
		Cells: []plan.Cell{c}}
}

// long makes a cell that lasts until it is stopped.
func long(c *plan.Cell) {
	c.Workload.Publishers.Count, c.Workload.Publishers.Rate = 0, 500
	c.Workload.Measure = plan.Duration(10 * time.Minute)
}

func (l *lab) submit(run plan.Run) {
	l.t.Helper()
	if err := l.client.Submit(l.t.Context(), wire.Submission{Run: run, By: "somebody " + hostile}); err != nil {
		l.t.Fatal(err)
	}
	l.eventually("the controller has noted the run", func() bool {
		state, err := l.client.RunState(l.t.Context(), run.ID)
		return err == nil && state.Run != ""
	})
}

// finish waits for the end of a run and its copy.
func (l *lab) finish(run plan.Run) {
	l.t.Helper()
	l.submit(run)
	l.eventually("the run has ended and is copied", func() bool {
		state, err := l.client.RunState(l.t.Context(), run.ID)
		return err == nil && state.Over() && state.Copied
	})
}

// ask sends a request, which change may modify. It returns the response and its body.
func ask(t *testing.T, method, url, body string, change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if change != nil {
		change(r)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout: time.Minute}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(text)
}

func alice(r *http.Request) { r.SetBasicAuth("alice", "correct horse") }

// get returns a page that must exist.
func (l *lab) get(path string, change func(*http.Request)) string {
	l.t.Helper()
	answer, text := ask(l.t, "GET", l.pages+path, "", change)
	if answer.StatusCode != http.StatusOK {
		l.t.Fatalf("%s: %s\n%s", path, answer.Status, text)
	}
	return text
}

func writeFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}
