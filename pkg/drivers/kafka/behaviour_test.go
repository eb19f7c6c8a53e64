package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/pkg/drivers"
)

// A key that leads to another partition than the documentation says would make distributions of keys mean something else.
func TestKeyChoosesPartition(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"partitions": 3, "client": "`+client+`"}`))
		_, got := r.consumer(nil, nil)
		p, _ := r.publisher(drivers.ConfirmWindow)
		sent := numbers(0, 30)
		r.send(p, sent...)
		eventually(t, "every message", func() bool { return len(got.received()) == len(sent) })
		for i, body := range got.received() {
			if key := slices.Index(sent, body); got.streams[i] != uint32(key%3) {
				t.Errorf("the message with key %d is in partition %d of 3", key, got.streams[i])
			}
		}
	})
}

// recordBatch is the head of a batch as the broker has it.
type recordBatch struct {
	records    int32
	producer   int64
	attributes int16
}

// batches reads partition 0 of the first queue.
func (r *rig) batches() (all []recordBatch) {
	r.t.Helper()
	request := kmsg.NewPtrFetchRequest()
	request.Version, request.ReplicaID, request.MaxWaitMillis, request.MaxBytes = 12, -1, 100, 1<<20
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = topicName(r.topology, 0)
	partition := kmsg.NewFetchRequestTopicPartition()
	partition.CurrentLeaderEpoch, partition.PartitionMaxBytes = -1, 1<<20
	topic.Partitions = append(topic.Partitions, partition)
	request.Topics = append(request.Topics, topic)
	response, err := r.session.admin.Broker(1).Request(r.context(), pinned{request})
	if err != nil {
		r.t.Fatal(err)
	}
	raw := response.(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches
	for len(raw) >= 61 {
		all = append(all, recordBatch{
			attributes: int16(binary.BigEndian.Uint16(raw[21:])), producer: int64(binary.BigEndian.Uint64(raw[43:])),
			records: int32(binary.BigEndian.Uint32(raw[57:])),
		})
		raw = raw[12+binary.BigEndian.Uint32(raw[8:]):]
	}
	return all
}

// pinned is a request of a version that knows topics by name.
type pinned struct{ *kmsg.FetchRequest }

func (pinned) MaxVersion() int16 { return 12 }

// What the engine sends between two flushes of confirm-batch has to be one batch: that is what the mode measures.
func TestConfirmBatchIsOneBatch(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"client": "`+client+`"}`))
		p, got := r.publisher(drivers.ConfirmBatch)
		const rounds, each = 20, 25
		for i := range rounds {
			r.send(p, numbers(i*each, each)...)
			eventually(t, "the batch's confirms", func() bool { return len(got.settled()) == (i+1)*each })
		}
		all := r.batches()
		// franz-go learns of a topic while its first batch waits, which it may then divide.
		if divided := len(all) - rounds; divided < 0 || client == kafkaGo && divided > 0 || divided > each {
			t.Errorf("%d batches became %d", rounds, len(all))
		}
		for i, b := range all[len(all)-rounds+1:] {
			if b.records != each {
				t.Errorf("batch %d has %d of %d messages", i+1, b.records, each)
			}
		}
	})
}

// Limits, compression and numbering are only measured if they are in effect.
func TestBatchesAreAsOptionsSay(t *testing.T) {
	for _, c := range []struct {
		name, options string
		fits          func(recordBatch) bool
	}{
		{"size", `{"batchSize": 7}`, func(b recordBatch) bool { return b.records <= 7 }},
		{"bytes", `{"batchBytes": 1024}`, func(b recordBatch) bool { return b.records <= 40 }},
		{"bytes franz", `{"batchBytes": 1024, "client": "franz"}`, func(b recordBatch) bool { return b.records <= 60 }},
		{"linger", `{"linger": "5s"}`, func(b recordBatch) bool { return b.records == 100 }},
		{"linger franz", `{"linger": "5s", "client": "franz"}`, func(b recordBatch) bool { return b.records > 1 }},
		{"gzip", `{"compression": "gzip", "linger": "5s"}`, func(b recordBatch) bool { return b.attributes&7 == 1 }},
		{"snappy", `{"compression": "snappy", "linger": "5s"}`, func(b recordBatch) bool { return b.attributes&7 == 2 }},
		{"lz4 franz", `{"compression": "lz4", "linger": "5s", "client": "franz"}`, func(b recordBatch) bool { return b.attributes&7 == 3 }},
		{"zstd franz", `{"compression": "zstd", "linger": "5s", "client": "franz"}`, func(b recordBatch) bool { return b.attributes&7 == 4 }},
		{"idempotent", `{"idempotence": true, "client": "franz"}`, func(b recordBatch) bool { return b.producer >= 0 }},
		{"not idempotent", `{"client": "franz"}`, func(b recordBatch) bool { return b.producer < 0 && b.attributes&7 == 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := setUp(t, at(t, single, c.options))
			_, got := r.consumer(nil, nil)
			p, heard := r.publisher(drivers.ConfirmWindow)
			r.send(p, numbers(0, 100)...) // which flushes, too
			eventually(t, "confirms", func() bool { return len(heard.settled()) == 100 })
			all := r.batches()
			if len(all) == 0 {
				t.Fatal("there is nothing in the log")
			}
			for _, b := range all {
				if !c.fits(b) {
					t.Errorf("a batch is %+v", b)
				}
			}
			eventually(t, "messages", func() bool { return len(got.received()) == 100 })
		})
	}
}

