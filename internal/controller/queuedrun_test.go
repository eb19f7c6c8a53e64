package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

// hostNames is a lookup of only these names.
type hostNames map[string][]string

func (n hostNames) lookup(_ context.Context, _, host string) (all []netip.Addr, err error) {
	if n[host] == nil {
		return nil, errors.New("no such host")
	}
	for _, text := range n[host] {
		all = append(all, netip.MustParseAddr(text))
	}
	return all, nil
}

// Two runs whose brokers may be on one host do not execute at the same time.
func TestRunsShareNoBroker(t *testing.T) {
	hosts := hostNames{"rabbit": {"10.9.0.1", "fd00::1"}, "mq.example": {"10.9.0.1"}, "other": {"10.9.0.2"},
		"here": {"127.0.1.1"}}
	for _, x := range []struct {
		a, b string // options of brokers
		one  bool
	}{
		{`{"url":"amqp://rabbit:5672"}`, `{"url":"amqp://rabbit:5672/v"}`, true},
		{`{"url":"amqp://rabbit:5672"}`, `{"url":"amqp://10.9.0.1:5672"}`, true},
		{`{"url":"amqp://rabbit:5672"}`, `{"urls":["amqp://other","amqp://[FD00:0::1]:5672"]}`, true},
		{`{"url":"amqp://rabbit:5672"}`, `{"url":"amqp://[::ffff:10.9.0.1]:5672"}`, true},
		{`{"url":"amqp://rabbit:5672"}`, `{"brokers":["mq.example:9092"]}`, true},
		{`{"url":"amqp://rabbit:5672"}`, `{"brokers":["other:9092"]}`, false},
		{`{"url":"amqp://unknown"}`, `{"url":"nats://Unknown.:4222"}`, true},
		{`{"url":"amqp://unknown"}`, `{"url":"amqp://unknown2"}`, true},
		{`{"url":"amqp://unknown"}`, `{"url":"amqp://rabbit"}`, true},
		{`{"url":"amqp://${env:HOST}"}`, `{"url":"amqp://rabbit"}`, true},
		{`{"url":"amqp://unknown"}`, `{"region":"eu-1"}`, false},
		{`{"url":"amqp://localhost"}`, `{"url":"amqp://127.3.4.5"}`, true},
		{`{"url":"amqp://localhost"}`, `{"url":"amqp://[::1]"}`, true},
		{`{"url":"amqp://localhost"}`, `{"url":"amqp://0.0.0.0"}`, true},
		{`{"url":"amqp://localhost"}`, `{"url":"amqp://here"}`, true},
		{`{"url":"amqp://localhost"}`, `{"url":"amqp://rabbit"}`, false},
		{`{"region":"eu-1"}`, `{"region":"eu-1"}`, true},
		{`{"region":"eu-1"}`, `{"region":"eu-2"}`, false},
		{`{"region":"eu-1"}`, `{"url":"amqp://rabbit"}`, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			for _, pair := range [][2]string{{x.a, x.b}, {x.b, x.a}} {
				q := &runQueue{agents: newFleet(slog.New(slog.DiscardHandler)), maxRuns: 2, lookup: hosts.lookup,
					changed: make(chan struct{}, 1)}
				for i, options := range pair {
					q.agents.heartbeat(wire.Heartbeat{Agent: fmt.Sprint("a", i), Instance: "i"})
					q.add(t.Context(), requestOf(fmt.Sprint("r", i), uint64(i+1), newCell("c", 1, options)), wire.RunState{})
				}
				q.complete()
				begin, _ := q.next()
				if one := len(begin) == 1; one != x.one {
					t.Errorf("%s and %s: same broker: got %v, want %v", pair[0], pair[1], one, x.one)
				}
			}
		})
	}
}

