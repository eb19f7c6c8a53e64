package test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
)

// labOption maps an option of a shipped matrix to a variable of the lab.
type labOption struct{ field, variable string }

// labOptions are the options of brokers, by driver and by lab part for a single node or a cluster. A variable that ends
// in S is a list. The stand-ins are FerretDB for MongoDB, ElasticMQ for Amazon SQS, and test/eventstored for
// EventStoreDB.
var labOptions = map[string][]labOption{
	"nats":    {{"options.url", "LOCKSTEP_NATS_URL"}},
	"nats-r3": {{"options.urls", "LOCKSTEP_NATS3_URLS"}},
	"rabbitmq-classic": {{"options.url", "LOCKSTEP_RABBITMQ_URL"},
		{"options.management", "LOCKSTEP_RABBITMQ_MANAGEMENT"}},
	"rabbitmq-mirrored": {{"options.urls", "LOCKSTEP_RABBITMQ3_URLS"},
		{"options.management", "LOCKSTEP_RABBITMQ3_MANAGEMENT"}},
	"rabbitmq-quorum": {{"options.urls", "LOCKSTEP_RABBITMQ3_URLS"},
		{"options.management", "LOCKSTEP_RABBITMQ3_MANAGEMENT"}},
	"rabbitmq-stream": {{"options.urls", "LOCKSTEP_RABBITMQ3_URLS"},
		{"options.management", "LOCKSTEP_RABBITMQ3_MANAGEMENT"}},
	"kafka":          {{"options.brokers", "LOCKSTEP_KAFKA_BROKERS"}},
	"kafka-r3":       {{"options.brokers", "LOCKSTEP_KAFKA3_BROKERS"}},
	"kafka-acks-1":   {{"options.brokers", "LOCKSTEP_KAFKA3_BROKERS"}},
	"kafka-acks-all": {{"options.brokers", "LOCKSTEP_KAFKA3_BROKERS"}},
	"kafka-old-1":    {{"options.brokers", "LOCKSTEP_KAFKA_BROKERS"}},
	"kafka-new-1":    {{"options.brokers", "LOCKSTEP_KAFKA_NEXT_BROKERS"}},
	"artemis":        {{"options.urls", "LOCKSTEP_ARTEMIS_URL"}},
	"artemis-pair":   {{"options.urls", "LOCKSTEP_ARTEMIS_PAIR_URLS"}},
	"activemq":       {{"options.urls", "LOCKSTEP_ACTIVEMQ_URL"}, {"options.jolokia", "LOCKSTEP_ACTIVEMQ_JOLOKIA"}},
	"activemq-pair": {{"options.urls", "LOCKSTEP_ACTIVEMQ_PAIR_URLS"},
		{"options.jolokia", "LOCKSTEP_ACTIVEMQ_PAIR_JOLOKIAS"}},
	"rabbitmq-old-1": {{"options.url", "LOCKSTEP_RABBITMQ_URL"},
		{"options.management", "LOCKSTEP_RABBITMQ_MANAGEMENT"}},
	"rabbitmq-new-1": {{"options.url", "LOCKSTEP_RABBITMQ4_URL"},
		{"options.management", "LOCKSTEP_RABBITMQ4_MANAGEMENT"}},
	"rabbitmq-newest-1": {{"options.url", "LOCKSTEP_RABBITMQ43_URL"},
		{"options.management", "LOCKSTEP_RABBITMQ43_MANAGEMENT"}},
	"mongodb":    {{"options.url", "LOCKSTEP_MONGODB_URL"}},
	"mongodb-w1": {{"options.url", "LOCKSTEP_MONGODB_URL"}},
	"mongodb-w2": {{"options.url", "LOCKSTEP_MONGODB_URL"}},
	"sqs":        {{"options.endpoint", "LOCKSTEP_SQS_ENDPOINT"}},
	"sqs-fifo":   {{"options.endpoint", "LOCKSTEP_SQS_ENDPOINT"}},
	"eventstore": {{"options.url", "LOCKSTEP_EVENTSTORE_URL"}},
	"one": {{"options.url", "LOCKSTEP_RABBITMQ_URL"},
		{"options.management", "LOCKSTEP_RABBITMQ_MANAGEMENT"}, {"options.prometheus", "LOCKSTEP_RABBITMQ_PROMETHEUS"}},
	"three": {{"options.url", "LOCKSTEP_RABBITMQ3_BALANCED"},
		{"options.management", "LOCKSTEP_RABBITMQ3_MANAGEMENT"},
		{"options.prometheus", "LOCKSTEP_RABBITMQ3_PROMETHEUS"}},
}

