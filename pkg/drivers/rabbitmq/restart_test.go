package rabbitmq

import (
	"encoding/json"
	"testing"

	"lockstep/pkg/drivers/drivertest"
	"lockstep/pkg/drivers/internal/labtest"
)

// The brokers that this file restarts are used by this package alone, and its tests are the last of the package.
func TestRestart(t *testing.T) {
	restart(t, single(t, `{}`), "rabbitmq")
}

// Of a cluster the node is restarted that all links lead to; the others keep the queue. RabbitMQ 3.10 elects no leader for
// a quorum queue of one member after its node was killed: quorum queues are restarted in the cluster only.
func TestRestartLong(t *testing.T) {
	labtest.Long(t)
	t.Run("stream", func(t *testing.T) { restart(t, single(t, `{"queue": {"type": "stream"}}`), "rabbitmq") })
	t.Run("cluster-quorum", func(t *testing.T) { restart(t, cluster(t, `{"queue": {"type": "quorum"}}`), "rabbitmq3-1") })
}

func restart(t *testing.T, options json.RawMessage, process string) {
	t.Helper()
	h := harness(driver{}, options, []string{"restart"})
	h.Restart = labtest.Restart(process)
	drivertest.Run(t, h)
}
