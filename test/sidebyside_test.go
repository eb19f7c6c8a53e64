package test

import (
	"fmt"
	"testing"
)

// RabbitMQ and JetStream run side by side. Each side-by-side broker has its own ledger, subject and metrics.
func TestMatrixSideBySide(t *testing.T) {
	parallel(t)
	r := ran(t, "sidebyside.cue", append(reduced(drained...),
		"--set", fmt.Sprintf(`brokers.rabbit={driver: "rabbitmq", options: {url: %q, management: %q}}`,
			variable(t, "LOCKSTEP_RABBITMQ_URL"), variable(t, "LOCKSTEP_RABBITMQ_MANAGEMENT")),
		"--set", `cell.sideBySide=["memory", "rabbit"]`, "--set",
		`tables=[{rows: ["rate", "group"], values: ["publish.rate", "broker.memory.p50"]}]`,
		"--set", `cell.measure="4s"`)...)
	if len(r.outcomes) == 0 {
		t.Fatal("no outcome")
	}
	o := r.outcomes[0]
	if len(o.Groups) != 2 {
		t.Fatalf("%d groups, want 2", len(o.Groups))
	}
	for i, product := range []string{"NATS", "RabbitMQ"} {
		g := o.Groups[i]
		if g.Subject == nil || g.Subject.Product != product {
			t.Errorf("subject of %s is %+v, want %s", g.Name, g.Subject, product)
		}
		if l := g.Ledger; l.Sent == 0 || l.Received != l.Sent || l.Foreign != 0 {
			t.Errorf("%s: %+v; want all received, and nothing of the other's", g.Name, l)
		}
	}
	if v := o.Values["broker.memory.p50"]; v.NA == "" {
		t.Errorf("the cell has one broker.memory.p50 of two brokers: %+v", v)
	}
}
