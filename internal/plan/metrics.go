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
		{"memory", "memory", Bytes, lower, atMoment, ofBroker, "memory of the broker, as it accounts for itself"},
		{"memory.connections", "memory, connections", Bytes, lower, atMoment, ofBroker,
			"of its memory: connections and channels"},
		{"memory.queues", "memory, queues", Bytes, lower, atMoment, ofBroker, "of its memory: queues"},
		{"memory.metadata", "memory, metadata", Bytes, lower, atMoment, ofBroker,
			"of its memory: bindings and other definitions"},
		{"memory.binary", "memory, bodies", Bytes, lower, atMoment, ofBroker, "of its memory: message bodies"},
		{"memory.other", "memory, other", Bytes, lower, atMoment, ofBroker, "of its memory: everything else"},
		{metricCPU, "CPU", Cores, lower, overTime, ofBroker,
			"of the broker's processes, as their hosts say where the matrix names them (process) or an agent observes them, else as the broker says"},
		{"erlang_processes", "Erlang processes", Count, neither, atMoment, ofBroker, "Erlang processes"},
		{"run_queue", "run queue", Count, neither, atMoment, ofBroker,
			"tasks that wait inside the broker: for a scheduler (RabbitMQ), a lock (MongoDB), a thread (EventStoreDB)"},
		{"file_descriptors", "file descriptors", Count, neither, atMoment, ofBroker, "file descriptors in use"},
		{"connections", "connections", Count, neither, atMoment, ofBroker, "connections, of all users"},
		{"channels", "channels", Count, neither, atMoment, ofBroker, "channels, of all users"},
		{"consumers", "consumers", Count, neither, atMoment, ofTask,
			"consumers, of all users where the broker does not tell the task's apart"},
		{"queues", "queues", Count, neither, atMoment, ofTask, "queues of the task"},
		{"bindings", "bindings", Count, neither, atMoment, ofTask, "bindings of the task's own exchange"},
		{"queue_depth", "queue depth", Count, neither, atMoment, ofTask,
			"messages in the task's queues, unacknowledged ones included"},
		{"unacked", "unacked", Count, neither, atMoment, ofTask, "messages of the task delivered and not acknowledged"},
		{"publish_rate", "publish rate", PerSecond, neither, overTime, ofTask,
			"messages published to the task's queues, or by all users where the broker does not tell those apart, a second"},
		{"deliver_rate", "deliver rate", PerSecond, neither, overTime, ofTask,
			"messages delivered from the task's queues, or to all users where the broker does not tell those apart, a second; those that come again count again"},
		{"connection_rate", "connection rate", PerSecond, neither, overTime, ofBroker,
			"connections opened by all users, a second"},
		{"disk_free", "disk free", Bytes, neither, atMoment, ofBroker,
			"free space of the disks that the broker stores on"},
		{"stored", "stored", Bytes, neither, atMoment, ofTask,
			"bytes stored on disk: of the task's queues, or of all users where the broker does not tell those apart"},
		{"lag", "lag", Count, lower, atMoment, ofTask, "messages that the task's consumers have yet to commit"},
		{"under_replicated", "under-replicated", Count, lower, atMoment, ofBroker,
			"partitions or queues with fewer replicas in sync than they should have"},
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
// (process) or an agent that observes them (agent --observe).
func ProcessMetrics() []Metric {
	const network = " of the network namespaces that the broker's processes are in: of all that runs there, over all interfaces, the loopback included, " +
		"which has every byte in both directions"
	return []Metric{
		{MetricRSS, "RSS", Bytes, lower, overTime, ofBroker,
			"resident memory of the broker's processes, as their hosts say where the matrix names them (process) or an agent observes them"},
		{MetricDiskRead, "disk read", BytesRate, lower, overTime, ofBroker,
			"bytes that the broker's processes had the kernel read from disks; not what its cache had"},
		{MetricDiskWrite, "disk write", BytesRate, lower, overTime, ofBroker,
			"bytes that the broker's processes had the kernel write to disks, at once or later"},
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
		"max": "greatest of its samples"}
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
