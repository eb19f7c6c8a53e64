package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// A key leads to the documented partition. Otherwise distributions of keys would have another meaning.
func TestKeyChoosesPartition(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"partitions": 3, "client": "`+client+`"}`))
		got := r.consumer(100, false)
		p, _ := r.publisher(drivers.ConfirmWindow)
		sent := numbers(0, 30)
		r.send(p, sent...)
		labtest.Eventually(t, "every message", func() bool { return len(got.received()) == len(sent) })
		for i, body := range got.received() {
			if key := slices.Index(sent, body); got.streams[i] != uint32(key%3) {
				t.Errorf("the message with key %d is in partition %d of 3", key, got.streams[i])
			}
		}
	})
}

// A consumer that connects takes over partitions. Messages that the other consumer has received are not repeated,
// except by kafka-go, and none is left out.
func TestRebalanceLosesAndRepeatsNothing(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"partitions": 4, "client": "`+client+`"}`))
		one := r.consumer(0, true)
		p, _ := r.publisher(drivers.ConfirmWindow)
		sent := numbers(0, 400)
		r.send(p, sent[:100]...)
		labtest.Eventually(t, "the first messages", func() bool { return len(one.received()) > 0 })
		two := r.consumer(0, true)
		r.send(p, sent[100:200]...)
		labtest.Eventually(t, "a message for the second consumer", func() bool { return len(two.received()) > 0 })
		r.send(p, sent[200:300]...)
		one.close()
		r.send(p, sent[300:]...)
		received := func() []string {
			all := slices.Sorted(slices.Values(append(one.received(), two.received()...)))
			if client == kafkaGo { // its Reader does not commit before it gives up a partition
				all = slices.Compact(all)
			}
			return all
		}
		labtest.Eventually(t, "every message", func() bool { return len(received()) >= len(sent) })
		time.Sleep(100 * time.Millisecond)
		got := received()
		slices.Sort(sent)
		if !slices.Equal(got, sent) {
			t.Errorf("%d messages of %d sent, %d different", len(got), len(sent), len(slices.Compact(got)))
		}
		if one.Err() != nil || two.Err() != nil {
			t.Errorf("connections broke: %v, %v", one.Err(), two.Err())
		}
		if client == franz && r.count(drivers.EventRebalanced) == 0 {
			t.Error("no event tells that partitions were divided anew")
		}
	})
}