// lists are the options that are lists, also if the lab has one value.
var lists = map[string]bool{"options.urls": true, "options.brokers": true, "options.prometheus": true,
	"options.jolokia": true}

// labFlags returns the flags that set the brokers of a shipped matrix to those of the lab.
func labFlags(t *testing.T, brokers ...string) []string {
	t.Helper()
	var args []string
	for _, broker := range brokers {
		for _, s := range labOptions[broker] {
			value := variable(t, s.variable)
			var text []byte
			var err error
			if lists[s.field] {
				text, err = json.Marshal(strings.Split(value, ","))
			} else {
				text, err = json.Marshal(value)
			}
			if err != nil {
				t.Fatal(err)
			}
			args = append(args, "--set", fmt.Sprintf("brokers.%q.%s=%s", broker, s.field, text))
		}
	}
	return args
}

// processAt returns the flags that set a broker's processes, by the ports of its addresses.
func processAt(t *testing.T, broker, variableName string) []string {
	t.Helper()
	var ports []string
	for _, address := range strings.Split(variable(t, variableName), ",") {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, "{port: "+u.Port()+"}")
	}
	return []string{"--set", fmt.Sprintf("brokers.%q.process=[%s]", broker, strings.Join(ports, ", "))}
}

// fullBrokers are the brokers of full.cue that the lab has.
var fullBrokers = []string{"nats", "nats-r3", "rabbitmq-classic", "rabbitmq-mirrored", "rabbitmq-quorum",
	"rabbitmq-stream", "kafka", "kafka-r3",
	"artemis", "artemis-pair", "activemq", "activemq-pair", "mongodb", "sqs", "sqs-fifo", "eventstore"}

// long reports whether shipped matrices run all cells of their short form, with its durations.
func long() bool { return os.Getenv("LOCKSTEP_LONG") != "" }

// parallel makes a test parallel, unless LOCKSTEP_LONG requires measurements.
func parallel(t *testing.T) {
	t.Helper()
	if !long() {
		t.Parallel()
	}
}

// reduced returns the flags that set these fields, to reduce a short form to the minimum that tests every broker and
// mode. With LOCKSTEP_LONG=1 there are none.
func reduced(fields ...string) (args []string) {
	for _, field := range fields {
		if !long() {
			args = append(args, "--set", field)
		}
	}
	return args
}

// longDrain gives a slow broker time to connect and to deliver everything. A drain ends with the last message.
var longDrain = []string{`cell.connect="3m"`, `cell.drain.idle="30s"`, `cell.drain.timeout="2m"`}

// fewMessages makes each publisher send a hundred messages, in any time. A second at full rate would take long to
// drain.
var fewMessages = slices.Clip(append([]string{`cell.publishers.count=100`, `cell.warmup="0s"`, `cell.measure="30s"`},
	longDrain...))

// Every broker has a row, and unsupported cells are n/a with a reason: in the three modes of the short form, or in
// every mode with LOCKSTEP_LONG=1.
func TestMatrixFull(t *testing.T) {
	parallel(t)
	args := append(labFlags(t, fullBrokers...), reduced(fewMessages...)...)
	if long() {
		every, err := json.Marshal(modes)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, "--set", "axes.mode="+string(every))
	}
	r := runShipped(t, "full.cue", append(args, processAt(t, "rabbitmq-classic", "LOCKSTEP_RABBITMQ_URL")...)...)
	_, table, _ := strings.Cut(r.text, "Throughput")
	for _, broker := range append([]string{"loopback"}, fullBrokers...) {
		row := regexp.MustCompile(`(?m)^` + broker + ` +1 +1 +(.*)$`).FindString(table)
		if row == "" {
			t.Errorf("table row of %s: got none, want one:\n%s", broker, table)
		}
		if strings.Contains(row, "failed") || strings.Contains(row, "invalid") || strings.Contains(row, "not run") {
			t.Errorf("table row of %s: got %q, want values or n/a", broker, row)
		}
	}
	for _, x := range r.plan.Excluded {
		if x.Kind == "n/a" && x.Reason == "" {
			t.Errorf("%s: got n/a without a reason, want a reason", plan.Cell{Coordinates: x.Coordinates}.Name())
		}
	}
}

// mqperfBrokers are the brokers of mqperf-2017.cue.
var mqperfBrokers = []string{"mongodb-w1", "mongodb-w2", "sqs", "rabbitmq-mirrored", "rabbitmq-quorum", "activemq-pair",
	"artemis-pair",
	"kafka-acks-1", "kafka-acks-all", "eventstore"}

