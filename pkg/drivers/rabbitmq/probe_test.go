package rabbitmq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// said are the metrics of a probe, by metric and node.
type said map[string]map[string]float64

func (r *rig) probe() said {
	r.t.Helper()
	metrics, err := r.session.Probe(r.context())
	if err != nil {
		r.t.Fatal(err)
	}
	all := said{}
	for _, f := range metrics {
		if all[f.Name] == nil {
			all[f.Name] = map[string]float64{}
		}
		all[f.Name][f.Node] = f.Value
	}
	return all
}

// sum returns the sum over the nodes of a metric, which must exist.
func (s said) sum(t testing.TB, name string) (total float64) {
	t.Helper()
	if len(s[name]) == 0 {
		t.Fatalf("the broker does not say %s; it says %v", name, s)
	}
	for _, v := range s[name] {
		total += v
	}
	return total
}

// becomes probes until a metric has a value.
func (r *rig) becomes(name string, want float64) {
	r.t.Helper()
	last := said{}
	for end := time.Now().Add(labtest.Wait); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if last = r.probe(); last[name] != nil && last.sum(r.t, name) == want {
			return
		}
	}
	r.t.Fatalf("%s does not become %v; the broker says %v", name, want, last[name])
}

// fill publishes n messages and waits for their confirms.
func (r *rig) fill(n int) {
	r.t.Helper()
	p, callbacks := r.publisher(drivers.ConfirmWindow, nil)
	for i := range n {
		if err := p.Publish(r.t.Context(), drivers.Message{Token: uint64(i), Body: []byte("x")}); err != nil {
			r.t.Fatal(err)
		}
	}
	labtest.Eventually(r.t, "every confirm", func() bool { h, _ := callbacks.counts(); return h == n })
}

// The counts of the plugins are current: they include new connections.
func TestProbeIsOfTheMoment(t *testing.T) {
	r := newRig(t, single(t, `{}`), func(t *drivers.Topology) { t.Bindings = 25 })
	outer := time.Now()
	before := r.probe()
	inner := time.Now()
	const n = 10
	for range n {
		r.publisher(drivers.FireAndForget, nil)
	}
	r.fill(100)
	minPeriod := time.Since(inner)
	now := r.probe()
	maxPeriod := time.Since(outer)
	for name, want := range map[string]float64{drivers.MetricConnections: n + 1,
		drivers.MetricChannels: n + 1} {
		if got := now.sum(t, name) - before.sum(t, name); got != want {
			t.Errorf("%s grew by %v, want %v", name, got, want)
		}
	}
	if got := now.sum(t, metricErlangProcesses) - before.sum(t, metricErlangProcesses); got < 8*n ||
		got > 20*n {
		t.Errorf("%v Erlang processes more for %d connections with a channel each; want about 11 each", got, n+1)
	}
	for name, want := range map[string]float64{drivers.MetricPublishRate: 100,
		drivers.MetricConnectionRate: n + 1} {
		if got := now.sum(t, name); got < 0.99*want/maxPeriod.Seconds() || got > 1.01*want/minPeriod.Seconds() {
			t.Errorf("%s is %.1f per second, of %v in %v to %v", name, got, want, minPeriod, maxPeriod)
		}
	}
	r.becomes(metricBindings, 25)
	if err := r.session.Bind(t.Context(), r.topology, 0, 0, drivers.ChurnKey); err != nil {
		t.Fatal(err)
	}
	r.becomes(metricBindings, 26)
	r.becomes(drivers.MetricQueues, 1)
}

