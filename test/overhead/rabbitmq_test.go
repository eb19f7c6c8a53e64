package overhead

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"example.org/lockstep/lockstep/pkg/drivers"
	_ "example.org/lockstep/lockstep/pkg/drivers/rabbitmq"
)

// brokerURL names a RabbitMQ broker.
const brokerURL = "LOCKSTEP_RABBITMQ_URL"

// BenchmarkRabbitMQ uses a transient classic queue behind a direct exchange.
func BenchmarkRabbitMQ(b *testing.B) {
	url := labAddress(b, brokerURL, "rabbitmq")
	options, err := json.Marshal(map[string]any{"url": url})
	must(b, err)
	compare(b, subject{name: "rabbitmq", options: options,
		bare: func(b *testing.B, w work) sample { return bareRabbitMQ(b, url, w) }})
}

func openChannel(b *testing.B, url string) (*amqp.Connection, *amqp.Channel) {
	conn, err := amqp.DialConfig(url, amqp.Config{Heartbeat: time.Minute})
	must(b, err)
	ch, err := conn.Channel()
	must(b, err)
	return conn, ch
}

// bareRabbitMQ has one connection per side, like the engine. It declares what the driver declares.
func bareRabbitMQ(b *testing.B, url string, w work) sample {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	toConn, to := openChannel(b, url)
	defer func() { _ = toConn.Close() }()
	fromConn, from := openChannel(b, url)
	defer func() { _ = fromConn.Close() }()
	tasks++
	name := "lockstep-overhead-bare-" + strconv.Itoa(tasks)
	must(b, to.ExchangeDeclare(name, "direct", false, false, false, false, nil))
	defer func() { must(b, to.ExchangeDelete(name, false, false)) }()
	_, err := to.QueueDeclare(name+"-s0-q0", false, false, false, false, nil)
	must(b, err)
	defer func() { _, err := to.QueueDelete(name+"-s0-q0", false, false, false); must(b, err) }()
	must(b, to.QueueBind(name+"-s0-q0", "q0.k0", name, false, nil))
	must(b, from.Qos(prefetch, 0, false))
	messages, err := from.Consume(name+"-s0-q0", "lockstep", false, false, false, false, nil)
	must(b, err)
	if w.mode.Confirmed() {
		must(b, to.Confirm(false))
	}

	return timed(b, w, func() error { return receiveRabbitMQ(ctx, messages, w.n) },
		func() error { return publishRabbitMQ(to, name, w) })
}

func receiveRabbitMQ(ctx context.Context, messages <-chan amqp.Delivery, n int) error {
	for i := range n {
		var d amqp.Delivery
		select {
		case d = <-messages:
		default:
			select {
			case d = <-messages:
			case <-ctx.Done():
				return fmt.Errorf("the bare loop received %d of %d messages: %w", i, n, ctx.Err())
			}
		}
		if err := d.Ack(false); err != nil {
			return err
		}
	}
	return nil
}

// publishRabbitMQ waits for confirms with the library's deferred confirmations, which the library always creates. A
// listener of NotifyPublish would cost more.
func publishRabbitMQ(ch *amqp.Channel, exchange string, w work) error {
	m := amqp.Publishing{DeliveryMode: amqp.Transient, Body: make([]byte, w.size)}
	inFlight := 0 // unconfirmed messages
	switch w.mode {
	case drivers.ConfirmWindow:
		inFlight = window
	case drivers.ConfirmEach:
		inFlight = 1
	}
	pending := make([]*amqp.DeferredConfirmation, inFlight)
	for i := range w.n {
		if inFlight > 0 && i >= inFlight && !pending[i%inFlight].Wait() {
			return fmt.Errorf("message %d was rejected", i-inFlight)
		}
		confirm, err := ch.PublishWithDeferredConfirm(exchange, "q0.k0", false, false, m)
		if err != nil {
			return err
		}
		if inFlight > 0 {
			pending[i%inFlight] = confirm
		}
	}
	for _, confirm := range pending {
		if confirm != nil && !confirm.Wait() {
			return fmt.Errorf("a message was rejected")
		}
	}
	return nil
}
