package kafka

import (
	"context"
	"errors"
	"maps"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
)

func dialer(ctx context.Context, network, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, address)
}

// slowSource responds to commits when the test permits it.
type slowSource chan struct{}

func (s slowSource) start(context.Context) error { return nil }

func (s slowSource) commit(context.Context, map[int32]int64) error {
	<-s
	return nil
}

func (s slowSource) run() {}

func (s slowSource) leave() {}

// deadSource never gets an answer to a commit.
type deadSource struct{ slowSource }

func (deadSource) commit(ctx context.Context, _ map[int32]int64) error {
	<-ctx.Done()
	return ctx.Err()
}

// A commit that the broker never answers delays the end of a consumer only for a limited time, and ends the consumer.
func TestACommitWithoutAnswerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(&session{options: options{Commit: "blocking"}})
		defer c.Cut()
		var k *consumer
		k = newConsumer(c, drivers.ConsumerSpec{Batch: 1}, func([]drivers.Delivery) { k.Ack(1) })
		k.source = deadSource{}
		k.running.Go(func() { k.deliver(0, []message{{next: 1}}) })
		time.Sleep(time.Minute)
		if k.Err() != nil {
			t.Errorf("the consumer ends while it is not stopped: %v", k.Err())
		}
		begun := time.Now()
		k.Stop()
		if took := time.Since(begun); took != 2*grace || !errors.Is(k.Err(), errNoAnswer) || c.Err() != nil {
			t.Errorf("Stop takes %v, want %v; the consumer ends with %v, the connection with %v", took, 2*grace, k.Err(),
				c.Err())
		}
	})
}

// rejectingSource gets an error for every commit.
type rejectingSource struct{ slowSource }

func (rejectingSource) commit(context.Context, map[int32]int64) error { return kerr.UnknownMemberID }

// A consumer that fails ends alone, and closes its network connections. Other consumers end with the Conn, for its
// reason.
func TestAConsumerEndsAlone(t *testing.T) {
	for name, end := range map[string]struct {
		call func(*conn)
		want error
	}{
		"cut":   {(*conn).Cut, drivers.ErrClosed},
		"close": {func(c *conn) { _ = c.Close() }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			brokers := make(chan net.Conn, 2)
			c := newConn(&session{options: options{Commit: "blocking"},
				env: drivers.Env{Dial: func(context.Context, string, string) (net.Conn, error) {
					near, far := net.Pipe()
					brokers <- far
					return near, nil
				}}})
			connect := func() (k *consumer, broker net.Conn) {
				k = newConsumer(c, drivers.ConsumerSpec{}, nil)
				if _, err := k.dial(t.Context(), "tcp", "broker:9092"); err != nil {
					t.Fatal(err)
				}
				return k, <-brokers
			}
			failing, itsBroker := connect()
			other, _ := connect()
			failing.source, failing.unanswered = rejectingSource{}, []position{{0, 1}}
			failing.Ack(1)
			_, _ = itsBroker.Read(make([]byte, 1)) // returns when the connection is closed
			if err := failing.Err(); !errors.Is(err, kerr.UnknownMemberID) || !errors.Is(err, drivers.ErrClosed) {
				t.Errorf("the consumer whose commit was rejected ends with %v", err)
			}
			if other.ended() || len(other.sockets) != 1 || c.Err() != nil {
				t.Errorf("with it end another consumer: %v, %v, and the connection: %v", other.ended(), other.Err(), c.Err())
			}
			end.call(c)
			<-other.Done()
			if err := other.Err(); !errors.Is(err, end.want) {
				t.Errorf("the other consumer ends with %v, want %v", err, end.want)
			}
			if _, err := other.dial(t.Context(), "tcp", "broker:9092"); !errors.Is(err, drivers.ErrClosed) {
				t.Errorf("a consumer that has ended dials: %v", err)
			}
		})
	}
}

func TestDeclareTellsWhatCannotWork(t *testing.T) {
	for _, c := range []struct {
		options string
		use     drivers.Use
		reason  string
	}{
		{`{"brokers": ["a:1"], "minInSyncReplicas": 2}`, drivers.Use{}, "above replicationFactor"},
		{`{"brokers": ["a:1"], "batchSize": 5}`, drivers.Use{}, "kafka-go"},
		{`{"brokers": ["a:1"], "user": "x"}`, drivers.Use{}, "password"},
		{`{"brokers": ["a:1"], "sessionTimeout": "500ms"}`, drivers.Use{}, "heartbeat"},
		{`{"brokers": ["a:1"], "acks": 0}`, drivers.Use{Mode: drivers.ConfirmEach}, "sends no confirms"},
		{`{"brokers": ["a:1"]}`, drivers.Use{QueueNode: "1"}, "counted from 0"},
		{`{"brokers": ["a:1"]}`, drivers.Use{PublisherNode: "0"}, "leader of each partition"},
		{`{"brokers": ["a:1"]}`, drivers.Use{Bindings: 2}, "no bindings"},
		{`{"brokers": ["a:1"]}`, drivers.Use{Existing: true, Consumers: 1}, "give group"},
		{`{"brokers": ["a:1"], "group": "g"}`, drivers.Use{Existing: true, Consumers: 2, Queues: 2}, "its own group"},
		{`{"brokers": ["a:1"]}`, drivers.Use{Ack: drivers.AckAutomatic}, "does not delete messages"},
		{`{"brokers": ["a:1"]}`, drivers.Use{Consumers: 1, Nack: true}, "consumers.nack"},
	} {
		d := declare(schematest.Fill(t, driver{}, c.options), c.use)
		if all := strings.Join(append(d.Rejections, d.Unsupported("kafka", c.use)...), "; "); !strings.Contains(all, c.reason) {
			t.Errorf("options %s with %+v: rejected %q, want %q", c.options, c.use, all, c.reason)
		}
	}
	if d := declare(schematest.Fill(t, driver{}, `{"brokers": ["a:1"], "acks": "all"}`),
		drivers.Use{Mode: drivers.ConfirmEach, Ack: drivers.AckEvery}); len(d.Rejections) > 0 {
		t.Errorf("plain options are rejected: %v", d.Rejections)
	}
}