// A consumer that ends commits exactly what was acknowledged. The next one receives the rest.
func TestCommitIsOfAcknowledgedMessages(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"client": "`+client+`"}`))
		one := r.consumer(100, true)
		p, _ := r.publisher(drivers.ConfirmWindow)
		sent := numbers(0, 20)
		r.send(p, sent...)
		labtest.Eventually(t, "every message", func() bool { return len(one.received()) == len(sent) })
		one.consumer.Stop()
		one.unanswered = 0
		one.consumer.Ack(3)
		one.consumer.Ack(4)
		if err := one.consumer.Close(); err != nil {
			t.Fatal(err)
		}
		two := r.consumer(100, false)
		labtest.Eventually(t, "the rest", func() bool { return len(two.received()) >= len(sent)-7 })
		if got := two.received(); !slices.Equal(got, sent[7:]) {
			t.Errorf("received %v after 7 of %v were acknowledged", got, sent)
		}
	})
}

// A consumer that its group removes ends alone: another consumer of the Conn continues. kafka-go joins again by itself.
func TestARemovedConsumerEndsAlone(t *testing.T) {
	r := open(t, at(t, single, `{}`))
	r.topology.Queues = 2
	if err := r.session.Setup(r.context(), r.topology); err != nil {
		t.Fatal(err)
	}
	shared := r.connect(drivers.ConsumerRole)
	var all [2]callbacks
	for queue := range all {
		if err := r.consumeOn(shared, &all[queue], drivers.ConsumerSpec{Queue: queue, Prefetch: 100}); err != nil {
			t.Fatal(err)
		}
	}
	removed, other := all[0].consumer.(*consumer), &all[1]
	err := r.session.evict(r.context(), []string{removed.group}, func(client string) bool { return client == removed.id })
	if err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, "the end of the consumer that was removed", func() bool { return removed.Err() != nil })
	p, _ := r.publisherOn(r.connect(drivers.PublisherRole),
		drivers.PublisherSpec{Queue: 1, Mode: drivers.ConfirmWindow, MaxInFlight: 1000})
	sent := numbers(0, 20)
	r.send(p, sent...)
	labtest.Eventually(t, "messages of the other consumer", func() bool { return len(other.received()) == len(sent) })
	if err := errors.Join(other.Err(), shared.Err()); err != nil || !errors.Is(removed.Err(), drivers.ErrClosed) {
		t.Errorf("the removed consumer ends with %v; the other one and the connection with %v", removed.Err(), err)
	}
}

// unsent is a connection whose writes do not reach the broker once lost is set.
type unsent struct {
	net.Conn
	lost *atomic.Bool
}

func (c unsent) Write(b []byte) (int, error) {
	if c.lost.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// A consumer that cannot leave its group, on a Conn that still works, is removed from it. The group does not wait for
// its session timeout.
func TestAConsumerThatCannotLeaveIsRemoved(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"sessionTimeout": "5m", "client": "`+client+`"}`))
		var lost atomic.Bool
		dial := r.session.env.Dial
		r.session.env.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			raw, err := dial(ctx, network, address)
			return unsent{raw, &lost}, err
		}
		n := r.consumer(100, false)
		k := n.consumer.(*consumer)
		lost.Store(true)
		n.close()
		if !errors.Is(k.Err(), errNoAnswer) || k.conn.Err() != nil {
			t.Errorf("the consumer ends with %v, and its connection with %v", k.Err(), k.conn.Err())
		}
		groups, err := r.session.describeGroups(r.context(), []string{k.group})
		if err != nil {
			t.Fatal(err)
		}
		if members := groups[k.group].Members; len(members) > 0 {
			t.Errorf("the group still has the members %+v", members)
		}
	})
}

// Without resilience, a request that is not answered within confirmTimeout breaks the Conn, and is not made again.
func TestConfirmTimeout(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"resilience": "none", "confirmTimeout": "5s", "client": "`+client+`"}`))
		var lost atomic.Bool
		dial := r.session.env.Dial
		r.session.env.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			raw, err := dial(ctx, network, address)
			if err != nil || lost.Load() { // a repeated request would be answered
				return raw, err
			}
			return unsent{raw, &lost}, nil
		}
		c := r.connect(drivers.PublisherRole)
		p, h := r.publisherOn(c, drivers.PublisherSpec{Mode: drivers.ConfirmWindow, MaxInFlight: 1000})
		for i := range 2 {
			r.send(p, "hello")
			labtest.Eventually(t, "a confirm", func() bool { return len(h.settled()) == i+1 })
			lost.Store(true)
		}
		if got := h.settled(); got[0] != nil || !errors.Is(got[1], drivers.ErrClosed) || c.Err() == nil {
			t.Errorf("confirms %v; the connection ends with %v", got, c.Err())
		}
	})
}

// A commit blocks receiving only if the options require it.
func TestCommitBlocksAsOptionsSay(t *testing.T) {
	for _, commit := range []string{"blocking", "background"} {
		answer, handled := make(slowSource), make(chan struct{}, 2)
		c := newConn(&session{options: options{Commit: commit}})
		var k *consumer
		k = newConsumer(c, drivers.ConsumerSpec{Batch: 1}, func([]drivers.Delivery) {
			k.Ack(1)
			handled <- struct{}{}
		})
		k.source = answer
		delivered := make(chan struct{})
		go func() {
			defer close(delivered)
			k.deliver(0, []message{{next: 1}, {next: 2}})
		}()
		<-handled
		wait := labtest.Wait
		if commit == "blocking" {
			wait = 100 * time.Millisecond
		}
		select {
		case <-handled:
			if commit == "blocking" {
				t.Error("receiving continues before the commit is answered")
			}
		case <-time.After(wait):
			if commit == "background" {
				t.Error("receiving waits for the commit's answer")
			}
		}
		close(answer)
		<-delivered
		c.Cut()
	}
}

// If the log no longer has the next offset of a group, the consumer continues with the rest: that is loss, not the end
// of receiving.
func TestConsumerGoesOnWhereTheLogBegins(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"client": "`+client+`"}`))
		p, callbacks := r.publisher(drivers.ConfirmWindow)
		sent := numbers(0, 20)
		r.send(p, sent...)
		labtest.Eventually(t, "confirms", func() bool { return len(callbacks.settled()) == len(sent) })
		request := kmsg.NewPtrDeleteRecordsRequest()
		topic := kmsg.NewDeleteRecordsRequestTopic()
		topic.Topic = topicName(r.topology, 0)
		partition := kmsg.NewDeleteRecordsRequestTopicPartition()
		partition.Offset = 12
		topic.Partitions = append(topic.Partitions, partition)
		request.Topics = append(request.Topics, topic)
		if _, err := request.RequestWith(r.context(), r.session.library); err != nil {
			t.Fatal(err)
		}
		got := r.consumer(100, false)
		labtest.Eventually(t, "the rest", func() bool { return len(got.received()) == 8 })
		if !slices.Equal(got.received(), sent[12:]) {
			t.Errorf("received %v", got.received())
		}
	})
}