// A consumer that joins takes partitions from another: what that one has received must not come again, and nothing be left out.
func TestRebalanceLosesAndRepeatsNothing(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"partitions": 4, "client": "`+client+`"}`))
		seldom := func(s *drivers.ConsumerSpec) { s.Ack, s.AckInterval, s.Prefetch = drivers.AckInterval, time.Hour, 0 }
		first, one := r.consumer(seldom, nil)
		p, _ := r.publisher(drivers.ConfirmWindow)
		sent := numbers(0, 400)
		r.send(p, sent[:100]...)
		eventually(t, "the first messages", func() bool { return len(one.received()) > 0 })
		_, two := r.consumer(seldom, nil)
		r.send(p, sent[100:200]...)
		eventually(t, "a message for the second consumer", func() bool { return len(two.received()) > 0 })
		r.send(p, sent[200:300]...)
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		r.send(p, sent[300:]...)
		received := func() []string { return append(one.received(), two.received()...) }
		eventually(t, "every message", func() bool { return len(received()) >= len(sent) })
		time.Sleep(100 * time.Millisecond)
		got := received()
		slices.Sort(got)
		slices.Sort(sent)
		if !slices.Equal(got, sent) {
			t.Errorf("%d messages of %d sent, %d different", len(got), len(sent), len(slices.Compact(got)))
		}
		if one.broken != nil || two.broken != nil {
			t.Errorf("links broke: %v, %v", one.broken, two.broken)
		}
		if r.count(drivers.EventRebalanced) == 0 {
			t.Error("no event tells that partitions were divided anew")
		}
	})
}

// A commit that is not to block must leave receiving alone, and one that is to must not.
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
			select {
			case <-returned:
				if commit == "blocking" {
					t.Error("receiving goes on before the commit is answered")
				}
			case <-time.After(100 * time.Millisecond):
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

// Figures that do not follow what happens would be believed.
func TestProbeFollows(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"partitions": 2, "client": "`+client+`"}`))
		figure := func(name drivers.FigureName) float64 {
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
				t.Fatalf("no figure %s in %v", name, all)
			}
			return sum
		}
		p, heard := r.publisher(drivers.ConfirmWindow)
		before := figure(drivers.FigureStored)
		r.send(p, numbers(0, 50)...)
		eventually(t, "confirms", func() bool { return len(heard.settled()) == 50 })
		if lag := figure(drivers.FigureLag); lag != 50 {
			t.Errorf("a lag of %v with 50 messages and no consumer", lag)
		}
		if grown := figure(drivers.FigureStored) - before; grown < 50*10 {
			t.Errorf("50 messages take %v bytes", grown)
		}
		_, got := r.consumer(func(s *drivers.ConsumerSpec) { s.Ack, s.AckInterval = drivers.AckInterval, 50*time.Millisecond }, nil)
		eventually(t, "messages", func() bool { return len(got.received()) == 50 })
		eventually(t, "the lag being committed away", func() bool { return figure(drivers.FigureLag) == 0 })
	})
}

