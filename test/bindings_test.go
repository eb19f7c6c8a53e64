package test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// runWithChurn runs one cell with churn of bindings, and returns its outcome, which must be valid.
func runWithChurn(t *testing.T, broker, cell string) (record, plan.Outcome) {
	t.Helper()
	dir := t.TempDir()
	file := writeMatrix(t, dir, fmt.Sprintf(`package matrix
name: "churned"
brokers: b: %s
axes: mode: ["confirm-window"]
cell: {axis: _, publishers: {mode: axis.mode, persistent: false}, %s}
tables: [{rows: ["mode"], values: ["binding.p50", "binding.first.p50", "binding.message.p50", "binding.made", "binding.lost"]}]
`, broker, cell))
	ctl := start(t, dir, "ctl", "run", file)
	if code := ctl.ExitCode(); code != 0 {
		t.Fatalf("ctl run: got exit code %d, want 0:\n%s", code, ctl.Output())
	}
	r := readRecord(t, dir, ctl)
	r.checkAllValid()
	return r, r.outcomes[0]
}

// checkBetween checks that a value is within bounds.
func (r record) checkBetween(o plan.Outcome, name string, low, high float64) {
	r.t.Helper()
	if v := o.Values[name]; v.NA != "" || v.Number < low || v.Number > high {
		r.t.Errorf("%s: got %v (n/a %q), want %v to %v", name, v.Number, v.NA, low, high)
	}
}

// checkOwnLedger checks that the ledger of the cell's own messages does not include those through new bindings.
func (r record) checkOwnLedger(o plan.Outcome, sent float64) {
	r.t.Helper()
	l := o.Ledger
	if float64(l.Sent) < 0.9*sent || float64(l.Sent) > sent || l.Received != l.Sent ||
		l.Lost+l.Duplicated+l.Reordered+l.Corrupt+l.Foreign > 0 {
		r.t.Errorf("ledger: got %+v, want %.0f to %.0f messages sent, each received once", l, 0.9*sent, sent)
	}
}

// A known delay and loss of bindings is measured, with consumers on two agents that share one queue. A binding takes 30
// ms to create and works 200 ms later. A message is sent through it every 400 ms: the first one is lost, and the second
// one is the first delivery.
func TestStudyPlantedBindingDelayAndLoss(t *testing.T) {
	r, o := runWithChurn(t, `{driver: "loopback", options: {bindDelay: "30ms", bindSpread: "200ms", delay: "10ms"}}`,
		`publishers: rate: 200, consumers: {nodes: 2, threads: 2}, warmup: "500ms", measure: "4s", topology: churn: {rate: 5, hold: "1s", probes: 2.5}`)
	r.checkBetween(o, "binding.p50", 0.030, 0.080)
	r.checkBetween(o, "binding.first.p50", 0.440, 0.520)
	r.checkBetween(o, "binding.message.p50", 0.010, 0.060)
	made := o.Values["binding.made"].Number
	r.checkBetween(o, "binding.made", 20, 23)
	r.checkBetween(o, "binding.lost", made-3, made) // a stall of 200 ms delays the first message enough
	r.checkOwnLedger(o, 900)
	if all := strings.Join(o.Warnings, "\n"); !strings.Contains(all, "through a new binding were lost") {
		t.Errorf("warnings: got %q, want one about messages lost through a new binding", o.Warnings)
	}
}

// rabbitBroker returns the broker of one node or of three, with all metrics.
func rabbitBroker(t *testing.T, nodes int) string {
	t.Helper()
	addresses, prefix := variable(t, "LOCKSTEP_RABBITMQ_URL"), "LOCKSTEP_RABBITMQ_"
	if nodes > 1 {
		addresses, prefix = variable(t, "LOCKSTEP_RABBITMQ3_URLS"), "LOCKSTEP_RABBITMQ3_"
	}
	var processes []string
	for address := range strings.SplitSeq(addresses, ",") {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		processes = append(processes, "{port: "+u.Port()+"}")
	}
	quoted := func(list string) string { return `["` + strings.ReplaceAll(list, ",", `", "`) + `"]` }
	return fmt.Sprintf(`{driver: "rabbitmq", process: [%s], options: {urls: %s, management: %q, prometheus: %s}}`,
		strings.Join(processes, ", "),
		quoted(addresses), variable(t, prefix+"MANAGEMENT"), quoted(variable(t, prefix+"PROMETHEUS")))
}