// Metrics follow the state of the broker.
func TestProbeFollows(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"partitions": 2, "client": "`+client+`"}`))
		metric := func(name string) float64 {
			t.Helper()
			all, err := r.session.Probe(r.context())
			if err != nil {
				t.Fatal(err)
			}
			sum, found := 0.0, false
			for _, f := range all {
				if f.Name == name {
					sum, found = sum+f.Value, true
				}
			}
			if !found {
				t.Fatalf("no metric %s in %v", name, all)
			}
			return sum
		}
		p, callbacks := r.publisher(drivers.ConfirmWindow)
		before := metric(drivers.MetricStored)
		if free := metric(drivers.MetricDiskFree); free < 1<<20 {
			t.Errorf("%v bytes are free of the broker's disk", free)
		}
		if members := metric(drivers.MetricConsumers); members != 0 {
			t.Errorf("%v consumers before there is one", members)
		}
		r.send(p, numbers(0, 50)...)
		labtest.Eventually(t, "confirms", func() bool { return len(callbacks.settled()) == 50 })
		if rate := metric(drivers.MetricPublishRate); rate <= 0 {
			t.Errorf("50 messages more are a rate of %v", rate)
		}
		if lag := metric(drivers.MetricLag); lag != 50 {
			t.Errorf("a lag of %v with 50 messages and no consumer", lag)
		}
		if grown := metric(drivers.MetricStored) - before; grown < 50*10 {
			t.Errorf("50 messages take %v bytes", grown)
		}
		got := r.consumer(100, false)
		labtest.Eventually(t, "messages", func() bool { return len(got.received()) == 50 })
		if members := metric(drivers.MetricConsumers); members != 1 {
			t.Errorf("%v consumers, want one", members)
		}
		labtest.Eventually(t, "the lag being committed away", func() bool { return metric(drivers.MetricLag) == 0 })
	})
}

// Setup waits while a broker still has a deleted topic of the same name, with its metadata or with its log. A message
// that is published before would be lost.
func TestSetupWaitsForTheCreatedTopic(t *testing.T) {
	r := open(t, at(t, single, `{}`))
	s, names := r.session, topicNames(r.topology)
	created, err := s.create(r.context(), r.topology)
	if err == nil {
		err = s.awaitLeaders(r.context(), created)
	}
	if err != nil {
		t.Fatal(err)
	}
	earlier := topicIDs{names[0]: {1}}
	if err := s.known(r.context(), names, earlier); err == nil ||
		!strings.Contains(err.Error(), "still has the deleted topic") {
		t.Errorf("a topic with another ID than the created one gives %v", err)
	}
	p, h := r.publisher(drivers.ConfirmWindow)
	r.send(p, "early")
	labtest.Eventually(t, "the confirm", func() bool { return len(h.settled()) == 1 })
	if err := s.empty(r.context(), names); err == nil || !strings.Contains(err.Error(), "the log of a deleted topic") {
		t.Errorf("a topic with a message gives %v", err)
	}
}

// A publisher whose Conn cached that the topic is missing works after the topic was created again.
func TestPublisherOfARecreatedTopic(t *testing.T) {
	r := setUp(t, at(t, single, `{"client": "kafka-go"}`))
	c := r.connect(drivers.PublisherRole).(*conn)
	spec := drivers.PublisherSpec{Mode: drivers.ConfirmWindow, MaxInFlight: 10}
	p, h := r.publisherOn(c, spec)
	r.send(p, "before")
	labtest.Eventually(t, "the confirm", func() bool { return len(h.settled()) == 1 })
	if err := errors.Join(p.Close(), r.session.Teardown(r.context(), r.topology)); err != nil {
		t.Fatal(err)
	}
	library := &kafka.Client{Addr: kafka.TCP(r.session.options.Brokers...), Transport: c.transport}
	labtest.Eventually(t, "the missing topic being cached", func() bool {
		m, err := library.Metadata(r.context(), &kafka.MetadataRequest{Topics: topicNames(r.topology)})
		return err == nil && errors.Is(m.Topics[0].Error, kafka.UnknownTopicOrPartition)
	})
	if err := r.session.Setup(r.context(), r.topology); err != nil {
		t.Fatal(err)
	}
	p, h = r.publisherOn(c, spec)
	r.send(p, "after")
	labtest.Eventually(t, "the confirm", func() bool { return len(h.settled()) == 1 })
	if err := h.settled()[0]; err != nil {
		t.Error(err)
	}
}

// An impossible replication factor is rejected at once, with a remedy.
func TestImpossibleReplicationFactor(t *testing.T) {
	r := open(t, at(t, single, `{"replicationFactor": 3}`))
	began := time.Now()
	err := r.session.Setup(r.context(), r.topology)
	if err == nil || !strings.Contains(err.Error(), "INVALID_REPLICATION_FACTOR") ||
		!strings.Contains(err.Error(), "at most the number of brokers") {
		t.Errorf("three replicas on one broker: %v", err)
	}
	if took := time.Since(began); labtest.IsLong() && took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	r.topology.QueueNode = "0"
	if err := r.session.Setup(r.context(), r.topology); err == nil ||
		!strings.Contains(err.Error(), "at most the number of brokers") {
		t.Errorf("three replicas on one broker, placed: %v", err)
	}
}

// Each library and mechanism can authenticate. Without credentials, the error has a remedy, comes at once, and does not
// contain the password.
func TestCredentials(t *testing.T) {
	guarded := "LOCKSTEP_KAFKA_GUARDED_BROKERS"
	both(t, func(t *testing.T, client string) {
		for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256"} {
			r := setUp(t, at(t, guarded, `{"user": "lab", "password": "lab-secret", "mechanism": "`+mechanism+
				`", "client": "`+client+`"}`))
			got := r.consumer(100, false)
			p, _ := r.publisher(drivers.ConfirmWindow)
			r.send(p, "hello")
			labtest.Eventually(t, "a message by "+mechanism, func() bool { return len(got.received()) == 1 })
		}
	})
	for _, c := range []struct{ where, options, hint string }{
		{guarded, `{"user": "lab", "password": "wr0ng-w0rd"}`, "give user, password and mechanism"},
		{guarded, `{"user": "lab", "password": "wr0ng-w0rd", "mechanism": "SCRAM-SHA-256"}`,
			"give user, password and mechanism"},
		{guarded, `{"user": "lab", "password": "wr0ng-w0rd", "mechanism": "SCRAM-SHA-512"}`,
			"give user, password and mechanism"},
		{guarded, `{}`, "SASL"},
		{single, `{"user": "lab", "password": "wr0ng-w0rd"}`, "leave user and password out"},
		{single, `{"tls": {}}`, "TLS"},
	} {
		began := time.Now()
		_, err := driver{}.Open(t.Context(), schematest.Fill(t, driver{}, at(t, c.where, c.options)),
			drivers.Env{Dial: dialer})
		if err == nil || strings.Contains(err.Error(), "wr0ng") || !strings.Contains(err.Error(), c.hint) ||
			!strings.Contains(err.Error(), "127.0.0.1:") {
			t.Errorf("%s at %s: %v; want a hint: %s", c.options, c.where, err, c.hint)
		}
		if took := time.Since(began); labtest.IsLong() && took > 10*time.Second {
			t.Errorf("%s took %s", c.options, took)
		}
	}
}

