package drivers

import "context"

// Describer is implemented by sessions whose broker can be identified.
type Describer interface {
	Describe(ctx context.Context) (Description, error)
}

// Description is the identity of a broker, without secrets. It is part of the subject's fingerprint.
type Description struct {
	Product  string            `json:"product,omitempty"`
	StandIn  string            `json:"standIn,omitempty"` // product in whose place this one runs; empty: itself
	Version  string            `json:"version,omitempty"`
	Members  []string          `json:"members,omitempty"`  // nodes of the cluster, sorted
	Settings map[string]string `json:"settings,omitempty"` // effective settings that affect results
}

// Prober is implemented by sessions whose broker reports metrics.
type Prober interface {
	// Probe reads the metrics once. One agent of a task calls it from one goroutine, about once per second, while
	// publishers and consumers are active. It should not use the measured path (Env.ManagementDialer).
	//
	// Rules for the result:
	//
	//   - Metrics that the broker does not report are omitted, never 0.
	//   - A metric is of the whole broker or of its nodes, never both.
	//   - Metrics since the last probe, and rates, are omitted in the first probe.
	//   - Metrics and an error may be returned together. The error is then the reason for missing metrics.
	//   - An error that wraps ErrUnsupported names the options that are needed for metrics. Probe is then not called
	//     again.
	Probe(ctx context.Context) ([]Metric, error)
}

// Metric is one metric of a broker at one time.
type Metric struct {
	Name  MetricName
	Node  string // member of a cluster; "": the whole broker
	Value float64
}

// MetricName is the name of a metric, which also determines its unit. Tables sum metrics over nodes.
type MetricName string

// The metrics. Counts of a broker's objects include those of all users, unless the driver can distinguish the task's
// own. Queues, depth and lag are those of the task's topology. Stored bytes and rates are those of the task's queues if
// the driver can distinguish them.
const (
	MetricMemory            MetricName = "memory"             // bytes, as the broker reports it
	MetricMemoryConnections MetricName = "memory.connections" // bytes, connections and channels
	MetricMemoryQueues      MetricName = "memory.queues"      // bytes, queues
	MetricMemoryMetadata    MetricName = "memory.metadata"    // bytes, bindings and other definitions
	MetricMemoryBinary      MetricName = "memory.binary"      // bytes, message bodies
	MetricMemoryOther       MetricName = "memory.other"       // bytes
	MetricCPU               MetricName = "cpu"                // cores since the last probe
	MetricErlangProcesses   MetricName = "erlang_processes"   //
	// tasks that wait inside the broker, for a scheduler, a lock or a thread
	MetricRunQueue        MetricName = "run_queue"
	MetricFileDescriptors MetricName = "file_descriptors" //
	MetricConnections     MetricName = "connections"      //
	MetricChannels        MetricName = "channels"         //
	MetricConsumers       MetricName = "consumers"        //
	MetricQueues          MetricName = "queues"           //
	MetricBindings        MetricName = "bindings"         //
	MetricQueueDepth      MetricName = "queue_depth"      // messages, including unacknowledged ones
	MetricUnacked         MetricName = "unacked"          // messages delivered and not acknowledged
	MetricPublishRate     MetricName = "publish_rate"     // messages per second
	MetricDeliverRate     MetricName = "deliver_rate"     // messages per second
	MetricConnectionRate  MetricName = "connection_rate"  // new connections per second
	MetricDiskFree        MetricName = "disk_free"        // bytes
	MetricStored          MetricName = "stored"           // bytes on disk
	MetricLag             MetricName = "lag"              // messages that the consumers have not committed yet
	// partitions or queues with fewer in-sync replicas than configured
	MetricUnderReplicated MetricName = "under_replicated"
)

// Metrics returns all metrics, in the order of the documentation.
func Metrics() []MetricName {
	return []MetricName{MetricMemory, MetricMemoryConnections, MetricMemoryQueues, MetricMemoryMetadata,
		MetricMemoryBinary, MetricMemoryOther,
		MetricCPU, MetricErlangProcesses, MetricRunQueue, MetricFileDescriptors, MetricConnections, MetricChannels,
		MetricConsumers,
		MetricQueues, MetricBindings, MetricQueueDepth, MetricUnacked, MetricPublishRate, MetricDeliverRate,
		MetricConnectionRate,
		MetricDiskFree, MetricStored, MetricLag, MetricUnderReplicated}
}

// Binder is implemented by sessions whose broker can change bindings during the load. Its methods are safe for
// concurrent use. A message with a ChurnKey without a binding is unroutable.
type Binder interface {
	// Bind routes messages to queue with this key (≥ ChurnKey) to that queue of the subscription. It returns when the
	// broker has confirmed the binding. Teardown removes bindings that are left.
	Bind(ctx context.Context, t Topology, subscription, queue int, key uint32) error
	// Unbind removes a binding. It succeeds if the binding does not exist.
	Unbind(ctx context.Context, t Topology, subscription, queue int, key uint32) error
}

// Cleaner is implemented by sessions that can list and remove objects at a broker, for the cleanup after killed runs.
// An error that wraps ErrUnsupported names the options that are needed.
type Cleaner interface {
	// Leftovers returns the objects whose names begin with prefix, sorted. It removes nothing.
	Leftovers(ctx context.Context, prefix string) ([]Leftover, error)
	// Cleanup removes objects. Objects that no longer exist are not an error.
	Cleanup(ctx context.Context, these []Leftover) error
}

// ClientProcesses is implemented by sessions whose client runs in separate processes on this host. Their resource use
// counts as the agent's.
type ClientProcesses interface {
	// Processes returns the current process ids. The caller finds their child processes. It is safe for concurrent use.
	Processes() []int
}

// Leftover is one object at a broker.
type Leftover struct {
	Kind string // in the broker's terms: "queue", "exchange", "topic", "consumer group"
	Name string
}
