package nats

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	client "github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// An acknowledgement that began before Stop, and that waits for another call of the library, is also limited.
func TestStopLimitsAnAcknowledgementThatWaits(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer far.Close()
	c := &consumer{conn: &conn{raw: near}, stop: make(chan struct{})}
	c.mu.Lock()
	written := make(chan error)
	go c.locked(func() {
		_, err := near.Write([]byte("+ACK")) // far does not read
		written <- err
	})
	labtest.Eventually(t, "the call that waits for mu", func() bool {
		all := make([]byte, 1<<20)
		for _, stack := range strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n") {
			if strings.Contains(stack, "sync.(*Mutex).Lock") &&
				strings.Contains(stack, "created by example.org/lockstep/lockstep/pkg/drivers/nats."+t.Name()) {
				return true
			}
		}
		return false
	})
	close(c.stop)
	c.mu.Unlock()
	select {
	case err := <-written:
		if err == nil {
			t.Error("a server that does not read has received an acknowledgement")
		}
	case <-time.After(labtest.Wait):
		t.Error("an acknowledgement that began before Stop is not limited")
		_ = near.Close()
		<-written
	}
}

// A secret in a place that records do not redact is rejected.
func TestURLsThatRecordsWouldShow(t *testing.T) {
	for text, want := range map[string]string{"nats://hunter2@host:4222": "option token",
		"user:hunter2@host": "not of the form"} {
		_, err := (&options{Addresses: kit.Addresses{URL: text}}).endpoints()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{"host", "nats://user:hunter2@host", "tls://host:1"} {
		if _, err := (&options{Addresses: kit.Addresses{URL: text}}).endpoints(); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestVerdict(t *testing.T) {
	for data, rejected := range map[string]bool{
		`{"stream":"x", "seq":1}`:             false,
		`{"domain":"d","stream":"x","seq":1}`: false,
		`{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"x","seq":0}`: true,
		`{}`:    true,
		`what?`: true,
		``:      true,
	} {
		if err := verdict(&client.Msg{Data: []byte(data)}); errors.Is(err, drivers.ErrRejected) != rejected {
			t.Errorf("reply %s: %v", data, err)
		}
	}
}

// TestConfirmerThatCannotListenIsReleased: nothing refers to the connection of a publisher that could not be connected.
func TestConfirmerThatCannotListenIsReleased(t *testing.T) {
	for _, mode := range []drivers.Mode{drivers.ConfirmWindow, drivers.ConfirmEach} {
		refused := func() weak.Pointer[conn] {
			c := &conn{} // without a connection of the library, which rejects that
			if _, err := newConfirmer(c, drivers.PublisherSpec{Mode: mode}, time.Hour); err == nil {
				t.Fatalf("%s: confirms are subscribed to without a connection", mode)
			}
			return weak.Make(c)
		}()
		runtime.GC()
		if refused.Value() != nil {
			t.Errorf("%s: the connection is still referred to", mode)
		}
	}
}

func TestRedelivered(t *testing.T) {
	c := &consumer{acks: "$JS.ACK.x_q0.s0.1."}
	for reply, want := range map[string]drivers.Tristate{
		"$JS.ACK.x_q0.s0.1.5.5.1700000000.0":              drivers.No,
		"$JS.ACK.x_q0.s0.2.5.6.1700000000.0":              drivers.Yes,
		"$JS.ACK.x_q0.s0.10.5.6.1700000000.0":             drivers.Yes,
		"$JS.ACK.hub.Hash.x_q0.s0.1.5.5.1700000000.0.tok": drivers.No,
		"$JS.ACK.hub.Hash.x_q0.s0.3.5.5.1700000000.0.tok": drivers.Yes,
		"": drivers.NotSaid,
	} {
		if got := c.redelivered(reply); got != want {
			t.Errorf("reply %q: %d, want %d", reply, got, want)
		}
	}
}

// A consumer that holds most of its prefetch unacknowledged must send a new request when its last one has ended.
// Otherwise it would wait for ever.
func TestPullerAsksAgain(t *testing.T) {
	for _, test := range []struct{ requested, held, want int }{
		{requested: 0, held: 0, want: 10},
		{requested: 6, held: 0, want: 0}, // too few for a request
		{requested: 5, held: 0, want: 5},
		{requested: 4, held: 6, want: 0},
		{requested: 0, held: 6, want: 4}, // the request for the rest has ended
		{requested: -1, held: 9, want: 1},
		{requested: 0, held: 10, want: 0},
	} {
		p := newPuller(nil, "", "", 10)
		p.requested, p.held = test.requested, test.held
		if got := p.wanted(); got != test.want {
			t.Errorf("with %d of 10 requested for and %d held it asks for %d, want %d", test.requested, test.held, got,
				test.want)
		}
	}
}

// While a consumer has no leader, it requests once per check, not after each answer.
func TestPullerPausesWithoutALeader(t *testing.T) {
	p := newPuller(nil, "", "", 10)
	p.requested = 10
	m := client.NewMsg("")
	m.Header.Set("Status", "503")
	if !p.status(m) || p.wanted() != 0 {
		t.Errorf("after the answer 503 it asks for %d at once", p.wanted())
	}
	p.held = 10 // so that check sends nothing
	if err := p.check(); err != nil {
		t.Fatal(err)
	}
	p.held = 0
	if got := p.wanted(); got != 10 {
		t.Errorf("after the next check it asks for %d, want 10", got)
	}
}

// Confirms may arrive out of order. A slot that is used twice would confirm the wrong message.
func TestSlots(t *testing.T) {
	s := newSlots("inbox.", 4)
	var taken []*slot
	for token := range uint64(10) { // more than the existing slots
		taken = append(taken, s.take(token, "", nil))
	}
	seen := map[*slot]bool{}
	for token, at := range taken {
		if seen[at] || s.find(at.reply) != at {
			t.Fatalf("slot of token %d is taken twice or not found by its reply %s", token, at.reply)
		}
		seen[at] = true
	}
	for _, i := range []int{7, 0, 9} {
		if token, mine := taken[i].settle(); !mine || token != uint64(i) {
			t.Errorf("slot of token %d settles as %d, %t", i, token, mine)
		}
		if _, mine := taken[i].settle(); mine {
			t.Errorf("slot of token %d settles twice", i)
		}
	}
	for _, odd := range []string{"inbox.", "inbox.x", "inbox.-1", "inbox.999", "", "inbox.99999999999999999999"} {
		if s.find(odd) != nil {
			t.Errorf("reply %q finds a slot", odd)
		}
	}
	if n := testing.AllocsPerRun(100, func() { s.find(s.take(1, "", nil).reply).settle() }); n > 0 {
		t.Errorf("a message allocates %v times for its slot", n)
	}
}

// Requested and unacknowledged messages together never exceed the prefetch, for any response of the server.
func TestPullerKeepsPrefetch(t *testing.T) {
	s := open(t, []byte(`{"embedded": true, "name": "puller"}`), nil)
	for _, limit := range []int{1, 2, 7, 100} {
		p := newPuller(adminOf(t, s), "nowhere", client.NewInbox(), limit)
		for round := range 1000 {
			if err := p.more(); err != nil {
				t.Fatal(err)
			}
			if p.requested+p.held > limit {
				t.Fatalf("prefetch %d, round %d: requested for %d while %d are held", limit, round, p.requested, p.held)
			}
			if p.requested == 0 && p.held == 0 {
				t.Fatalf("prefetch %d, round %d: nothing is requested for", limit, round)
			}
			switch {
			case round%13 == 12:
				m := client.NewMsg("")
				m.Header.Set("Status", "408")
				m.Header.Set("Nats-Pending-Messages", fmt.Sprint(p.requested))
				p.status(m)
			case p.requested > 0:
				p.received(1 + round%p.requested)
			}
			if p.held > 0 && round%3 > 0 {
				p.done(1 + round%p.held)
			}
		}
	}
}
