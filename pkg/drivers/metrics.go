package drivers

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
)

// Metric is one metric of a broker at one time.
type Metric struct {
	Name  string  `json:"name"` // declared in Info.Metrics
	Node  string  `json:"node"` // member of a cluster; "": the whole broker
	Value float64 `json:"value"`
}

// MetricInfo declares a metric. Names and units are free, except those of SharedMetrics.
type MetricInfo struct {
	// Name consists of lower-case letters, digits, "_" and "." ("memory.queues"). Tables show "broker.NAME.mean".
	Name string `json:"name"`
	// Unit is a word without blanks. Tables scale "bytes", "bytes/s", "s" and "1/s", and know "count", "cores" and
	// "ratio". They show any other unit after the number. A metric in "cores", or in a unit that ends with "/s", covers
	// the time since the last probe. Any other is of one moment.
	Unit string `json:"unit"`
	Doc  string `json:"doc"` // one line for users
	// Sum: tables add the values of a cluster's nodes. Otherwise they show the maximum of the nodes.
	Sum bool `json:"sum,omitempty"`
	// OfTask: the metric covers only the task's own queues, on some brokers at least, and not the whole broker.
	OfTask        bool `json:"ofTask,omitempty"`
	LowerIsBetter bool `json:"lowerIsBetter,omitempty"` // otherwise neither direction is better
}

// Same reports whether two declarations of one name agree. Their documentation may differ.
func (m MetricInfo) Same(o MetricInfo) bool {
	m.Doc = o.Doc
	return m == o
}

// The names of shared metrics, which several brokers have. SharedMetrics declares them.
const (
	MetricMemory          = "memory"
	MetricMemoryQueues    = "memory.queues"
	MetricCPU             = "cpu"
	MetricRSS             = "rss"
	MetricDiskRead        = "disk.read"
	MetricDiskWrite       = "disk.write"
	MetricNetIn           = "net.in"
	MetricNetOut          = "net.out"
	MetricRunQueue        = "run_queue"
	MetricFileDescriptors = "file_descriptors"
	MetricConnections     = "connections"
	MetricChannels        = "channels"
	MetricConsumers       = "consumers"
	MetricQueues          = "queues"
	MetricQueueDepth      = "queue_depth"
	MetricUnacked         = "unacked"
	MetricPublishRate     = "publish_rate"
	MetricDeliverRate     = "deliver_rate"
	MetricConnectionRate  = "connection_rate"
	MetricDiskFree        = "disk_free"
	MetricStored          = "stored"
	MetricLag             = "lag"
	MetricUnderReplicated = "under_replicated"
)

// Values of Sum, OfTask and LowerIsBetter in the list below.
const (
	added            = true
	ofBroker, ofTask = false, true
	neither, lower   = false, true
)

const network = " in the network namespaces of the broker's processes, over all interfaces (loopback counts each byte in both directions)"