// Queue depth and unacknowledged messages are those of the task's own queues.
func TestProbeCountsItsOwnQueues(t *testing.T) {
	for name, options := range map[string]json.RawMessage{
		"plugins and management": single(t, `{}`),
		"management alone":       single(t, `{"prometheus": null}`),
		"plugins alone":          single(t, `{"management": null}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := newRig(t, single(t, `{}`), nil)
			other.fill(50)
			r := newRig(t, options, func(t *drivers.Topology) { t.Queues = 2 })
			r.fill(300)
			r.becomes(drivers.MetricQueueDepth, 300)
			r.becomes(drivers.MetricUnacked, 0)
			release := make(chan struct{})
			c := r.consume(7, 1, func(k drivers.Consumer, _ []drivers.Delivery) {
				<-release
				k.Ack(1)
			})
			r.becomes(drivers.MetricUnacked, 7)
			r.becomes(drivers.MetricQueueDepth, 300)
			close(release)
			r.becomes(drivers.MetricQueueDepth, 0)
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// pid returns the current process number of the broker, which other tests restart. A broker that has just started does
// not report it yet.
func (r *rig) pid() string {
	r.t.Helper()
	var nodes []nodeMetrics
	labtest.Eventually(r.t, "the broker's process number", func() bool {
		err := r.session.api.get(r.t.Context(), columns("name,os_pid"), &nodes, "nodes")
		return err == nil && len(nodes) == 1 && nodes[0].PID != ""
	})
	return nodes[0].PID
}

// procMetric reads a number from a file in /proc of the broker's process.
func procMetric(t *testing.T, pid, file, pattern string) float64 {
	t.Helper()
	text, err := os.ReadFile("/proc/" + pid + "/" + file)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(pattern).FindSubmatch(text)
	if m == nil {
		t.Fatalf("%s of %s: no %s", file, pid, pattern)
	}
	n, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Memory and CPU agree with those of the operating system for the broker's process.
func TestProbeAgreesWithTheSystem(t *testing.T) {
	r := newRig(t, single(t, `{}`), nil)
	pid := r.pid()
	ticks := func() float64 {
		const upToUser = `\) \S+(?: \S+){10} `
		return procMetric(t, pid, "stat", upToUser+`(\d+)`) + procMetric(t, pid, "stat", upToUser+`\d+ (\d+)`)
	}
	// The period between the two probes is within an outer period and includes an inner one.
	period := 1500 * time.Millisecond
	if labtest.IsLong() {
		period = 5 * time.Second // the probes are short in comparison
	}
	outer, outerTicks := time.Now(), ticks()
	r.probe()
	innerTicks, inner := ticks(), time.Now()
	for time.Since(inner) < period {
		r.fill(1000)
	}
	minTime, minTicks := time.Since(inner), ticks()-innerTicks
	second := r.probe()
	maxTicks, maxTime := ticks()-outerTicks, time.Since(outer)
	minCPU, maxCPU := minTicks/100/maxTime.Seconds(), maxTicks/100/minTime.Seconds()
	if cpu := second.sum(t, drivers.MetricCPU); cpu <= 0 || cpu < 0.8*minCPU || cpu > 1.2*maxCPU {
		t.Errorf("cpu is %.3f cores; the system counted %.3f to %.3f", cpu, minCPU, maxCPU)
	}
	if labtest.IsLong() && (minCPU < 0.05 || maxCPU > 1.2*minCPU) {
		t.Errorf("the system counted %.3f to %.3f cores: too few or too wide for a comparison", minCPU, maxCPU)
	}
	now := second
	labtest.Eventually(t, "memory, which is not told each time", func() bool {
		now = r.probe()
		return now[drivers.MetricMemory] != nil
	})
	rss := procMetric(t, pid, "status", `VmRSS:\s+(\d+) kB`) * 1024
	memory := now.sum(t, drivers.MetricMemory)
	if memory < 0.7*rss || memory > 1.4*rss {
		t.Errorf("memory is %.0f bytes; the process has %.0f", memory, rss)
	}
	var parts float64
	for _, part := range []string{metricMemoryConnections, drivers.MetricMemoryQueues,
		metricMemoryMetadata,
		metricMemoryBinary, metricMemoryOther} {
		parts += now.sum(t, part)
	}
	if parts < 0.999*memory || parts > 1.001*memory {
		t.Errorf("the parts of memory sum up to %.0f of %.0f bytes", parts, memory)
	}
}

// Each node of a cluster is reported. A list of plugins without one of the nodes is not treated as the whole cluster.
func TestProbeOfACluster(t *testing.T) {
	r := newRig(t, cluster(t, `{"queue": {"type": "quorum"}}`), nil)
	r.probe()
	now := r.probe()
	for _, name := range []string{metricErlangProcesses, drivers.MetricConnections,
		drivers.MetricDiskFree, drivers.MetricCPU, drivers.MetricPublishRate} {
		if len(now[name]) != 3 {
			t.Errorf("%s is told of %v, want three nodes", name, now[name])
		}
	}
	r.becomes(drivers.MetricUnderReplicated, 0)
	plugins := strings.Split(lab.Variable(t, "LOCKSTEP_RABBITMQ3_PROMETHEUS"), ",")
	short := newRig(t, cluster(t, fmt.Sprintf(`{"prometheus": [%q, %q]}`, plugins[0], plugins[1])), nil)
	now = short.probe()
	if _, whole := now[drivers.MetricConnections][""]; !whole || len(now[metricErlangProcesses]) != 3 {
		t.Errorf("two plugins of three nodes: connections %v, processes %v; want those of the management API",
			now[drivers.MetricConnections], now[metricErlangProcesses])
	}
	select {
	case e := <-short.events:
		if e.kind != drivers.EventNotice || !strings.Contains(e.detail, "one url for each node") {
			t.Errorf("event %+v, want a notice of the missing url", e)
		}
	default:
		t.Error("nothing is said of the missing url")
	}
}

func TestProbeNeedsAnAPI(t *testing.T) {
	r := newRig(t, single(t, `{"management": null, "prometheus": null}`), nil)
	if _, err := r.session.Probe(t.Context()); !errors.Is(err, drivers.ErrUnsupported) ||
		!strings.Contains(err.Error(), "management") {
		t.Errorf("error %v, want one that names the option", err)
	}
	if _, err := r.session.Leftovers(t.Context(), "x"); !errors.Is(err, drivers.ErrUnsupported) {
		t.Errorf("error %v, want ErrUnsupported", err)
	}
	dead := newRig(t, single(t, `{"prometheus": ["http://somebody:hunter2@127.0.0.1:1"]}`), nil)
	if _, err := dead.session.Probe(t.Context()); err == nil || strings.Contains(err.Error(), "hunter2") ||
		!strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("error %v, want one that names the plugin's address and hides the password", err)
	}
}

func TestSample(t *testing.T) {
	for line, want := range map[string]struct {
		name   string
		labels map[string]string
		value  float64
	}{
		`erlang_vm_process_count 388`:          {"erlang_vm_process_count", nil, 388},
		`x{a="1",b="two"} 1.5e3 1700000000000`: {"x", map[string]string{"a": "1", "b": "two"}, 1500},
		`x{vhost="/",queue="a \"b\" {c} \\ \n d",} 7`: {"x",
			map[string]string{"vhost": "/", "queue": "a \"b\" {c} \\ \n d"}, 7},
		`x{} 0`: {"x", nil, 0},
	} {
		name, labels, value, ok := sample(line)
		if !ok || name != want.name || value != want.value || fmt.Sprint(labels) != fmt.Sprint(want.labels) &&
			len(want.labels) > 0 {
			t.Errorf("%s: %q %v %v %v", line, name, labels, value, ok)
		}
	}
	for _, line := range []string{"", "# TYPE x gauge", "x", "x{a=1} 2", `x{a="1" 2`, `x{a="1"} two`, "{} 1"} {
		if name, _, value, ok := sample(line); ok {
			t.Errorf("%q is taken for %s = %v", line, name, value)
		}
	}
}

// A process with the same number on this host is not treated as the broker.
func TestLocalProcess(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	p, ok := localProcess(self)
	if !ok {
		t.Skip("no /proc here")
	}
	if p.rabbit || p.age < 0 || p.age > time.Hour {
		t.Errorf("this test is taken for RabbitMQ, or to be %v old: %+v", p.age, p)
	}
	if (nodeMetrics{PID: self, Uptime: p.age.Milliseconds()}).isHere() || (nodeMetrics{PID: "x"}).isHere() ||
		(nodeMetrics{PID: "../1"}).isHere() {
		t.Error("what is not RabbitMQ is taken for it")
	}
	pid := newRig(t, single(t, `{}`), nil).pid()
	if p, ok = localProcess(pid); !ok || !p.rabbit {
		t.Fatalf("RabbitMQ's own process is %+v", p)
	}
	if (nodeMetrics{PID: pid, Uptime: (p.age + time.Hour).Milliseconds()}).isHere() {
		t.Error("a process of another age is taken for the node's")
	}
}

// renumbered makes a broker report another release.
type renumbered struct{ net.Conn }

func (c renumbered) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	copy(p[:n], bytes.Replace(p[:n], []byte("3.10."), []byte("4.10."), 1))
	return n, err
}

// Mirrored queues ended with release 3. A later server would accept the policy without mirroring.
func TestMirrorsAreRefusedWhereThereAreNone(t *testing.T) {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return renumbered{conn}, err
	}
	setUp := func(options json.RawMessage, dial func(context.Context, string, string) (net.Conn, error)) error {
		s, err := driver{}.Open(t.Context(), schematest.Fill(t, driver{}, options),
			drivers.Env{Dial: dial, DialManagement: (&net.Dialer{}).DialContext})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		topology := drivers.Topology{Name: "test-mirrors-" + strconv.Itoa(os.Getpid()), Queues: 1, Subscriptions: 1,
			Bindings: 1, Persistent: true}
		defer s.Teardown(t.Context(), topology) // what matters is Setup
		return s.Setup(t.Context(), topology)
	}
	mirrored := cluster(t, `{"policy": {"ha-mode": "all"}}`)
	if err := setUp(mirrored, dial); !errors.Is(err, drivers.ErrUnsupported) ||
		!strings.Contains(err.Error(), "RabbitMQ 4.10.8") || !strings.Contains(err.Error(), "quorum") {
		t.Errorf("set up mirrored queues on release 4: %v; want a refusal that names it and what to do", err)
	}
	if err := setUp(mirrored, (&net.Dialer{}).DialContext); err != nil {
		t.Errorf("set up mirrored queues on release 3: %v", err)
	}
	if err := setUp(cluster(t, `{"policy": {"max-length": 7}}`), dial); err != nil {
		t.Errorf("set up another policy on release 4: %v", err)
	}
}

// Only the listed objects are removed, in the vhost of the options.
func TestCleanupKnowsItsKinds(t *testing.T) {
	r := newRig(t, cluster(t, `{"policy": {"ha-mode": "all"}}`), nil)
	all, err := r.session.Leftovers(t.Context(), r.topology.Name)
	if err != nil {
		t.Fatal(err)
	}
	want := []drivers.Leftover{{Kind: "exchange", Name: r.topology.Name}, {Kind: "policy", Name: r.topology.Name},
		{Kind: "queue", Name: r.topology.Name + "-s0-q0"}}
	if !slices.Equal(all, want) {
		t.Errorf("%v, want %v", all, want)
	}
	if err := r.session.Cleanup(t.Context(), []drivers.Leftover{{Kind: "stream", Name: "x"}}); err == nil {
		t.Error("a kind that RabbitMQ does not have is cleaned up")
	}
}

// RabbitMQ 4.3 has another name for the number of Erlang processes.
func TestErlangProcessesOfEachRelease(t *testing.T) {
	for _, name := range []string{"erlang_vm_process_count", "erlang_vm_processes"} {
		if _, is := scraped[name]; !is {
			t.Errorf("%s is not read", name)
		}
		p := &probe{session: &session{}}
		p.ofScrape(scrape{node: "a", values: map[string]float64{name: 388}})
		if want := (drivers.Metric{Name: metricErlangProcesses, Node: "a", Value: 388}); !slices.Contains(p.metrics, want) {
			t.Errorf("%s: %v, want %v", name, p.metrics, want)
		}
	}
}
