package artemis

import (
	"context"
	"testing"

	"github.com/Azure/go-amqp"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// A message allocates no more memory in the driver than in the library.
func TestAllocations(t *testing.T) {
	r := newRig(t, single(t, `{}`))
	ctx, body := r.context(), make([]byte, 100)
	conn, err := amqp.Dial(ctx, lab.Variable(t, "LOCKSTEP_ARTEMIS_URL"),
		&amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	link, err := conn.NewSession(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	sender, err := link.NewSender(ctx, address(r.topology, 0),
		&amqp.SenderOptions{TargetCapabilities: []string{"queue"}})
	if err != nil {
		t.Fatal(err)
	}
	m := &amqp.Message{Header: &amqp.MessageHeader{Durable: true, Priority: 4}, Data: [][]byte{body}}
	bare := perMessage(t, func(ctx context.Context) error { return sender.Send(ctx, m, nil) })
	p, _ := r.publisher(drivers.ConfirmEach)
	driven := perMessage(t, func(ctx context.Context) error { return p.Publish(ctx, drivers.Message{Body: body}) })
	t.Logf("allocations of one confirmed message: %.1f in a bare loop, %.1f through the driver", bare, driven)
	if driven > bare+0.5 {
		t.Errorf("the driver allocates %.1f times for each message, the library %.1f", driven, bare)
	}
}

// perMessage returns the allocations per message of all goroutines, including the library's.
func perMessage(t *testing.T, send func(context.Context) error) float64 {
	ctx := t.Context()
	var failed error
	n := testing.AllocsPerRun(200, func() {
		if err := send(ctx); err != nil {
			failed = err
		}
	})
	if failed != nil {
		t.Fatalf("send: %v", failed)
	}
	return n
}
