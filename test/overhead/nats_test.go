package overhead

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/pkg/drivers"
	_ "example.org/lockstep/lockstep/pkg/drivers/nats"
)

// serverAddress makes this test binary run a NATS server, so that its CPU time is not counted.
const serverAddress = "LOCKSTEP_OVERHEAD_NATS_ADDRESS"

func TestMain(m *testing.M) {
	if address := os.Getenv(serverAddress); address != "" {
		serve(address)
	}
	code := m.Run()
	printTables()
	os.Exit(code)
}

// serve runs a server until standard input is closed, which happens when the parent ends.
func serve(address string) {
	host, port, _ := strings.Cut(address, ":")
	number, _ := strconv.Atoi(port)
	dir, err := os.MkdirTemp("", "lockstep-overhead-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	srv, err := server.NewServer(&server.Options{ServerName: "overhead", Host: host, Port: number, NoSigs: true, NoLog: true,
		JetStream: true,
		StoreDir:  dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	srv.Start()
	_, _ = io.Copy(io.Discard, os.Stdin)
	srv.Shutdown()
	srv.WaitForShutdown()
	_ = os.RemoveAll(dir)
	os.Exit(0)
}

func startServer(b *testing.B) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	address = l.Addr().String()
	must(b, l.Close())
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), serverAddress+"="+address)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	must(b, err)
	must(b, c.Start())
	b.Cleanup(func() {
		_ = in.Close()
		_ = c.Wait()
	})
	for range 500 {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			return address
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.Fatal("the NATS server does not accept connections")
	return ""
}

// BenchmarkNATS uses JetStream on one server, in memory.
func BenchmarkNATS(b *testing.B) {
	address := startServer(b)
	compare(b, subject{
		name:    "nats",
		options: fmt.Appendf(nil, `{"url": "nats://%s", "storage": "memory"}`, address),
		bare:    func(b *testing.B, w work) sample { return bareNATS(b, address, w) },
	})
}

func connectNATS(b *testing.B, address string) *nats.Conn {
	nc, err := nats.Connect("nats://"+address, nats.NoReconnect(), nats.SkipHostLookup(), nats.SkipSubjectValidation())
	must(b, err)
	b.Cleanup(nc.Close)
	return nc
}

// bareNATS has one connection per side, like the engine. It creates streams and consumers with the driver's settings.
func bareNATS(b *testing.B, address string, w work) sample {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	to, from := connectNATS(b, address), connectNATS(b, address)
	defer to.Close()
	defer from.Close()
	js, err := jetstream.New(to)
	must(b, err)
	tasks++
	name := "lockstep-overhead-bare-" + strconv.Itoa(tasks)
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".*"},
		Retention: jetstream.InterestPolicy,
		Storage:   jetstream.MemoryStorage, Discard: jetstream.DiscardNew, MaxMsgs: -1, MaxBytes: -1, MaxConsumers: -1})
	must(b, err)
	defer func() { must(b, js.DeleteStream(context.Background(), name)) }()
	_, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "s0", AckPolicy: jetstream.AckExplicitPolicy,
		MaxAckPending: -1,
		MaxDeliver:    -1, AckWait: 30 * time.Second, MemoryStorage: true})
	must(b, err)

	inbox := nats.NewInbox()
	messages := make(chan *nats.Msg, 2*prefetch)
	_, err = from.ChanSubscribe(inbox, messages)
	must(b, err)
	return timed(b, w, func() error {
		return receiveNATS(ctx, from, "$JS.API.CONSUMER.MSG.NEXT."+name+".s0", inbox, messages, w.n)
	}, func() error { return publishNATS(ctx, to, name+".k0", w) })
}

// receiveNATS requests more messages when half of the prefetch is acknowledged.
func receiveNATS(ctx context.Context, nc *nats.Conn, next, inbox string, messages <-chan *nats.Msg, n int) error {
	ack, half := []byte("+ACK"), fmt.Appendf(nil, `{"batch":%d}`, prefetch/2)
	for range 2 {
		if err := nc.PublishRequest(next, inbox, half); err != nil {
			return err
		}
	}
	for i := 1; i <= n; i++ {
		var m *nats.Msg
		select {
		case m = <-messages:
		default:
			select {
			case m = <-messages:
			case <-ctx.Done():
				return fmt.Errorf("the bare loop received %d of %d messages: %w", i, n, ctx.Err())
			}
		}
		if err := nc.Publish(m.Reply, ack); err != nil {
			return err
		}
		if i%(prefetch/2) == 0 {
			if err := nc.PublishRequest(next, inbox, half); err != nil {
				return err
			}
		}
	}
	return nil
}

// publishNATS has one reply subject per message in flight, and counts confirms. A single subject would cost 1 µs less
// per message at the server, which caches its route, but a confirm would not identify its message. The library's
// PublishAsync, with one subject per message, costs the process 1.6 µs more than the engine.
func publishNATS(ctx context.Context, nc *nats.Conn, subject string, w work) error {
	body := make([]byte, w.size)
	inbox := nats.NewInbox()
	switch w.mode {
	case drivers.FireAndForget:
		for range w.n {
			if err := nc.Publish(subject, body); err != nil {
				return err
			}
		}
		return nil
	case drivers.ConfirmEach:
		replies := make(chan *nats.Msg, 1)
		if _, err := nc.ChanSubscribe(inbox, replies); err != nil {
			return err
		}
		for range w.n {
			if err := nc.PublishRequest(subject, inbox, body); err != nil {
				return err
			}
			select {
			case <-replies:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	replies := make([]string, window)
	for i := range replies {
		replies[i] = inbox + "." + strconv.Itoa(i)
	}
	g := newGate()
	sub, err := nc.Subscribe(inbox+".*", func(*nats.Msg) { g.leave() })
	if err != nil {
		return err
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	for i := range w.n {
		g.enter()
		if err := nc.PublishRequest(subject, replies[i%window], body); err != nil {
			return err
		}
	}
	g.wait(int64(w.n))
	return nil
}
