package overhead

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"testing"

	"github.com/Azure/go-amqp"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	_ "example.org/lockstep/lockstep/pkg/drivers/activemq"
	_ "example.org/lockstep/lockstep/pkg/drivers/artemis"
)

// BenchmarkArtemis uses a transient anycast queue.
func BenchmarkArtemis(b *testing.B) {
	compareAMQP10(b, "artemis", "LOCKSTEP_ARTEMIS_URL", func(name string) string { return name + ".q0" })
}

// BenchmarkActiveMQ uses a queue with transient messages.
func BenchmarkActiveMQ(b *testing.B) {
	compareAMQP10(b, "activemq", "LOCKSTEP_ACTIVEMQ_URL",
		func(name string) string { return "queue://" + name + ".q0.s0" })
}

// compareAMQP10 lets the driver declare the queue for the bare loop, too. name returns the queue's name.
func compareAMQP10(b *testing.B, driver, variable string, name func(task string) string) {
	at := labAddress(b, variable, driver)
	u, err := url.Parse(at)
	must(b, err)
	options, err := json.Marshal(map[string]any{"url": at})
	must(b, err)
	ctx := context.Background()
	d, err := drivers.Lookup(driver)
	must(b, err)
	session, err := d.Open(ctx, schematest.Fill(b, d, options), drivers.Env{Dial: new(net.Dialer).DialContext,
		Log: slog.New(slog.DiscardHandler)})
	must(b, err)
	defer func() { must(b, session.Close()) }()
	compare(b, subject{name: driver, options: options, bare: func(b *testing.B, w work) sample {
		tasks++
		t := drivers.Topology{Name: "lockstep-overhead-bare-" + strconv.Itoa(tasks), Queues: 1, Subscriptions: 1,
			Bindings: 1, QueueNode: drivers.AnyNode}
		must(b, session.Setup(ctx, t))
		defer func() { must(b, session.Teardown(ctx, t)) }()
		return bareAMQP10(b, u.Host, name(t.Name), w)
	}})
}

func openAMQP10(ctx context.Context, b *testing.B, address string) (*amqp.Conn, *amqp.Session) {
	conn, err := amqp.Dial(ctx, "amqp://"+address, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	must(b, err)
	session, err := conn.NewSession(ctx, nil)
	must(b, err)
	return conn, session
}

// bareAMQP10 has one connection per side, like the engine.
func bareAMQP10(b *testing.B, address, queue string, w work) sample {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	toConn, to := openAMQP10(ctx, b, address)
	defer func() { _ = toConn.Close() }()
	fromConn, from := openAMQP10(ctx, b, address)
	defer func() { _ = fromConn.Close() }()
	settlement := amqp.SenderSettleModeUnsettled
	if !w.mode.Confirmed() {
		settlement = amqp.SenderSettleModeSettled
	}
	sender, err := to.NewSender(ctx, queue, &amqp.SenderOptions{SettlementMode: &settlement,
		TargetCapabilities: []string{"queue"}})
	must(b, err)
	receiver, err := from.NewReceiver(ctx, queue, &amqp.ReceiverOptions{Credit: prefetch,
		SourceCapabilities: []string{"queue"}})
	must(b, err)

	return timed(b, w, func() error { return receiveAMQP10(ctx, receiver, w.n) },
		func() error { return publishAMQP10(ctx, sender, w) })
}

func receiveAMQP10(ctx context.Context, receiver *amqp.Receiver, n int) error {
	for i := range n {
		m, err := receiver.Receive(ctx, nil)
		if err != nil {
			return fmt.Errorf("the bare loop received %d of %d messages: %w", i, n, err)
		}
		if err := receiver.AcceptMessage(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func publishAMQP10(ctx context.Context, sender *amqp.Sender, w work) error {
	m := &amqp.Message{Header: &amqp.MessageHeader{Priority: 4}, Data: [][]byte{make([]byte, w.size)}}
	inFlight := 0 // unconfirmed messages
	switch w.mode {
	case drivers.ConfirmWindow:
		inFlight = window
	case drivers.ConfirmEach:
		inFlight = 1
	}
	pending := make([]amqp.SendReceipt, inFlight)
	for i := range w.n {
		if inFlight == 0 {
			if err := sender.Send(ctx, m, nil); err != nil {
				return err
			}
			continue
		}
		if i >= inFlight {
			if err := confirmedAMQP10(ctx, &pending[i%inFlight]); err != nil {
				return err
			}
		}
		receipt, err := sender.SendWithReceipt(ctx, m, nil)
		if err != nil {
			return err
		}
		pending[i%inFlight] = receipt
	}
	for i := range min(w.n, inFlight) {
		if err := confirmedAMQP10(ctx, &pending[i]); err != nil {
			return err
		}
	}
	return nil
}

func confirmedAMQP10(ctx context.Context, receipt *amqp.SendReceipt) error {
	state, err := receipt.Wait(ctx)
	if err != nil {
		return err
	}
	if _, ok := state.(*amqp.StateAccepted); !ok {
		return fmt.Errorf("a message was not accepted: %v", state)
	}
	return nil
}