// On a network of 40 ms, creating a binding takes one round trip, its first message one more, and later messages one.
// RabbitMQ confirms a binding when it works, so no message is lost. Its own metrics are recorded, too.
func TestStudyBindingsOnRabbitMQ(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			place := ""
			if nodes > 1 {
				place = ", publishers: node: 1, consumers: node: 2" // bindings are created by the agents of node 1
			}
			cell := `publishers: rate: 200, latency: "40ms", warmup: "1s", measure: "5s", topology: {bindings: 20, churn: {rate: 10, hold: "1s", probes: 20}}` + place
			r, o := runWithChurn(t, rabbitBroker(t, nodes), cell)
			// The additional latency depends on the broker and the machine. The cell's own messages have it, too.
			busy := r.metric(o, "e2e.p50")
			r.checkBetween(o, "binding.p50", 0.040, 1)
			r.checkBetween(o, "binding.first.p50", 0.080, 1+3*busy)
			r.checkBetween(o, "binding.message.p50", 0.040, 3*busy)
			r.checkBetween(o, "binding.made", 50, 60)
			r.checkBetween(o, "binding.errors", 0, 0)
			r.checkBetween(o, "binding.lost", 0, 0)
			if sent, received := o.Values["binding.sent"].Number, o.Values["binding.received"].Number; sent < 500 ||
				received != sent {
				t.Errorf("messages through new bindings: got %v sent, %v received, want at least 500, all received",
					sent, received)
			}
			r.checkOwnLedger(o, 1200)
			base := float64(nodes) * 60e6
			r.checkBetween(o, "broker.memory.p50", base, 10*base)
			r.checkBetween(o, "broker.rss.max", base, 10*base)
			r.checkBetween(o, "broker.erlang_processes.p50", float64(nodes)*300, float64(nodes)*1000)
			r.checkBetween(o, "broker.cpu.mean", 0.01, 2)
			r.checkBetween(o, "broker.publish_rate.mean", 250,
				600) // 200 of the cell, and about 200 through new bindings
			r.checkBetween(o, "broker.bindings.max", 22, 40)
			r.checkBetween(o, "broker.queues.p50", 1, 1)
			r.checkBetween(o, "broker.connections.max", 3, 100)
			managementOf(t, map[int]string{1: "LOCKSTEP_RABBITMQ_MANAGEMENT",
				3: "LOCKSTEP_RABBITMQ3_MANAGEMENT"}[nodes]).checkNoLeftovers(r.plan.ID)
		})
	}
}

// Cells with churn are n/a with a reason, before anything runs, if the driver cannot change bindings.
func TestChurnIsNotForEveryBroker(t *testing.T) {
	dir := t.TempDir()
	file := writeMatrix(t, dir, `package matrix
name: "no-churn"
brokers: {nats: {driver: "nats", options: embedded: true}, fanout: {driver: "rabbitmq", options: {url: "amqp://h/", exchange: type: "fanout"}}}
axes: broker: ["nats", "fanout"]
cell: {axis: _, topology: churn: rate: 1}
`)
	ctl := start(t, dir, "ctl", "plan", file)
	ctl.Exits(0)
	if got := strings.Count(ctl.Output(), "does not support churn of bindings (topology.churn)"); got != 2 {
		t.Errorf("cells that are n/a because the driver does not support churn: got %d, want 2:\n%s", got, ctl.Output())
	}
}
