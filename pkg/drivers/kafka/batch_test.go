package kafka

import (
	"encoding/binary"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// recordBatch is the header of a batch as the broker stores it.
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
	response, err := r.session.library.Broker(1).Request(r.context(), pinned{request})
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

// pinned is a request in a version that uses names of topics.
type pinned struct{ *kmsg.FetchRequest }

func (pinned) MaxVersion() int16 { return 12 }

// All messages between two flushes in confirm-batch are one batch, because the mode measures that. kafka-go also sends
// a batch when linger has passed.
func TestConfirmBatchIsOneBatch(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"linger": "5s", "client": "`+client+`"}`))
		p, got := r.publisher(drivers.ConfirmBatch)
		const rounds, each = 20, 25
		for i := range rounds {
			r.send(p, numbers(i*each, each)...)
			labtest.Eventually(t, "the batch's confirms", func() bool { return len(got.settled()) == (i+1)*each })
		}
		all := r.batches()
		if len(all) != rounds {
			t.Errorf("%d batches became %d", rounds, len(all))
		}
		for i, b := range all {
			if b.records != each {
				t.Errorf("batch %d has %d of %d messages", i, b.records, each)
			}
		}
	})
}

// Limits, compression and numbering of batches are in effect.
func TestBatchesAreAsOptionsSay(t *testing.T) {
	for _, c := range []struct {
		name, options string
		fits          func(recordBatch) bool
	}{
		{"size kafka-go", `{"batchSize": 7, "client": "kafka-go"}`, func(b recordBatch) bool { return b.records <= 7 }},
		{"bytes kafka-go", `{"batchBytes": 1024, "client": "kafka-go"}`,
			func(b recordBatch) bool { return b.records <= 40 }},
		{"bytes", `{"batchBytes": 1024}`, func(b recordBatch) bool { return b.records <= 60 }},
		{"linger kafka-go", `{"linger": "5s", "client": "kafka-go"}`, func(b recordBatch) bool { return b.records == 100 }},
		{"linger", `{"linger": "5s"}`, func(b recordBatch) bool { return b.records == 100 }},
		{"gzip kafka-go", `{"compression": "gzip", "client": "kafka-go"}`,
			func(b recordBatch) bool { return b.attributes&7 == 1 }},
		{"snappy kafka-go", `{"compression": "snappy", "client": "kafka-go"}`,
			func(b recordBatch) bool { return b.attributes&7 == 2 }},
		{"lz4", `{"compression": "lz4", "linger": "5s"}`,
			func(b recordBatch) bool { return b.attributes&7 == 3 }},
		{"zstd", `{"compression": "zstd", "linger": "5s"}`,
			func(b recordBatch) bool { return b.attributes&7 == 4 }},
		{"idempotent", `{}`, func(b recordBatch) bool { return b.producer >= 0 }},
		{"not idempotent", `{"idempotence": false}`, func(b recordBatch) bool {
			return b.producer < 0 &&
				b.attributes&7 == 0
		}},
		{"acks of the leader", `{"acks": 1}`, func(b recordBatch) bool { return b.producer < 0 }},
		{"idempotent kafka-go", `{"client": "kafka-go"}`, func(b recordBatch) bool { return b.producer < 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := setUp(t, at(t, single, c.options))
			got := r.consumer(100, false)
			p, callbacks := r.publisher(drivers.ConfirmWindow)
			r.send(p, numbers(0, 100)...) // also flushes
			labtest.Eventually(t, "confirms", func() bool { return len(callbacks.settled()) == 100 })
			all := r.batches()
			if len(all) == 0 {
				t.Fatal("there is nothing in the log")
			}
			for _, b := range all {
				if !c.fits(b) {
					t.Errorf("a batch is %+v", b)
				}
			}
			labtest.Eventually(t, "messages", func() bool { return len(got.received()) == 100 })
		})
	}
}

// Without linger, messages that are published during a request are one batch, also if the engine flushes often: it does
// so at the maximum in flight.
func TestFlushWithoutLingerKeepsBatchesWhole(t *testing.T) {
	r := setUp(t, at(t, single, `{"linger": "0s"}`))
	p, callbacks := r.publisher(drivers.ConfirmWindow)
	const n = 2000
	for i := range n {
		r.send(p, numbers(i, 1)...) // also flushes
	}
	labtest.Eventually(t, "confirms", func() bool { return len(callbacks.settled()) == n })
	if got := len(r.batches()); got == 0 || got > n/4 {
		t.Errorf("%d messages, each followed by a flush, became %d batches", n, got)
	}
}

// Without confirms, a long linger does not limit the rate to the messages that may wait: no call of Publish waits for
// it.
func TestLingerWithoutConfirms(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"linger": "60s", "client": "`+client+`"}`))
		got := r.consumer(0, false)
		p, _ := r.publisher(drivers.FireAndForget)
		const n = maxWaiting + 5000
		for i := range n {
			if err := p.Publish(r.context(), drivers.Message{Token: uint64(i), Body: make([]byte, 64)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		labtest.Eventually(t, "messages", func() bool { return len(got.received()) == n })
	})
}

// Without keys, franz-go keeps to a partition while a batch grows, and kafka-go changes it with each message.
func TestPartitionsWithoutKeys(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		r := setUp(t, at(t, single, `{"partitions": 4, "client": "`+client+`"}`))
		got := r.consumer(100, false)
		p, _ := r.publisherOn(r.connect(drivers.PublisherRole),
			drivers.PublisherSpec{Mode: drivers.ConfirmWindow, MaxInFlight: 1000})
		r.send(p, numbers(0, 100)...)
		labtest.Eventually(t, "messages", func() bool { return len(got.received()) == 100 })
		partitions := map[uint32]int{}
		for _, s := range got.streams {
			partitions[s]++
		}
		if want := map[string]int{franz: 1, kafkaGo: 4}[client]; len(partitions) != want {
			t.Errorf("100 messages without keys went to partitions %v, want %d of 4", partitions, want)
		}
	})
}