// A run with an unresolved name that waits for another run is not overtaken by later runs with other brokers.
func TestUnresolvedNamesAreNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := hostNames{"first": {"10.9.0.1"}, "last": {"10.9.0.2"}}
		q := &runQueue{agents: newFleet(slog.New(slog.DiscardHandler)), maxRuns: 3, lookup: hosts.lookup,
			changed: make(chan struct{}, 1)}
		for i, host := range []string{"first", "unknown", "last"} {
			q.agents.heartbeat(wire.Heartbeat{Agent: fmt.Sprint("a", i), Instance: "i"})
			q.add(t.Context(), requestOf(host, uint64(i+1), newCell("c", 1, fmt.Sprintf(`{"url":"amqp://%s"}`, host))),
				wire.RunState{})
		}
		q.complete()
		begin, waiting := q.next()
		if len(begin) != 1 || begin[0].request.Run != "first" || len(waiting) != 2 {
			t.Fatalf("%d runs began and %d wait, want only the first to begin", len(begin), len(waiting))
		}
		if want := "used by run first"; !strings.Contains(waiting[0].waiting, want) {
			t.Errorf("the second run waits for %q, want %q", waiting[0].waiting, want)
		}
		if want := "reserved for run unknown"; !strings.Contains(waiting[1].waiting, want) {
			t.Errorf("the third run waits for %q, want %q", waiting[1].waiting, want)
		}
	})
}

func TestAddressesOfThisHostAreOneIdentity(t *testing.T) {
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range own {
		host := o.(*net.IPNet).IP.String()
		if all := addresses(t.Context(), host, own, hostNames{}.lookup); len(all) != 1 || all[0] != "loopback" {
			t.Errorf("identity of %s: got %v, want loopback", host, all)
		}
	}
}

// A new leader reads 20 submissions while no name server responds. It waits only once for their names.
func TestNameLookupsDoNotDelayTakeovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := func(ctx context.Context, _, _ string) ([]netip.Addr, error) { <-ctx.Done(); return nil, ctx.Err() }
		q := &runQueue{agents: newFleet(slog.New(slog.DiscardHandler)), maxRuns: 4,
			lookup: dead, changed: make(chan struct{}, 1)}
		begin := time.Now()
		for i := range 20 {
			q.add(t.Context(), requestOf(fmt.Sprint("r", i), uint64(i+1),
				newCell("c", 1, `{"url":"nats://broker-1:4222"}`)), wire.RunState{})
		}
		q.complete()
		if elapsed := time.Since(begin); elapsed > lookupTimeout {
			t.Errorf("time to read the queue: got %v, want at most %v", elapsed, lookupTimeout)
		}
	})
}

// A run that was taken over reserves no agents for completed tasks: other runs may use them.
func TestCompletedTasksReserveNoAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(slog.New(slog.DiscardHandler))
		for i := range 4 {
			f.heartbeat(wire.Heartbeat{Agent: fmt.Sprint("a", i), Instance: "i"})
		}
		q := &runQueue{agents: f, maxRuns: 4, changed: make(chan struct{}, 1)}
		noted := wire.RunState{Run: "former", Seq: 1, State: wire.StateRunning, Done: 1,
			Agents: []string{"a0", "a1", "gone"}}
		q.add(t.Context(), requestOf("former", 1, newCell("done", 5, `{"name":"x"}`), newCell("left", 2,
			`{"name":"x"}`)), noted)
		q.complete()
		begin, _ := q.next()
		q.endReservation(begin[0])
		q.require(begin[0], map[string]bool{"done-r1": true})
		q.add(t.Context(), requestOf("next", 2, newCell("n", 2, `{"name":"y"}`)), wire.RunState{})
		if begin, waiting := q.next(); len(begin) != 1 {
			t.Errorf("the next run was not started: it waits for %q", waiting[0].waiting)
		}
	})
}

func newCell(id string, agents int, options string) plan.Cell {
	c := plan.Cell{ID: id, Workload: plan.Default(),
		Broker: plan.Broker{Name: "b", Driver: "nats", Options: json.RawMessage(options)}}
	c.Workload.Publishers.Nodes, c.Workload.Consumers.Nodes = agents, 0
	return c
}

func requestOf(run string, seq uint64, cells ...plan.Cell) wire.Request {
	return wire.Request{Run: run, Seq: seq, Submits: true,
		Submission: &wire.Submission{Run: plan.Run{ID: run, Repeat: 1, Cells: cells}}}
}
