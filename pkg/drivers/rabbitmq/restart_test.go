package rabbitmq

import (
	"encoding/json"
	"os/exec"
	"testing"

	"lockstep/pkg/drivers/drivertest"
	"lockstep/pkg/drivers/internal/labtest"
)

// The brokers that this file restarts are used by this package alone, and its tests are the last of the package.
func TestRestart(t *testing.T) {
	restart(t, single(t, `{}`), "rabbitmq", "LOCKSTEP_RABBITMQ_CTL")
}

// Of a cluster the node is restarted that all links lead to; the others keep the queue. RabbitMQ 3.10 elects no leader for
// a quorum queue of one member after its node was killed: quorum queues are restarted in the cluster only.
func TestRestartLong(t *testing.T) {
	labtest.Long(t)
	t.Run("stream", func(t *testing.T) {
		restart(t, single(t, `{"queue": {"type": "stream"}}`), "rabbitmq", "LOCKSTEP_RABBITMQ_CTL")
	})
	t.Run("cluster-quorum", func(t *testing.T) {
		restart(t, cluster(t, `{"queue": {"type": "quorum"}}`), "rabbitmq3-1", "LOCKSTEP_RABBITMQ3_CTL")
	})
}

// restart checks the driver while the lab kills and starts the process. RabbitMQ answers a declaration before it is on
// disk: Mnesia's log is written up to 2 s later, so a broker that is killed before may keep a queue and forget its
// binding. ctl, a variable with the path of rabbitmqctl, has it written first.
func restart(t *testing.T, options json.RawMessage, process, ctl string) {
	t.Helper()
	h := harness(driver{}, options, []string{"restart"})
	kill := labtest.Restart(process)
	if kill != nil {
		h.Restart = func(t *testing.T) {
			if out, err := exec.Command(lab.Variable(t, ctl), "eval", "ok = mnesia:sync_log().").CombinedOutput(); err != nil {
				t.Fatalf("rabbitmqctl eval: %v: %s", err, out)
			}
			kill(t)
		}
	}
	drivertest.Run(t, h)
}
