package kafka

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/pkg/drivers/kit"
)

// The client libraries.
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

type options struct {
	Brokers           []string        `json:"brokers"`
	Client            string          `json:"client"`
	Acks              json.RawMessage `json:"acks"`
	ReplicationFactor int             `json:"replicationFactor"`
	MinInSyncReplicas int             `json:"minInSyncReplicas"`
	Partitions        int             `json:"partitions"`
	Topic             map[string]any  `json:"topic"`
	BatchSize         int             `json:"batchSize"`
	BatchBytes        int             `json:"batchBytes"`
	Linger            duration        `json:"linger"`
	Compression       string          `json:"compression"`
	Idempotence       bool            `json:"idempotence"`
	InFlight          int             `json:"inFlight"`
	Commit            string          `json:"commit"`
	FetchBytes        int             `json:"fetchBytes"`
	FetchWait         duration        `json:"fetchWait"`
	ConfirmTimeout    duration        `json:"confirmTimeout"`
	SessionTimeout    duration        `json:"sessionTimeout"`
	Heartbeat         duration        `json:"heartbeat"`
	User              string          `json:"user"`
	Password          string          `json:"password"`
	Mechanism         string          `json:"mechanism"`
	Resilience        string          `json:"resilience"`
	TLS               *kit.TLS        `json:"tls"`

	acks int16 // -1: all
}

// duration is a time.Duration that is written like "500ms".
type duration time.Duration

// UnmarshalJSON parses a string with a unit.
func (d *duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	parsed, err := time.ParseDuration(text)
	if err != nil || parsed < 0 {
		return fmt.Errorf("read duration %q: write it like \"500ms\"", text)
	}
	*d = duration(parsed)
	return nil
}

func (d duration) std() time.Duration { return time.Duration(d) }

const acksAll = -1

// parseOptions parses options and checks them. An unknown field is an error. It sets the schema's defaults for callers
// that bypass the schema.
func parseOptions(raw json.RawMessage) (options, error) {
	o := options{
		Client: franz, ReplicationFactor: 1, MinInSyncReplicas: 1, Partitions: 1, BatchBytes: 1_000_000,
		Linger: duration(5 * time.Millisecond), Compression: "none", Idempotence: true, InFlight: 5,
		Commit: "background", FetchBytes: 1 << 20, FetchWait: duration(500 * time.Millisecond),
		ConfirmTimeout: duration(30 * time.Second),
		SessionTimeout: duration(10 * time.Second), Heartbeat: duration(500 * time.Millisecond), Mechanism: "PLAIN", Resilience: "vendor",
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return o, fmt.Errorf("read kafka options: %w", err)
	}
	switch text := string(bytes.Trim(o.Acks, `"`)); text {
	case "", "all":
		o.acks = acksAll
	case "0", "1":
		o.acks = int16(text[0] - '0')
	default:
		return o, fmt.Errorf(`read kafka options: acks %s: "all", 1 or 0`, o.Acks)
	}
	if fault := o.fault(); fault != "" {
		return o, fmt.Errorf("read kafka options: %s", fault)
	}
	return o, nil
}

// fault returns the reason why the options are invalid, or "". It checks what the schema cannot, such as combinations,
// and repeats important checks for callers that bypass the schema.
func (o *options) fault() string {
	if len(o.Brokers) == 0 {
		return `give brokers: ["host:9092"]`
	}
	for i, b := range o.Brokers {
		if host, port, err := net.SplitHostPort(b); err != nil || host == "" || port == "" {
			return fmt.Sprintf(`number %d of brokers is not of the form "host:port"`, i)
		}
	}
	switch {
	case o.Client != kafkaGo && o.Client != franz:
		return fmt.Sprintf("client %q: %q or %q", o.Client, kafkaGo, franz)
	case o.ReplicationFactor < 1 || o.MinInSyncReplicas < 1 || o.Partitions < 1 || o.InFlight < 1 || o.BatchSize < 0 ||
		o.BatchBytes < 1024:
		return "replicationFactor, minInSyncReplicas, partitions and inFlight must be 1 or more, batchSize 0 or more, batchBytes 1024 or more"
	case o.MinInSyncReplicas > o.ReplicationFactor:
		return fmt.Sprintf("minInSyncReplicas %d is above replicationFactor %d: no message could ever be taken",
			o.MinInSyncReplicas, o.ReplicationFactor)
	case o.Commit != "blocking" && o.Commit != "background":
		return fmt.Sprintf(`commit %q: "blocking" or "background"`, o.Commit)
	case o.ConfirmTimeout.std() < time.Second || o.Heartbeat <= 0 || o.FetchWait <= 0:
		return "confirmTimeout must be 1s or more, heartbeat and fetchWait more than 0s"
	case o.SessionTimeout < 2*o.Heartbeat:
		return fmt.Sprintf("sessionTimeout %s is below two heartbeats of %s", o.SessionTimeout.std(), o.Heartbeat.std())
	case o.Linger.std() > time.Minute:
		return "linger must be a minute or less"
	case (o.User == "") != (o.Password == ""):
		return "user and password go together"
	}
	if err := o.TLS.Check(true); err != nil {
		return err.Error()
	}
	return o.clientFault()
}

func (o *options) clientFault() string {
	if _, known := compressions[o.Compression]; !known {
		return fmt.Sprintf(`compression %q: "none", "gzip", "snappy", "lz4" or "zstd"`, o.Compression)
	}
	if _, known := mechanisms[o.Mechanism]; !known {
		return fmt.Sprintf(`mechanism %q: "PLAIN", "SCRAM-SHA-256" or "SCRAM-SHA-512"`, o.Mechanism)
	}
	switch {
	case o.BatchSize > 10_000:
		return fmt.Sprintf("batchSize %d: at most 10000", o.BatchSize)
	case o.Client == kafkaGo && o.FetchWait.std() > 3*time.Second:
		return fmt.Sprintf("fetchWait %s: at most 3s with kafka-go, which does not end a fetch before", o.FetchWait.std())
	case o.Client == franz && o.BatchSize > 0:
		return `batchSize is for client: "kafka-go"; with "franz-go" a batch is bounded by batchBytes`
	}
	return ""
}

// persists reports whether the libraries connect again and repeat requests.
func (o *options) persists() bool { return o.Resilience != "none" }

// idempotent reports whether batches are numbered. Brokers require acks "all" for that.
func (o *options) idempotent(acks int16) bool {
	return o.Idempotence && o.Client == franz && acks == acksAll
}

// acksFor returns the acks of a publisher. Modes without confirms use 0.
func (o *options) acksFor(confirmed bool) int16 {
	if !confirmed {
		return 0
	}
	return o.acks
}

// synced reports whether the options' topic settings sync each message to disk before it is confirmed.
func (o *options) synced() bool { return fmt.Sprint(o.Topic["flush.messages"]) == "1" }