// Consumers without partitions are reported: they would change the meaning of a table of threads.
func TestNotesCountIdleConsumers(t *testing.T) {
	for _, c := range []struct {
		partitions                   string
		queues, subscriptions, users int
		note                         string
	}{
		{"16", 1, 1, 25, "25 consumers of a subscription share 16 partitions: 9 are idle"},
		{"16", 1, 2, 50, "25 consumers of a subscription share 16 partitions: 9 are idle"},
		{"1", 3, 1, 4, "4 consumers of a subscription share 3 partitions: 1 are idle"},
		{"2", 3, 1, 5, ""},
		{"16", 1, 1, 16, ""},
	} {
		d := declare(schematest.Fill(t, driver{}, `{"brokers": ["a:1"], "partitions": `+c.partitions+`}`),
			drivers.Use{Queues: c.queues, Subscriptions: c.subscriptions, Consumers: c.users, Ack: drivers.AckEvery,
				Persistent: true})
		got := ""
		if len(d.Notes) > 0 {
			got = d.Notes[0]
		}
		if !strings.HasPrefix(got, c.note) || (c.note == "") != (got == "") {
			t.Errorf("%d consumers, %d subscriptions, %d queues of %s partitions: %q, want %q", c.users,
				c.subscriptions, c.queues, c.partitions, got, c.note)
		}
	}
}

// Guarantees do not exceed what acks and replicas can keep.
func TestGuaranteesAndLabels(t *testing.T) {
	for _, c := range []struct {
		options string
		kept    bool
		label   string
	}{
		{`"acks": "all", "replicationFactor": 3, "minInSyncReplicas": 2`, true,
			"RF 3 min ISR 2, idempotent, confirm: written by all in-sync replicas, synced as the brokers are set"},
		{`"acks": 1, "replicationFactor": 3`, false,
			"RF 3, confirm: written by its leader alone, synced as the brokers are set"},
		{`"acks": 1`, true, "RF 1, confirm: written by its leader alone, synced as the brokers are set"},
		{`"topic": {"flush.messages": 1}`, true, "RF 1, idempotent, confirm: synced to disk by its leader alone"},
		{`"topic": {"retention.bytes": 1000}`, false, "RF 1, idempotent, confirm: written"},
		{`"replicationFactor": 3, "topic": {"unclean.leader.election.enable": true}`, false,
			"RF 3 min ISR 1, idempotent, confirm: written"},
		{`"idempotence": false`, true, "RF 1, confirm"},
		{`"client": "kafka-go"`, true, "RF 1, kafka-go, confirm"},
	} {
		d := declare(schematest.Fill(t, driver{}, `{"brokers": ["a:1"], `+c.options+`}`),
			drivers.Use{Mode: drivers.ConfirmWindow, Persistent: true})
		if d.Guarantees.ConfirmedKept != c.kept || !strings.HasPrefix(d.Label, c.label) {
			t.Errorf("%s: kept %t, label %q", c.options, d.Guarantees.ConfirmedKept, d.Label)
		}
	}
	if d := declare(schematest.Fill(t, driver{}, `{"brokers": ["a:1"], "acks": "all"}`),
		drivers.Use{Mode: drivers.FireAndForget}); !strings.Contains(d.Label, "acks 0, not confirmed") {
		t.Errorf("fire-and-forget is labelled %q", d.Label)
	}
}

func TestLeadersOfPartitions(t *testing.T) {
	leaders := countLeaders(kadm.Metadata{
		Brokers: kadm.BrokerDetails{{NodeID: 1, Host: "a", Port: 1}, {NodeID: 2, Host: "b", Port: 2}},
		Topics:  kadm.TopicDetails{"x": {Partitions: kadm.PartitionDetails{0: {Leader: 1}, 1: {Leader: -1}, 2: {Leader: 1}}}},
	})
	if want := map[string]int{"a:1": 2, "b:2": 0}; !maps.Equal(leaders, want) {
		t.Errorf("leaders %v, want %v: one partition has none", leaders, want)
	}
}

func TestRelease(t *testing.T) {
	for level, want := range map[int16]string{7: "3.3", 19: "3.7", 25: "4.0", 27: "4.1", 30: "4.3", 31: "4.4",
		33: "4.4", 40: "after 4.4"} {
		if got := release(level); got != want {
			t.Errorf("level %d is of release %q, want %q", level, got, want)
		}
	}
}

// TestWritesInTheBackgroundAreNotWaitedFor proves that Publish does not wait for writes of the library's goroutines.
func TestWritesInTheBackgroundAreNotWaitedFor(t *testing.T) {
	var waiting *drivers.Waiting
	s := &session{env: drivers.Env{Dial: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		waiting = drivers.WaitingOf(ctx)
		return nil, net.ErrClosed
	}}}
	c, err := s.Connect(t.Context(), drivers.ConnSpec{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.(*conn).dial(drivers.WithWaiting(t.Context(), &drivers.Waiting{}), "tcp", "broker:9092"); !errors.Is(
		err, net.ErrClosed) || waiting != nil {
		t.Errorf("%v; blocked writes are counted: %v", err, waiting != nil)
	}
}
