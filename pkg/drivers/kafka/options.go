package kafka

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

const (
	kafkaGo = "kafka-go"
	franz   = "franz-go"
)

// compression is a compression codec in both libraries.
type compression struct {
	goes  kafka.Compression
	franz kgo.CompressionCodec
}

var compressions = map[string]compression{
	"none":   {0, kgo.NoCompression()},
	"gzip":   {kafka.Gzip, kgo.GzipCompression()},
	"snappy": {kafka.Snappy, kgo.SnappyCompression()},
	"lz4":    {kafka.Lz4, kgo.Lz4Compression()},
	"zstd":   {kafka.Zstd, kgo.ZstdCompression()},
}

// options are those of schema.cue, one field each.
type options struct {
	Brokers           []string       `json:"brokers"`
	Client            string         `json:"client"`
	Acks              acks           `json:"acks"`
	ReplicationFactor int            `json:"replicationFactor"`
	MinInSyncReplicas int            `json:"minInSyncReplicas"`
	Partitions        int            `json:"partitions"`
	Topic             map[string]any `json:"topic"`
	Group             string         `json:"group,omitempty"` // for topologies with Existing
	BatchSize         int            `json:"batchSize"`
	BatchBytes        int            `json:"batchBytes"`
	Linger            kit.Duration   `json:"linger"`
	Compression       string         `json:"compression"`
	Idempotence       bool           `json:"idempotence"`
	InFlight          int            `json:"inFlight"`
	Commit            string         `json:"commit"`
	FetchBytes        int            `json:"fetchBytes"`
	FetchWait         kit.Duration   `json:"fetchWait"`
	ConfirmTimeout    kit.Duration   `json:"confirmTimeout"`
	SessionTimeout    kit.Duration   `json:"sessionTimeout"`
	Heartbeat         kit.Duration   `json:"heartbeat"`
	User              string         `json:"user"`
	Password          string         `json:"password"`
	Mechanism         string         `json:"mechanism"`
	Resilience        string         `json:"resilience"`
	TLS               *kit.TLS       `json:"tls"`
}

// acks is the number of replicas that must have a message, or acksAll.
type acks int16

const acksAll acks = -1

func (a *acks) UnmarshalJSON(text []byte) error {
	if string(text) == `"all"` {
		*a = acksAll
		return nil
	}
	return json.Unmarshal(text, (*int16)(a))
}

func (a acks) String() string {
	if a == acksAll {
		return "all"
	}
	return strconv.Itoa(int(a))
}

// Check validates what the schema cannot.
func (o *options) Check() error {
	switch {
	case o.MinInSyncReplicas > o.ReplicationFactor:
		return fmt.Errorf("minInSyncReplicas %d is above replicationFactor %d: no message could ever be taken",
			o.MinInSyncReplicas, o.ReplicationFactor)
	case o.SessionTimeout < 2*o.Heartbeat:
		return fmt.Errorf("sessionTimeout %s is below two heartbeats of %s", o.SessionTimeout, o.Heartbeat)
	case o.Linger.Std() > time.Minute:
		return errors.New("linger must be a minute or less")
	case (o.User == "") != (o.Password == ""):
		return errors.New("user and password go together")
	case o.Client == kafkaGo && o.FetchWait.Std() > 3*time.Second:
		return fmt.Errorf("fetchWait %s: at most 3s with kafka-go, which does not end a fetch before", o.FetchWait)
	case o.Client == franz && o.BatchSize > 0:
		return errors.New(`batchSize is for client: "kafka-go"; with "franz-go" a batch is bounded by batchBytes`)
	}
	return o.TLS.Check(true)
}

// persists reports whether the libraries connect again and repeat requests.
func (o *options) persists() bool { return o.Resilience != "none" }

// idempotent reports whether batches are numbered. Brokers require acks "all" for that.
func (o *options) idempotent(acks acks) bool {
	return o.Idempotence && o.Client == franz && acks == acksAll
}

// acksFor returns the acks of a publisher. Modes without confirms use 0.
func (o *options) acksFor(confirmed bool) acks {
	if !confirmed {
		return 0
	}
	return o.Acks
}

// synced reports whether the options' topic settings sync each message to disk before it is confirmed.
func (o *options) synced() bool { return fmt.Sprint(o.Topic["flush.messages"]) == "1" }