// The study of replicated queues has one table per system with the article's columns, and three tables with the best
// result of each system.
func TestMatrixMqperf(t *testing.T) {
	parallel(t)
	fields := reduced(append(fewMessages, `axes.threads=[5]`)...)
	r := runShipped(t, "mqperf-2017.cue", append(labFlags(t, mqperfBrokers...), fields...)...)
	columns := []string{"Nodes", "Threads", "Publish msg/s", "Consume msg/s", "End-to-end latency", "Publish latency",
		"Leaders ±", "Publishers ±"} // those of the study, and the placement
	for _, broker := range mqperfBrokers {
		if !strings.Contains(r.text, "Replicated queues, broker="+broker+" ") {
			t.Errorf("table of %s: got none, want one", broker)
		}
	}
	for _, table := range report.Build(r.plan, r.outcomes) {
		if strings.HasPrefix(table.Title, "Replicated queues") &&
			!slices.EqualFunc(table.Head, columns, strings.HasPrefix) { // a unit may follow
			t.Errorf("%s: columns: got %q, want %q", table.Title, table.Head, columns)
		}
	}
	for _, o := range r.outcomes {
		for _, value := range []string{"spread.leaders", "spread.publishers", "spread.consumers"} {
			kafka := strings.Contains(r.name(o), "broker=kafka")
			if !kafka && !strings.Contains(r.name(o), "broker=rabbitmq") {
				continue
			}
			v := o.Values[value]
			unplaced := kafka && value != "spread.leaders" // clients of Kafka connect to the leaders
			if v.NA != "" && !unplaced || v.NA == "" && v.Number > 1 {
				t.Errorf("%s: %s: got %v (n/a %q), want at most 1 (even use of the nodes)", r.name(o), value, v.Number,
					v.NA)
			}
		}
	}
	if long() {
		r.checkThreads()
	}
	for _, summary := range []string{"Throughput: highest", "Publish latency: lowest",
		"End-to-end latency: lowest"} {
		_, table, found := strings.Cut(r.text, summary)
		table, _, _ = strings.Cut(table, "each row is the valid cell")
		for _, broker := range mqperfBrokers {
			row := regexp.MustCompile(`(?m)^` + broker + ` .*`).FindString(table)
			standIn := slices.Contains([]string{"mongodb-w1", "mongodb-w2", "sqs", "eventstore"}, broker)
			throughput := strings.HasPrefix(summary, "Throughput") // the short form has no interval for the latencies
			if !found || row == "" || throughput && strings.Contains(row, "–") != standIn {
				t.Errorf("table %q, row of %s: got %q, want a row, with an interval (–) for stand-ins only", summary,
					broker, row)
			}
		}
	}
}

// The study of bindings runs on one node, and on three with one common address.
func TestMatrixBindings(t *testing.T) {
	parallel(t)
	args := append(labFlags(t, "one", "three"), processAt(t, "one", "LOCKSTEP_RABBITMQ_URL")...)
	args = append(args, processAt(t, "three", "LOCKSTEP_RABBITMQ3_URLS")...)
	// A cluster needs long for a thousand bindings.
	args = append(args, reduced(append(longDrain, `axes.bindings=[10]`, `cell.topology.churn.hold="10s"`)...)...)
	r := runShipped(t, "bindings.cue", args...)
	for _, o := range r.outcomes {
		for _, value := range []string{"broker.memory.p50", "broker.erlang_processes.p50", "broker.cpu.mean"} {
			switch v := o.Values[value]; {
			case v.NA != "" && value != "broker.cpu.mean" && !long(): // the broker responded after more than 3 s
			case v.NA != "" || v.Number <= 0:
				t.Errorf("%s: %s: got %+v, want a number above zero", r.name(o), value, v)
			}
		}
		if !strings.Contains(r.name(o), "churn=0") && o.Values["binding.first.p50"].Number <= 0 {
			t.Errorf("%s: binding.first.p50: got %+v, want a number above zero", r.name(o),
				o.Values["binding.first.p50"])
		}
	}
	if long() {
		r.checkBindingCosts()
		// only in make test-long: otherwise the queues of parallel tests are counted, too
		for _, o := range r.outcomes {
			if v := o.Values["spread.leaders"]; strings.Contains(r.name(o), "broker=three") && (v.NA != "" || v.Number > 1) {
				t.Errorf("%s: spread.leaders: got %v (n/a %q), want at most 1", r.name(o), v.Number, v.NA)
			}
		}
	}
	head := report.Build(r.plan, r.outcomes)[0].Head
	if want := []string{"Consumers", "Bindings/Queue", "Memory", "Metadata memory", "Erlang processes", "CPU", "Consume msg/s",
		"Declaration", "To first delivery"}; !slices.Equal(head, want) {
		t.Errorf("columns: got %q, want those of the study, %q", head, want)
	}
}

