package external

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// The documented exchange is the real one.
func TestDocumentedExchange(t *testing.T) {
	transcript := filepath.Join(t.TempDir(), "transcript")
	limit := quick
	limit.ping = time.Hour
	d := newChild(t, "good", limit)
	d.command.Env[recordTo] = transcript
	talk(t, d)
	text, err := os.ReadFile(transcript)
	if err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`"result":\{"protocol.*\}`).ReplaceAllString(string(text), `"result":{…}}`)
	page, err := os.ReadFile("../../../docs/reference/driver-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "### An exchange")
	_, rest, _ = strings.Cut(rest, "```text\n")
	want, _, _ := strings.Cut(rest, "```")
	if got != want {
		t.Errorf("docs/reference/driver-protocol.md shows\n%s\nand what is said is\n%s", want, got)
	}
}

// talk sends and receives one message in a session.
func talk(t *testing.T, d *Driver) {
	ctx := t.Context()
	s, err := d.Open(ctx, json.RawMessage(`{}`), drivers.Env{Dir: "/tmp/task"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	topology := oneQueue
	topology.Name, topology.QueueNode = "lockstep-1", drivers.AnyNode
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Setup(ctx, topology))
	received, confirmed := make(chan struct{}), make(chan struct{})
	connect := func(role drivers.Role) drivers.Conn {
		c, err := s.Connect(ctx, drivers.ConnSpec{Role: role, Topology: topology, Node: drivers.AnyNode})
		must(err)
		return c
	}
	in := connect(drivers.ConsumerRole)
	c, err := in.Consumer(ctx, drivers.ConsumerSpec{Topology: topology, Prefetch: 100, Batch: 10, Ack: drivers.AckEach},
		func([]drivers.Delivery) { close(received) })
	must(err)
	out := connect(drivers.PublisherRole)
	p, err := out.Publisher(ctx, drivers.PublisherSpec{Topology: topology, Mode: drivers.ConfirmWindow, MaxInFlight: 1000,
		OnConfirms: func([]uint64, error) { close(confirmed) }})
	must(err)
	must(p.Publish(ctx, drivers.Message{Token: 1 << 60, Key: 7, Body: []byte("hello")}))
	for _, what := range []chan struct{}{confirmed, received} {
		select {
		case <-what:
		case <-time.After(time.Minute):
			t.Fatal("the message is not confirmed and received within a minute")
		}
	}
	c.Stop() // the frame handled comes before the answer
	c.Ack(1)
	must(c.Close())
	must(in.Close())
	out.Cut()
	must(p.Close())
	must(out.Close())
	must(s.Teardown(context.WithoutCancel(ctx), topology))
}
