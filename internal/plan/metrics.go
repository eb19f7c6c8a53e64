package plan

import "strings"

// Metric is a number that a broker reports about itself, or that hosts report about its processes. Metrics of several
// nodes are added up.
type Metric struct {
	Name  string
	Title string
	Unit  Unit
	// Better is the direction in which the metric improves.
	Better Direction
	// Since is set if a sample covers the time since the previous one, and not one moment.
	Since bool
	// OfTask is set if the metric covers only the task's own queues, on some brokers at least, and not the whole
	// broker. In a cell with groups each group then has its own metric.
	OfTask bool
	Doc    string
}

// Values of Since and OfTask in the lists below.
const (
	atMoment, overTime = false, true
	ofBroker, ofTask   = false, true
)

// Metrics returns the metrics that drivers probe, in the order of the documentation. A test compares them with those of
// package drivers.
func Metrics() []Metric {
	return []Metric{
		{"memory", "memory", Bytes, lower, atMoment, ofBroker, "memory of the broker, as it reports it"},
		{"memory.connections", "memory, connections", Bytes, lower, atMoment, ofBroker,
			"memory of the broker for connections and channels"},
		{"memory.queues", "memory, queues", Bytes, lower, atMoment, ofBroker, "memory of the broker for queues"},
		{"memory.metadata", "memory, metadata", Bytes, lower, atMoment, ofBroker,
			"memory of the broker for bindings and other definitions"},
		{"memory.binary", "memory, bodies", Bytes, lower, atMoment, ofBroker, "memory of the broker for message bodies"},
		{"memory.other", "memory, other", Bytes, lower, atMoment, ofBroker, "memory of the broker for everything else"},
		{metricCPU, "CPU", Cores, lower, overTime, ofBroker,
			"CPU of the broker's processes, measured on their hosts (field process, or an observer) or otherwise reported by the broker"},
		{"erlang_processes", "Erlang processes", Count, neither, atMoment, ofBroker, "Erlang processes"},
		{"run_queue", "run queue", Count, neither, atMoment, ofBroker,
			"tasks that wait in the broker for a scheduler (RabbitMQ) or a lock (MongoDB)"},
		{"file_descriptors", "file descriptors", Count, neither, atMoment, ofBroker, "file descriptors in use"},
		{"connections", "connections", Count, neither, atMoment, ofBroker, "connections of all users"},
		{"channels", "channels", Count, neither, atMoment, ofBroker, "channels of all users"},
		{"consumers", "consumers", Count, neither, atMoment, ofTask,
			"consumers of the task, or of all users if the broker does not report them separately"},
		{"queues", "queues", Count, neither, atMoment, ofTask, "queues of the task"},
		{"bindings", "bindings", Count, neither, atMoment, ofTask, "bindings of the task's own exchange"},
		{"queue_depth", "queue depth", Count, neither, atMoment, ofTask,
			"messages in the task's queues, including unacknowledged ones"},
		{"unacked", "unacked", Count, neither, atMoment, ofTask, "messages of the task that are delivered and not acknowledged"},
		{"publish_rate", "publish rate", PerSecond, neither, overTime, ofTask,
			"messages published to the task's queues, or by all users if the broker does not report them separately, per second"},
		{"deliver_rate", "deliver rate", PerSecond, neither, overTime, ofTask,
			"messages delivered per second, including redeliveries, from the task's queues, or from all if the broker does not separate them"},
		{"connection_rate", "connection rate", PerSecond, neither, overTime, ofBroker,
			"connections opened by all users, per second"},
		{"disk_free", "disk free", Bytes, neither, atMoment, ofBroker,
			"free space of the broker's disks"},
		{"stored", "stored", Bytes, neither, atMoment, ofTask,
			"bytes stored on disk by the task's queues, or by all users if the broker does not report them separately"},
		{"lag", "lag", Count, lower, atMoment, ofTask, "messages that the task's consumers have not committed yet"},
		{"under_replicated", "under-replicated", Count, lower, atMoment, ofBroker,
			"partitions or queues with fewer in-sync replicas than configured"},
	}
}

const metricCPU = "cpu"

// Metrics of the broker's processes that only hosts report.
const (
	MetricRSS       = "rss"
	MetricDiskRead  = "disk.read"
	MetricDiskWrite = "disk.write"
	MetricNetIn     = "net.in"
	MetricNetOut    = "net.out"
)

// ProcessMetrics returns the metrics that hosts report of the broker's processes. They need the processes in the matrix
// (process) or an agent that observes them (lockstep-agent --observe).
func ProcessMetrics() []Metric {
	const network = " in the network namespaces of the broker's processes, over all interfaces (loopback counts each byte in both directions)"
	return []Metric{
		{MetricRSS, "RSS", Bytes, lower, overTime, ofBroker,
			"resident memory of the broker's processes, measured on their hosts (field process, or an observer)"},
		{MetricDiskRead, "disk read", BytesRate, lower, overTime, ofBroker,
			"bytes that the kernel read from disks for the broker's processes, without reads from its cache"},
		{MetricDiskWrite, "disk write", BytesRate, lower, overTime, ofBroker,
			"bytes that the broker's processes wrote to disks, including delayed writes of the kernel"},
		{MetricNetIn, "net in", BytesRate, neither, overTime, ofBroker, "bytes received" + network},
		{MetricNetOut, "net out", BytesRate, neither, overTime, ofBroker, "bytes sent" + network},
	}
}

// MetricStatistics returns the statistics of metrics that tables can show, as in "broker.memory.p50".
func MetricStatistics() []string { return []string{"mean", "p50", "max"} }

// MetricValue returns the name of the value for a statistic of a metric.
func MetricValue(metric, statistic string) string { return "broker." + metric + "." + statistic }

// metricValues returns the values of all metrics.
func metricValues() []ValueInfo {
	statistics := map[string]string{"mean": "mean of the measurement", "p50": "median of its samples",
		"max": "maximum of its samples"}
	var values []ValueInfo
	for _, f := range append(Metrics(), ProcessMetrics()...) {
		for _, s := range MetricStatistics() {
			doc := strings.TrimSuffix(f.Doc, ".") + "; " + statistics[s]
			values = append(values, ValueInfo{MetricValue(f.Name, s), "Broker " + f.Title + " " + s, f.Unit, f.Better,
				0, doc})
		}
	}
	return values
}
