package eventstore

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"
	"google.golang.org/grpc/credentials"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
	"example.org/lockstep/lockstep/test/eventstored/server"
)

func contextFor(r *rig, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.ctx, d)
}

// With TLS through Forward, the certificate must still be for the server's own name.
func TestStandInWithTLS(t *testing.T) {
	files := drivertest.NewCertificates(t)
	_, address := inProcess(t, server.Options{Credentials: credentials.NewTLS(files.ServerConfig(t))})
	_, port, _ := net.SplitHostPort(address)
	drivertest.Run(t, drivertest.Harness{Driver: driver{}, Subset: []string{"tls"}, NoQueueDepth: true,
		TLS: &drivertest.TLS{Options: json.RawMessage(`{"url": "esdb://admin:changeit@localhost:` + port + `"}`),
			Certificates: files}})
	r := &rig{t: t, ctx: labtest.Context(t)}
	_, err := driver{}.Open(r.ctx, schematest.Fill(t, driver{}, `{"url": "esdb://`+address+`?tls=false"}`), r.env())
	if err == nil || !strings.Contains(err.Error(), "tls=true or tls=false") {
		t.Errorf("no TLS towards a server with it: %v", err)
	}
}

func TestStandInCluster(t *testing.T) {
	s, leader := inProcess(t, server.Options{})
	labtest.Open(t, driver{}, reached(t, leader, `{}`), (&rig{t: t}).env()) // it serves, and so it is the first node
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	follower := l.Addr().String()
	urls, _ := json.Marshal(map[string]any{"urls": []string{"esdb://" + follower + "?tls=false",
		"esdb://" + leader + "?tls=false"}})
	r := newRig(t, urls, nil)
	d, err := r.session.Describe(r.ctx)
	if err != nil || len(d.Members) != 2 || !slices.IsSorted(d.Members) || d.StandIn != "EventStoreDB" {
		t.Errorf("Describe: %+v, %v", d, err)
	}
	at := func(node drivers.Node) string {
		on := r.connect(node)
		p, n := r.publisherOn(on, drivers.ConfirmEach, nil)
		r.send(p, 1, 10)
		if _, failed := n.confirms(); failed > 0 {
			t.Errorf("node %s: %v", node, n.errors)
		}
		return on.Node()
	}
	for node, want := range map[drivers.Node]string{drivers.AnyNode: leader, drivers.LeaderNode: leader,
		drivers.FollowerNode: follower,
		"0":                  follower, "1": leader} {
		if got := at(node); got != want {
			t.Errorf("node %s is at %s, want %s", node, got, want)
		}
	}
	// The cluster is not queried for each connection, but again after one broke.
	dials := func(node drivers.Node) int64 {
		before := r.dials.Load()
		_ = r.connect(node).Close()
		return r.dials.Load() - before
	}
	labtest.Eventually(t, "a connection without a query", func() bool { return dials(drivers.AnyNode) == 1 })
	r.connect(drivers.AnyNode).fail(errors.New("reset"))
	if n := dials(drivers.AnyNode); n != 2 {
		t.Errorf("a connection after a break makes %d dials, want 2", n)
	}
	in := &callbacks{}
	r.consumer(in, nil)
	labtest.Eventually(t, "messages from both nodes", func() bool { return in.received() == 5 })
	checked, err := drivers.Checked(r.ctx, driver{}, schematest.Fill(t, driver{}, urls), r.env())
	if err != nil {
		t.Fatal(err)
	}
	defer checked.Close()
	on, err := checked.Connect(r.ctx, drivers.ConnSpec{Role: drivers.ConsumerRole, Topology: r.topology, Node: "0"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = on.Consumer(r.ctx, drivers.ConsumerSpec{Topology: r.topology, Prefetch: 1, Batch: 1, Ack: drivers.AckEach}, nil)
	if !errors.Is(err, drivers.ErrUnsupported) {
		t.Errorf("a consumer at the follower: %v", err)
	}
	alone := labtest.Open(t, driver{}, json.RawMessage(`{"url": "esdb://`+follower+`?tls=false"}`), r.env())
	if err := alone.Setup(r.ctx, r.topology); err == nil || !strings.Contains(err.Error(), "give the urls of all nodes") {
		t.Errorf("set up at the follower: %v", err)
	}
	s.Stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// An acknowledgement between two calls of the handler that the server does not answer delays Stop only for a limited
// time.
func TestStopEndsAnAcknowledgement(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := &consumer{cancel: cancel, stop: make(chan struct{}), ran: make(chan struct{}),
		unanswered: make([]*kurrentdb.ResolvedEvent, 1)}
	sending, sent := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sent)
		c.answer(1, func(...*kurrentdb.ResolvedEvent) error {
			close(sending)
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	<-sending
	close(c.ran) // the handler does not run
	c.Stop()
	if ctx.Err() == nil {
		t.Error("Stop returns while an acknowledgement waits without a limit")
	}
	cancel()
	<-sent
}

// With AckEach, each event is answered by a request of its own, and otherwise by a list.
func TestRequestsOfAnswers(t *testing.T) {
	for ack, want := range map[drivers.Ack][]int{drivers.AckEach: {1, 1, 1}, drivers.AckEvery: {3}} {
		c := &consumer{spec: drivers.ConsumerSpec{Ack: ack}, unanswered: make([]*kurrentdb.ResolvedEvent, 4)}
		var requests []int
		c.answer(3, func(events ...*kurrentdb.ResolvedEvent) error {
			requests = append(requests, len(events))
			return nil
		})
		if !slices.Equal(requests, want) || len(c.unanswered) != 1 {
			t.Errorf("ack %q: requests with %v events, want %v; %d are unanswered", ack, requests, want, len(c.unanswered))
		}
	}
}

func TestDeclare(t *testing.T) {
	use := drivers.Use{Mode: drivers.ConfirmEach, Publishers: 1, Consumers: 1, PublisherNode: drivers.AnyNode,
		ConsumerNode: drivers.AnyNode, QueueNode: drivers.AnyNode}
	said := func(options string, change func(*drivers.Use)) drivers.Declaration {
		u := use
		if change != nil {
			change(&u)
		}
		return declare(schematest.Fill(t, driver{}, options), u)
	}
	const one, two = `{"url": "esdb://a:2113?tls=false"}`, `{"urls": ["esdb://a", "esdb://b"]}`
	if d := said(one, nil); len(d.Rejections)+len(d.Notes) > 0 || !d.Guarantees.ConfirmedKept || d.Guarantees.NoDuplicates ||
		d.Guarantees.Ordered || d.Capabilities.Nodes {
		t.Errorf("one node: %+v", d)
	}
	if d := said(one, nil); strings.Contains(d.Label, "written") || !strings.Contains(d.Label, "as the server is set") {
		t.Errorf("the label %q claims more than the options show: the server may store events in memory", d.Label)
	}
	if d := said(two, nil); !d.Capabilities.Nodes || !strings.Contains(d.Label, "majority") {
		t.Errorf("two nodes: %+v", d)
	}
	if d := said(`{"url": "esdb://a", "maxCount": 10}`, nil); d.Guarantees.ConfirmedKept ||
		!strings.Contains(d.Label, "last 10") {
		t.Errorf("a bounded stream keeps everything: %+v", d)
	}
	for name, c := range map[string]struct {
		options string
		change  func(*drivers.Use)
		want    string
	}{
		"index":             {two, func(u *drivers.Use) { u.PublisherNode = "2" }, "2 urls"},
		"follower of one":   {one, func(u *drivers.Use) { u.PublisherNode = drivers.FollowerNode }, "give urls"},
		"consumer":          {two, func(u *drivers.Use) { u.ConsumerNode = drivers.FollowerNode }, "only the leader"},
		"consumer by index": {two, func(u *drivers.Use) { u.ConsumerNode = "0" }, "only the leader"},
		"queue":             {two, func(u *drivers.Use) { u.QueueNode = "1" }, "cannot be placed"},
		"no options":        {`{}`, nil, "give url"},
		"discovery":         {`{"url": "esdb+discover://a"}`, nil, "urls"},
		"unlike urls":       {`{"urls": ["esdb://a", "esdb://b?tls=false"]}`, nil, "number 1"},
		"two hosts in one":  {`{"url": "esdb://a,b:1"}`, nil, ""},
		"unknown parameter": {`{"url": "esdb://a?nodePreference=leader"}`, nil, "nodePreference"},
		"buffers":           {`{"url": "esdb://a", "readBatchSize": 500}`, nil, "smaller than"},
		"password":          {`{"urls": ["esdb://u:a@a", "esdb://u:b@b"]}`, nil, "number 1"},
		"a path":            {`{"url": "esdb://a/x"}`, nil, "path"},
	} {
		d := said(c.options, c.change)
		if name == "two hosts in one" {
			continue // a host with that name does not exist, which is reported when dialling
		}
		if len(d.Rejections) != 1 || !strings.Contains(d.Rejections[0], c.want) {
			t.Errorf("%s: %v, want it to say %q", name, d.Rejections, c.want)
		}
	}
	if d := said(one, func(u *drivers.Use) { u.Mode = drivers.ConfirmWindow }); len(d.Notes) != 2 ||
		!strings.Contains(d.Notes[0], "at most 100 appends in flight (concurrency); maximum messages per append: 10") {
		t.Errorf("a maxInFlight: %v", d.Notes)
	}
	if d := said(`{"url": "esdb://a", "messageTimeout": "0s"}`,
		func(u *drivers.Use) { u.Consumers = 200 }); len(d.Notes) != 2 {
		t.Errorf("200 consumers without a time-out: %v", d.Notes)
	}
}

func TestCredentialsNeedTLS(t *testing.T) {
	_,
		err := driver{}.Open(labtest.Context(t),
		schematest.Fill(t, driver{}, `{"url": "esdb://admin:changeit@127.0.0.1:1?tls=false"}`), drivers.Env{})
	if err == nil || !strings.Contains(err.Error(), "need TLS") || strings.Contains(err.Error(), "changeit") {
		t.Errorf("user and password without TLS: %v", err)
	}
	_, err = driver{}.Open(labtest.Context(t), schematest.Fill(t, driver{}, `{"url": "esdb://admin:changeit@h:p/x"}`),
		drivers.Env{})
	if err == nil || strings.Contains(err.Error(), "changeit") {
		t.Errorf("a url that is none: %v", err)
	}
}

// Cleanup also finds the streams of a cell without consumers, and leaves no stream without the group that leads to it.
func TestLeftoversWithoutConsumers(t *testing.T) {
	_, address := inProcess(t, server.Options{})
	r := newRig(t, reached(t, address, `{}`), func(t *drivers.Topology) { t.Consumers = 0 })
	p, _ := r.publisher(drivers.ConfirmEach, nil)
	r.send(p, 1, 10)
	left, err := r.session.Leftovers(r.ctx, r.topology.Name)
	if err != nil || len(left) != 1 || left[0].Name != streamName(r.topology, 0)+separator+groupName(r.topology, 0) {
		t.Fatalf("leftovers %v, %v; want a group with its stream", left, err)
	}
	if err := r.session.Cleanup(r.ctx, left); err != nil {
		t.Error(err)
	}
	l, err := r.session.leader(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, exists, err := l.last(r.ctx, streamName(r.topology, 0)); exists || err != nil {
		t.Errorf("the stream exists (%t, %v) after the cleanup, and nothing leads to it", exists, err)
	}
	if left, err := r.session.Leftovers(r.ctx, r.topology.Name); err != nil || len(left) > 0 {
		t.Errorf("leftovers %v after the cleanup, %v", left, err)
	}
}
