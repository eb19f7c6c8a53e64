package kafka

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/schematest"
	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/labtest"
	"lockstep/pkg/drivers/internal/legacy"
)

// A key leads to the documented partition. Otherwise distributions of keys would have another meaning.
func TestKeyChoosesPartition(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"partitions": 3, "client": "`+client+`"}`))
		_, got := r.consumer(nil, nil)
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

// A consumer that connects takes over partitions. Messages that the other consumer has received are not repeated, except
// by kafka-go, and none is left out.
func TestRebalanceLosesAndRepeatsNothing(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"partitions": 4, "client": "`+client+`"}`))
		seldom := func(s *legacy.ConsumerSpec) { s.Ack, s.AckInterval, s.Prefetch = drivers.AckInterval, time.Hour, 0 }
		first, one := r.consumer(seldom, nil)
		p, _ := r.publisher(drivers.ConfirmWindow)
		sent := numbers(0, 400)
		r.send(p, sent[:100]...)
		labtest.Eventually(t, "the first messages", func() bool { return len(one.received()) > 0 })
		_, two := r.consumer(seldom, nil)
		r.send(p, sent[100:200]...)
		labtest.Eventually(t, "a message for the second consumer", func() bool { return len(two.received()) > 0 })
		r.send(p, sent[200:300]...)
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
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
		if one.broken != nil || two.broken != nil {
			t.Errorf("links broke: %v, %v", one.broken, two.broken)
		}
		if client == franz && r.count(drivers.EventRebalanced) == 0 {
			t.Error("no event tells that partitions were divided anew")
		}
	})
}

// A commit blocks receiving only if the options require it.
func TestCommitBlocksAsOptionsSay(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		for _, commit := range []string{"blocking", "background"} {
			r := setUp(t, at(t, single, `{"client": "`+client+`", "commit": "`+commit+`"}`))
			c := &consumer{session: r.session, positions: map[int32]int64{}, accepted: 1}
			c.link, _ = r.session.link()
			answer := make(chan struct{})
			c.source, c.changed = slowSource(answer), newCond(c)
			returned := make(chan struct{})
			c.mu.Lock()
			go func() {
				c.commit(commit == "blocking")
				close(returned)
			}()
			wait := labtest.Wait
			if commit == "blocking" {
				wait = 100 * time.Millisecond
			}
			select {
			case <-returned:
				if commit == "blocking" {
					t.Error("receiving goes on before the commit is answered")
				}
			case <-time.After(wait):
				if commit == "background" {
					t.Error("receiving waits for the commit's answer")
				}
			}
			close(answer)
			<-returned
			c.mu.Unlock()
			c.link.close()
		}
	})
}

// If the log no longer has the next offset of a group, the consumer continues with the rest: that is loss, not the end
// of receiving.
func TestConsumerGoesOnWhereTheLogBegins(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"client": "`+client+`"}`))
		p, heard := r.publisher(drivers.ConfirmWindow)
		sent := numbers(0, 20)
		r.send(p, sent...)
		labtest.Eventually(t, "confirms", func() bool { return len(heard.settled()) == len(sent) })
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
		_, got := r.consumer(nil, nil)
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
		p, heard := r.publisher(drivers.ConfirmWindow)
		before := metric(drivers.MetricStored)
		if free := metric(drivers.MetricDiskFree); free < 1<<20 {
			t.Errorf("%v bytes are free of the broker's disk", free)
		}
		if members := metric(drivers.MetricConsumers); members != 0 {
			t.Errorf("%v consumers before there is one", members)
		}
		r.send(p, numbers(0, 50)...)
		labtest.Eventually(t, "confirms", func() bool { return len(heard.settled()) == 50 })
		if rate := metric(drivers.MetricPublishRate); rate <= 0 {
			t.Errorf("50 messages more are a rate of %v", rate)
		}
		if lag := metric(drivers.MetricLag); lag != 50 {
			t.Errorf("a lag of %v with 50 messages and no consumer", lag)
		}
		if grown := metric(drivers.MetricStored) - before; grown < 50*10 {
			t.Errorf("50 messages take %v bytes", grown)
		}
		_, got := r.consumer(func(s *legacy.ConsumerSpec) {
			s.Ack, s.AckInterval = drivers.AckInterval,
				50*time.Millisecond
		}, nil)
		labtest.Eventually(t, "messages", func() bool { return len(got.received()) == 50 })
		if members := metric(drivers.MetricConsumers); members != 1 {
			t.Errorf("%v consumers, want one", members)
		}
		labtest.Eventually(t, "the lag being committed away", func() bool { return metric(drivers.MetricLag) == 0 })
	})
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
			_, got := r.consumer(nil, nil)
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
		p, heard := r.publisher(drivers.ConfirmWindow)
		if err := p.Publish(t.Context(), drivers.Message{Body: bytes.Repeat([]byte("x"), 5000)}); err == nil ||
			!strings.Contains(err.Error(), "batchBytes") {
			t.Errorf("a body above batchBytes: %v", err)
		}
		r.send(p, "a small one")
		labtest.Eventually(t, "its confirm", func() bool { return len(heard.settled()) == 1 })
		if err := heard.settled()[0]; err != nil {
			t.Error(err)
		}
	})
}

// Messages of fire-and-forget have no response, so the order across several connections cannot be guaranteed.
func TestOrderWithoutConfirms(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"client": "`+client+`"}`))
		_, got := r.consumer(func(s *legacy.ConsumerSpec) {
			s.Ack, s.AckInterval, s.Prefetch = drivers.AckInterval,
				time.Second, 0
		}, nil)
		p, _ := r.publisher(drivers.FireAndForget)
		sent := numbers(0, 30_000)
		r.send(p, sent...)
		labtest.Eventually(t, "every message", func() bool { return len(got.received()) == len(sent) })
		for i, body := range got.received() {
			if body != sent[i] {
				t.Fatalf("message %d is %q, not %q", i, body, sent[i])
			}
		}
	})
}

// Threads of one cell connect concurrently, and each causes a rebalance for the others.
func TestManyConsumersJoinAtOnce(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		const n = 8
		r := setUp(t, at(t, single, fmt.Sprintf(`{"client": %q, "partitions": %d}`, client, n)))
		var all [n]heard
		var connected [n]legacy.Consumer
		var errs [n]error
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				connected[i], errs[i] = r.session.Consumer(r.context(),
					legacy.ConsumerSpec{Topology: r.topology, Prefetch: 100, Batch: 10,
						Ack: drivers.AckEach, OnClosed: all[i].closed}, all[i].take)
			})
		}
		wg.Wait()
		for i, c := range connected {
			if errs[i] != nil {
				t.Errorf("consumer %d: %v", i, errs[i])
				continue
			}
			defer func() { _ = c.Close() }()
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
			if all[i].broken != nil {
				t.Errorf("link %d broke: %v", i, all[i].broken)
			}
		}
	})
}

// Close returns while another goroutine publishes, as at the end of an open loop.
func TestCloseWhilePublishing(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"linger": "0s", "client": "`+client+`"}`))
		for i := range 40 {
			p, _ := r.publisher(drivers.FireAndForget)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for p.Publish(r.context(), drivers.Message{Body: make([]byte, 64)}) == nil {
				}
			}()
			time.Sleep(time.Duration(i%5) * time.Millisecond)
			go func() { _ = p.Close() }()
			select {
			case <-ended:
			case <-time.After(labtest.Wait):
				t.Fatal("Publish does not return after Close")
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