// A replication factor that cannot be had is known at once, and what to do.
func TestImpossibleReplicationFactor(t *testing.T) {
	r := open(t, at(t, single, `{"replicationFactor": 3}`))
	began := time.Now()
	err := r.session.Setup(r.context(), r.topology)
	if err == nil || !strings.Contains(err.Error(), "INVALID_REPLICATION_FACTOR") || !strings.Contains(err.Error(), "at most the number of brokers") {
		t.Errorf("three replicas on one broker: %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	r.topology.QueueNode = "0"
	if err := r.session.Setup(r.context(), r.topology); err == nil || !strings.Contains(err.Error(), "at most the number of brokers") {
		t.Errorf("three replicas on one broker, placed: %v", err)
	}
}

// Whoever signs in has to get through by each library and mechanism, and whoever does not has to be told what to do, at once and without the
// password.
func TestCredentials(t *testing.T) {
	guarded := "LOCKSTEP_KAFKA_GUARDED_BROKERS"
	both(t, func(t *testing.T, client string) {
		for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256"} {
			r := setUp(t, at(t, guarded, `{"user": "lab", "password": "lab-secret", "mechanism": "`+mechanism+`", "client": "`+client+`"}`))
			_, got := r.consumer(nil, nil)
			p, _ := r.publisher(drivers.ConfirmWindow)
			r.send(p, "hello")
			eventually(t, "a message by "+mechanism, func() bool { return len(got.received()) == 1 })
		}
	})
	for _, c := range []struct{ where, options, hint string }{
		{guarded, `{"user": "lab", "password": "wr0ng-w0rd"}`, "give user, password and mechanism"},
		{guarded, `{"user": "lab", "password": "wr0ng-w0rd", "mechanism": "SCRAM-SHA-256"}`, "give user, password and mechanism"},
		{guarded, `{"user": "lab", "password": "wr0ng-w0rd", "mechanism": "SCRAM-SHA-512"}`, "give user, password and mechanism"},
		{guarded, `{}`, "SASL"},
		{single, `{"user": "lab", "password": "wr0ng-w0rd"}`, "leave user and password out"},
		{single, `{"tls": {"enable": true}}`, "TLS"},
	} {
		began := time.Now()
		_, err := driver{}.Open(t.Context(), at(t, c.where, c.options), drivers.Env{Dial: dialer})
		if err == nil || strings.Contains(err.Error(), "wr0ng") || !strings.Contains(err.Error(), c.hint) || !strings.Contains(err.Error(), "127.0.0.1:") {
			t.Errorf("%s at %s: %v; want a hint: %s", c.options, c.where, err, c.hint)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s took %s", c.options, took)
		}
	}
}

// Settings in the record are those in effect.
func TestDescribe(t *testing.T) {
	r := setUp(t, at(t, cluster, `{"replicationFactor": 3, "minInSyncReplicas": 2, "topic": {"flush.messages": 1}}`))
	d, err := r.session.Describe(r.context())
	if err != nil {
		t.Fatal(err)
	}
	if d.Product != "Apache Kafka" || d.Version == "" || len(d.Members) != 3 {
		t.Errorf("three brokers say of themselves: %+v", d)
	}
	for name, want := range map[string]string{"min.insync.replicas": "2", "flush.messages": "1", "unclean.leader.election.enable": "false"} {
		if d.Settings[name] != want {
			t.Errorf("%s is %q, want %q", name, d.Settings[name], want)
		}
	}
}

// A cell about a node that dies is only about that if the leaders are where it says.
func TestPlacement(t *testing.T) {
	r := open(t, at(t, cluster, `{"replicationFactor": 3, "minInSyncReplicas": 2, "partitions": 4}`))
	for i, broker := range r.session.options.Brokers {
		r.topology.QueueNode = drivers.Node(fmt.Sprint(i))
		if err := r.session.Setup(r.context(), r.topology); err != nil {
			t.Fatal(err)
		}
		known, err := r.session.metadata(r.context(), r.session.admin, topicNames(r.topology))
		if err != nil {
			t.Fatal(err)
		}
		leader := ""
		for _, p := range known.Topics[0].Partitions {
			for _, b := range known.Brokers {
				if b.NodeID == p.Leader {
					leader = address(b)
				}
			}
			if leader != broker || len(p.Replicas) != 3 {
				t.Errorf("partition %d on node %d is led by %s, not %s, with replicas %v", p.Partition, i, leader, broker, p.Replicas)
			}
		}
	}
}

// Messages that a broker refuses are rejected, one by one, and the link holds; the figures say what is wrong.
func TestTooFewInSyncReplicasReject(t *testing.T) {
	r := open(t, at(t, cluster, `{"replicationFactor": 3, "minInSyncReplicas": 3}`))
	r.topology.QueueNode = "0" // the leader stays
	if err := r.session.Setup(r.context(), r.topology); err != nil {
		t.Fatal(err)
	}
	disturb(t, "kill", "kafka3-3")
	t.Cleanup(func() { disturb(t, "start", "kafka3-3") })
	eventually(t, "the replica being missed", func() bool {
		figures, err := r.session.Probe(r.context())
		return err == nil && slices.Contains(figures, drivers.Figure{Name: drivers.FigureUnderReplicated, Value: 1})
	})
	for _, client := range []string{kafkaGo, franz} {
		r.session.options.Client = client
		p, heard := r.publisher(drivers.ConfirmWindow)
		r.send(p, numbers(0, 20)...)
		eventually(t, "confirms", func() bool { return len(heard.settled()) == 20 })
		for i, err := range heard.settled() {
			if !errors.Is(err, drivers.ErrRejected) {
				t.Errorf("%s: confirm %d with two of three replicas: %v", client, i, err)
			}
		}
		if heard.broken != nil {
			t.Errorf("%s: the link broke: %v", client, heard.broken)
		}
	}
}

// A body that fits into no batch is refused before it is accepted.
func TestTooLargeBody(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"batchBytes": 4096, "client": "`+client+`"}`))
		p, heard := r.publisher(drivers.ConfirmWindow)
		if err := p.Publish(t.Context(), drivers.Message{Body: bytes.Repeat([]byte("x"), 5000)}); err == nil || !strings.Contains(err.Error(), "batchBytes") {
			t.Errorf("a body above batchBytes: %v", err)
		}
		r.send(p, "a small one")
		eventually(t, "its confirm", func() bool { return len(heard.settled()) == 1 })
		if err := heard.settled()[0]; err != nil {
			t.Error(err)
		}
	})
}