// A body that exceeds the size of a batch is rejected before it is accepted.
func TestTooLargeBody(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"batchBytes": 4096, "client": "`+client+`"}`))
		p, callbacks := r.publisher(drivers.ConfirmWindow)
		if err := p.Publish(t.Context(), drivers.Message{Body: bytes.Repeat([]byte("x"), 5000)}); err == nil ||
			!strings.Contains(err.Error(), "batchBytes") {
			t.Errorf("a body above batchBytes: %v", err)
		}
		r.send(p, "a small one")
		labtest.Eventually(t, "its confirm", func() bool { return len(callbacks.settled()) == 1 })
		if err := callbacks.settled()[0]; err != nil {
			t.Error(err)
		}
	})
}

// Messages of fire-and-forget have no response, and keep their order nevertheless. That is declared of franz-go only.
func TestOrderWithoutConfirms(t *testing.T) {
	r := setUp(t, at(t, single, `{"client": "`+franz+`"}`))
	got := r.consumer(0, true)
	p, _ := r.publisher(drivers.FireAndForget)
	sent := numbers(0, 30_000)
	r.send(p, sent...)
	labtest.Eventually(t, "every message", func() bool { return len(got.received()) == len(sent) })
	for i, body := range got.received() {
		if body != sent[i] {
			t.Fatalf("message %d is %q, not %q", i, body, sent[i])
		}
	}
}

// Threads of one cell connect concurrently, and each causes a rebalance for the others.
func TestManyConsumersJoinAtOnce(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		const n = 8
		r := setUp(t, at(t, single, fmt.Sprintf(`{"client": %q, "partitions": %d}`, client, n)))
		var all [n]callbacks
		var errs [n]error
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { errs[i] = r.consume(&all[i], 100) })
		}
		wg.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		p, _ := r.publisher(drivers.ConfirmWindow)
		sent := numbers(0, 10*n)
		r.send(p, sent...)
		received := func() (got []string) {
			for i := range all {
				got = append(got, all[i].received()...)
			}
			slices.Sort(got)
			if client == kafkaGo { // its Reader does not commit before it gives up a partition
				got = slices.Compact(got)
			}
			return got
		}
		labtest.Eventually(t, "every message", func() bool { return len(received()) >= len(sent) })
		got := received()
		slices.Sort(sent)
		if !slices.Equal(got, sent) {
			t.Errorf("%d messages of %d sent, %d different", len(got), len(sent), len(slices.Compact(got)))
		}
		for i := range all {
			if err := all[i].Err(); err != nil {
				t.Errorf("connection %d broke: %v", i, err)
			}
		}
	})
}

// Close returns while another goroutine publishes, after the connection was cut: as at the end of an open loop.
func TestCloseWhilePublishing(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"linger": "0s", "client": "`+client+`"}`))
		for i := range 40 {
			c := r.connect(drivers.PublisherRole)
			p, _ := r.publisherOn(c, drivers.PublisherSpec{Mode: drivers.FireAndForget, Keyed: true})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for p.Publish(r.context(), drivers.Message{Body: make([]byte, 64)}) == nil {
				}
			}()
			time.Sleep(time.Duration(i%5) * time.Millisecond)
			c.Cut()
			go func() { _ = p.Close() }()
			select {
			case <-ended:
			case <-time.After(labtest.Wait):
				t.Fatal("Publish does not return after Cut and Close")
			}
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				_ = p.Close() // waits for the first
			}()
			select {
			case <-closed:
			case <-time.After(labtest.Wait):
				t.Fatal("Close does not return")
			}
		}
	})
}
