package test

import (
	"fmt"
	"testing"
)

// RabbitMQ and JetStream run side by side. Each side-by-side broker has its own ledger, subject and metrics.
func TestMatrixSideBySide(t *testing.T) {
	parallel(t)
	r := runShipped(t, "sidebyside.cue", append(reduced(longDrain...),
		"--set", fmt.Sprintf(`brokers.rabbit={driver: "rabbitmq", options: {url: %q, management: %q}}`,
			variable(t, "LOCKSTEP_RABBITMQ_URL"), variable(t, "LOCKSTEP_RABBITMQ_MANAGEMENT")),
		"--set", `cell.sideBySide=["memory", "rabbit"]`, "--set",
		`tables=[{rows: ["rate", "group"], values: ["publish.rate", "broker.memory.p50"]}]`,
		"--set", `cell.measure="4s"`)...)
	if len(r.outcomes) == 0 {
		t.Fatal("outcomes: got none, want at least 1")
	}
	o := r.outcomes[0]
	if len(o.Groups) != 2 {
		t.Fatalf("groups: got %d, want 2", len(o.Groups))
	}
	for i, product := range []string{"NATS", "RabbitMQ"} {
		g := o.Groups[i]
		if g.Subject == nil || g.Subject.Product != product {
			t.Errorf("subject of %s: got %+v, want %s", g.Name, g.Subject, product)
		}
		if l := g.Ledger; l.Sent == 0 || l.Received != l.Sent || l.Foreign != 0 {
			t.Errorf("%s: got ledger %+v, want all messages received, and none of the other group", g.Name, l)
		}
	}
	if v := o.Values["broker.memory.p50"]; v.NA == "" {
		t.Errorf("broker.memory.p50 of the cell: got %+v, want n/a, because there are two brokers", v)
	}
}