// shared are the metrics with a common meaning, in the order of the documentation.
var shared = []MetricInfo{
	{MetricMemory, "bytes", "memory of the broker, as it reports it", added, ofBroker, lower},
	{MetricMemoryQueues, "bytes", "memory of the broker for queues", added, ofBroker, lower},
	{MetricCPU, "cores",
		"CPU of the broker's processes, measured on their hosts (field process, or an observer) or otherwise reported by the broker",
		added, ofBroker, lower},
	{MetricRunQueue, "count", "tasks that wait in the broker for a scheduler (RabbitMQ) or a lock (MongoDB)",
		added, ofBroker, neither},
	{MetricFileDescriptors, "count", "file descriptors in use", added, ofBroker, neither},
	{MetricConnections, "count", "connections of all users", added, ofBroker, neither},
	{MetricChannels, "count", "channels of all users", added, ofBroker, neither},
	{MetricConsumers, "count", "consumers of the task, or of all users if the broker does not report them separately",
		added, ofTask, neither},
	{MetricQueues, "count", "queues of the task", added, ofTask, neither},
	{MetricQueueDepth, "count", "messages in the task's queues, including unacknowledged ones", added, ofTask, neither},
	{MetricUnacked, "count", "messages of the task that are delivered and not acknowledged", added, ofTask, neither},
	{MetricPublishRate, "1/s",
		"messages published to the task's queues, or by all users if the broker does not report them separately, per second",
		added, ofTask, neither},
	{MetricDeliverRate, "1/s",
		"deliveries per second, with redeliveries except Artemis, from the task's queues, or all if the broker does not separate them",
		added, ofTask, neither},
	{MetricConnectionRate, "1/s", "connections opened by all users, per second", added, ofBroker, neither},
	{MetricDiskFree, "bytes", "free space of the broker's disks", added, ofBroker, neither},
	{MetricStored, "bytes",
		"bytes stored on disk by the task's queues, or by all users if the broker does not report them separately",
		added, ofTask, neither},
	{MetricLag, "count", "messages that the task's consumers have not committed yet", added, ofTask, lower},
	{MetricUnderReplicated, "count", "partitions or queues with fewer in-sync replicas than configured",
		added, ofBroker, lower},
	{MetricRSS, "bytes",
		"resident memory of the broker's processes, measured on their hosts (field process, or an observer)",
		added, ofBroker, lower},
	{MetricDiskRead, "bytes/s",
		"bytes that the kernel read from disks for the broker's processes, without reads from its cache",
		added, ofBroker, lower},
	{MetricDiskWrite, "bytes/s",
		"bytes that the broker's processes wrote to disks, including delayed writes of the kernel",
		added, ofBroker, lower},
	{MetricNetIn, "bytes/s", "bytes received" + network, added, ofBroker, neither},
	{MetricNetOut, "bytes/s", "bytes sent" + network, added, ofBroker, neither},
}

// SharedMetrics returns the declarations of shared metrics by their names; without names, all of them. It panics if a
// name is not shared.
func SharedMetrics(names ...string) []MetricInfo {
	if len(names) == 0 {
		return slices.Clone(shared)
	}
	all := make([]MetricInfo, len(names))
	for i, name := range names {
		at := metricAt(shared, name)
		if at < 0 {
			panic("drivers: metric " + name + " is not shared")
		}
		all[i] = shared[at]
	}
	return all
}

// SharedMetric returns the declaration of a shared metric. ok is false if the name is not shared.
func SharedMetric(name string) (m MetricInfo, ok bool) {
	if at := metricAt(shared, name); at >= 0 {
		return shared[at], true
	}
	return m, false
}

func metricAt(all []MetricInfo, name string) int {
	return slices.IndexFunc(all, func(m MetricInfo) bool { return m.Name == name })
}

var (
	metricName = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$`)
	metricUnit = regexp.MustCompile(`^[\pL0-9%°µ/_.^·-]{1,16}$`)
)

// Limits of a declaration, in bytes.
const (
	maxMetricName = 64
	maxMetricDoc  = 500
)

// CheckMetrics returns all errors of declarations of metrics: malformed and duplicate names, malformed units, missing
// documentation, and names of shared metrics with another unit or meaning.
func CheckMetrics(all []MetricInfo) error {
	var errs []error
	for i, m := range all {
		wrong := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("metric %q: "+format, append([]any{m.Name}, args...)...))
		}
		if !metricName.MatchString(m.Name) || len(m.Name) > maxMetricName {
			wrong("invalid name; use up to %d lower-case letters, digits, \"_\" and \".\"", maxMetricName)
		}
		if metricAt(all[:i], m.Name) >= 0 {
			wrong("it is declared twice; remove one")
		}
		if !metricUnit.MatchString(m.Unit) || m.Unit == "text" {
			wrong("invalid unit %q; use a word of up to 16 letters, as \"count\", \"bytes\", \"1/s\" or \"pages\"", m.Unit)
		}
		if m.Doc == "" || len(m.Doc) > maxMetricDoc {
			wrong("its documentation has %d bytes; describe it in one line of at most %d", len(m.Doc), maxMetricDoc)
		}
		if common, is := SharedMetric(m.Name); is && !common.Same(m) {
			wrong("it differs from the shared metric %+v; use another name", common)
		}
	}
	return errors.Join(errs...)
}
