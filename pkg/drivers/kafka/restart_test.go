package kafka

import (
	"errors"
	"slices"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// No other package uses the brokers that this file stops. Its tests are the last of the package. Those of make test run
// at the same time, after all others, because each stops another broker.

// Messages that a broker rejects are rejected singly, the link stays, and the metrics show the cause.
func TestTooFewInSyncReplicasReject(t *testing.T) {
	t.Parallel()
	r := open(t, at(t, cluster, `{"replicationFactor": 3, "minInSyncReplicas": 3, "resilience": "none"}`))
	r.topology.QueueNode = "0" // the leader is not killed
	if err := r.session.Setup(r.context(), r.topology); err != nil {
		t.Fatal(err)
	}
	labtest.Control(t, "kill", "kafka3-3")
	t.Cleanup(func() { labtest.Control(t, "start", "kafka3-3") })
	labtest.Eventually(t, "the replica being missed", func() bool {
		metrics, err := r.session.Probe(r.context())
		return err == nil && slices.Contains(metrics, drivers.Metric{Name: drivers.MetricUnderReplicated, Value: 1})
	})
	labtest.Eventually(t, "a rejection by the leader", func() bool { // until it knows of the loss, it waits for the replica
		p, callbacks := r.publisher(drivers.ConfirmWindow)
		r.send(p, "first")
		labtest.Eventually(t, "a confirm", func() bool { return len(callbacks.settled()) == 1 })
		return errors.Is(callbacks.settled()[0], drivers.ErrRejected)
	})
	for _, client := range []string{kafkaGo, franz} {
		r.session.options.Client = client
		p, callbacks := r.publisher(drivers.ConfirmWindow)
		r.send(p, numbers(0, 20)...)
		labtest.Eventually(t, "confirms", func() bool { return len(callbacks.settled()) == 20 })
		for i, err := range callbacks.settled() {
			if !errors.Is(err, drivers.ErrRejected) {
				t.Errorf("%s: confirm %d with two of three replicas: %v", client, i, err)
			}
		}
		if err := callbacks.Err(); err != nil {
			t.Errorf("%s: the connection broke: %v", client, err)
		}
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	restart(t, franz)
}

func TestRestartLong(t *testing.T) {
	labtest.Long(t)
	restart(t, kafkaGo)
}

func restart(t *testing.T, client string) {
	t.Helper()
	h := harness(at(t, single, `{"client": "`+client+`", "resilience": "none"}`), []string{"restart"})
	h.Restart = labtest.Restart("kafka")
	drivertest.Run(t, h)
}