// checkThreads checks that more threads increase the throughput of systems whose publishers wait for confirms. With all
// CPUs in use, they may only keep it.
func (r record) checkThreads() {
	for _, broker := range []string{"rabbitmq-mirrored", "rabbitmq-quorum", "artemis-pair", "kafka-acks-all"} {
		one, five := r.outcomeAt("broker="+broker, "threads=1"), r.outcomeAt("broker="+broker, "threads=5")
		factor := 1.2
		if slices.Contains(five.Values["publish.rate"].Flags, plan.SharedHost) {
			factor = 1
		}
		if low, high := r.metric(one, "publish.rate"), r.metric(five, "publish.rate"); high < factor*low {
			r.t.Errorf("%s: publish rate of five threads: got %.0f, want at least %g times that of one, %.0f", broker, high,
				factor, low)
		}
	}
}

// checkBindingCosts checks the study's finding: the number of bindings of a queue does not change the number of Erlang
// processes. Bindings are metadata.
func (r record) checkBindingCosts() {
	for _, broker := range []string{"one", "three"} {
		of := func(bindings, value string) float64 {
			return r.metric(r.outcomeAt("broker="+broker, "bindings="+bindings, "churn=0"), value)
		}
		one, hundred := of("1", "broker.erlang_processes.p50"), of("100", "broker.erlang_processes.p50")
		if hundred < 0.97*one || hundred > 1.03*one {
			r.t.Errorf("%s: Erlang processes with 100 bindings per queue: got %v, want %v ± 3 %% as with one", broker,
				hundred, one)
		}
		one, hundred = of("1", "broker.memory.metadata.p50"), of("100", "broker.memory.metadata.p50")
		if hundred <= one {
			r.t.Errorf("%s: bytes of metadata with 100 bindings per queue: got %v, want more than with one, %v", broker,
				hundred, one)
		}
	}
}

// Each search for the capacity of a broker has a result, and shows its steps as a table and a chart. It takes minutes
// and needs an idle machine.
func TestStudyCapacity(t *testing.T) {
	brokers := []string{"nats", "rabbitmq-classic", "kafka"}
	r := runShipped(t, "capacity.cue", append(labFlags(t, brokers...),
		processAt(t, "rabbitmq-classic", "LOCKSTEP_RABBITMQ_URL")...)...)
	for _, o := range r.outcomes {
		if o.Search == nil || !o.Search.Sure || o.Search.Capacity <= 0 ||
			o.Values["capacity"].Number != o.Search.Capacity {
			t.Fatalf("%s: search: got %+v, want a capacity above zero that is sure", r.name(o), o.Search)
		}
	}
	for _, broker := range brokers {
		r.checkChart(r.outcomeAt("broker="+broker), broker)
	}
}

// One table compares the releases of a broker.
func TestMatrixVersions(t *testing.T) {
	args := labFlags(t, "kafka-old-1", "kafka-new-1", "rabbitmq-old-1", "rabbitmq-new-1", "rabbitmq-newest-1")
	t.Parallel()
	r := runShipped(t, "versions.cue", append(args, reduced(longDrain...)...)...)
	if !strings.Contains(r.text, "release=old") || !strings.Contains(r.text, "release=new") {
		t.Errorf("table: got not both release=old and release=new:\n%s", r.text)
	}
	reported := map[string]string{}
	for _, o := range r.outcomes {
		axes := regexp.MustCompile(`system=(\S+).*release=(\S+)`).FindStringSubmatch(r.name(o))
		reported[axes[1]+" "+axes[2]] = o.Subject.Version
	}
	for release, version := range map[string]string{"old": "3.10.", "new": "4.0."} {
		if got := reported["rabbitmq "+release]; !strings.HasPrefix(got, version) {
			t.Errorf("version of the %s release of RabbitMQ: got %q, want %s*", release, got, version)
		}
	}
	if newest := reported["rabbitmq newest"]; newest == "" || newest == reported["rabbitmq new"] {
		t.Errorf("version of the newest release of RabbitMQ: got %q, want another one than %q", newest,
			reported["rabbitmq new"])
	}
	if v := reported["kafka old"]; v != "" && v == reported["kafka new"] { // an empty version: Kafka did not report it
		t.Errorf("versions of both releases of Kafka: got %s twice, want different versions", v)
	}
}
