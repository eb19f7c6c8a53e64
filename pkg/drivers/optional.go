package drivers

import "context"

// Describer is implemented by sessions whose broker can say what it is.
type Describer interface {
	Describe(ctx context.Context) (Description, error)
}

// Description is what a broker says of itself, without secrets. It goes into the subject's fingerprint.
type Description struct {
	Product  string            `json:"product,omitempty"`
	Version  string            `json:"version,omitempty"`
	Members  []string          `json:"members,omitempty"`  // nodes of the cluster, sorted
	Settings map[string]string `json:"settings,omitempty"` // effective settings that matter
}

// Prober is implemented by sessions whose broker can be asked for metrics of its own while it works.
type Prober interface {
	// Probe asks once. One agent of a task calls it, about once a second and from one goroutine, also while the others
	// are busy; it stays off the measured path where it can (Env.Aside). What the broker does not say is left out: a
	// missing metric is never a zero, and a metric is of the whole broker or of its nodes, never both. What is "since
	// the last probe" or "a second" is missing in the first. Metrics may come with an error, which says why others are
	// missing. An error that wraps ErrUnsupported says that these options lead to no metrics, and which would; the
	// session is not asked again.
	Probe(ctx context.Context) ([]Metric, error)
}

// Metric is one thing a broker says of itself at one moment.
type Metric struct {
	Name  MetricName
	Node  string // the member of a cluster that it is of; "" is the whole broker
	Value float64
}

// MetricName names a metric, and with it its unit. Metrics of several nodes are added up in tables.
type MetricName string

// The metrics. What counts things of the broker counts those of all its users, unless a driver can tell the task's own
// apart; queues, depth and lag are of the task's own topology. What is stored and the rates are of the task's queues
// where a driver can tell.
const (
	MetricMemory            MetricName = "memory"             // bytes, as the broker accounts for itself
	MetricMemoryConnections MetricName = "memory.connections" // bytes, of connections and channels
	MetricMemoryQueues      MetricName = "memory.queues"      // bytes, of queues
	MetricMemoryMetadata    MetricName = "memory.metadata"    // bytes, of bindings and other definitions
	MetricMemoryBinary      MetricName = "memory.binary"      // bytes, of message bodies
	MetricMemoryOther       MetricName = "memory.other"       // bytes
	MetricCPU               MetricName = "cpu"                // cores since the last probe
	MetricErlangProcesses   MetricName = "erlang_processes"   //
	// tasks that wait inside the broker: for a scheduler, a lock, a thread
	MetricRunQueue        MetricName = "run_queue"
	MetricFileDescriptors MetricName = "file_descriptors" //
	MetricConnections     MetricName = "connections"      //
	MetricChannels        MetricName = "channels"         //
	MetricConsumers       MetricName = "consumers"        //
	MetricQueues          MetricName = "queues"           //
	MetricBindings        MetricName = "bindings"         //
	MetricQueueDepth      MetricName = "queue_depth"      // messages, unacknowledged ones included
	MetricUnacked         MetricName = "unacked"          // messages delivered and not acknowledged
	MetricPublishRate     MetricName = "publish_rate"     // messages a second
	MetricDeliverRate     MetricName = "deliver_rate"     // messages a second
	MetricConnectionRate  MetricName = "connection_rate"  // connections opened a second
	MetricDiskFree        MetricName = "disk_free"        // bytes
	MetricStored          MetricName = "stored"           // bytes on disk
	MetricLag             MetricName = "lag"              // messages that the consumers have yet to commit
	// partitions or queues with fewer replicas in sync than they should have
	MetricUnderReplicated MetricName = "under_replicated"
)

// Metrics lists every metric, in the order of the documentation.
func Metrics() []MetricName {
	return []MetricName{MetricMemory, MetricMemoryConnections, MetricMemoryQueues, MetricMemoryMetadata,
		MetricMemoryBinary, MetricMemoryOther,
		MetricCPU, MetricErlangProcesses, MetricRunQueue, MetricFileDescriptors, MetricConnections, MetricChannels,
		MetricConsumers,
		MetricQueues, MetricBindings, MetricQueueDepth, MetricUnacked, MetricPublishRate, MetricDeliverRate,
		MetricConnectionRate,
		MetricDiskFree, MetricStored, MetricLag, MetricUnderReplicated}
}

// Binder is implemented by sessions whose broker can change bindings while messages flow. Its methods are safe for
// concurrent use. A message of an ExtraKey for which there is no binding reaches no queue, as any other that is
// unroutable.
type Binder interface {
	// Bind makes messages of key (≥ ExtraKey), published to queue, reach that queue of the subscription; it returns
	// when the broker has said so. Teardown removes what is left.
	Bind(ctx context.Context, t Topology, subscription, queue int, key uint32) error
	// Unbind undoes Bind. It succeeds if there is nothing to undo.
	Unbind(ctx context.Context, t Topology, subscription, queue int, key uint32) error
}

// Cleaner is implemented by sessions whose broker can list what is there, so that what a killed run left behind is
// found. An error that wraps ErrUnsupported says that these options do not lead there, and which would.
type Cleaner interface {
	// Leftovers lists what the broker has whose name begins with prefix, sorted; it removes nothing.
	Leftovers(ctx context.Context, prefix string) ([]Leftover, error)
	// Cleanup removes these. What is gone already is no error.
	Cleanup(ctx context.Context, these []Leftover) error
}

// Outside is implemented by sessions whose client runs in processes of its own on this host: what those use counts as
// the agent's.
type Outside interface {
	// Processes are their numbers, now; with what they have started themselves the caller finds its way. Safe for
	// concurrent use.
	Processes() []int
}

// Leftover is one thing at a broker.
type Leftover struct {
	Kind string // in the broker's words: "queue", "exchange", "topic", "consumer group"
	Name string
}
