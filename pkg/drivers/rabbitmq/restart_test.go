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

// Of a cluster the node is restarted that all links lead to; the others keep the queue.
func TestRestartLong(t *testing.T) {
	labtest.Long(t)
	for _, kind := range []string{"stream", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			restart(t, single(t, `{"queue": {"type": "`+kind+`"}}`), "rabbitmq", "LOCKSTEP_RABBITMQ_CTL")
		})
	}
	t.Run("cluster-quorum", func(t *testing.T) {
		restart(t, cluster(t, `{"queue": {"type": "quorum"}}`), "rabbitmq3-1", "LOCKSTEP_RABBITMQ3_CTL")
	})
}

// toDisk has a node write its definitions to disk: Mnesia's log, and the DETS tables of Ra.
const toDisk = "mnesia:sync_log(), [ok = dets:sync(T) || T <- dets:all()]."

// restart checks the driver while the lab kills and starts the process. RabbitMQ answers a declaration before it is on
// disk, up to some seconds before: a broker that is killed then may keep a queue and forget its binding, or the members
// of a stream or quorum queue. ctl, a variable with the path of rabbitmqctl, has them written first.
func restart(t *testing.T, options json.RawMessage, process, ctl string) {
	t.Helper()
	h := harness(driver{}, options, []string{"restart"})
	kill := labtest.Restart(process)
	if kill != nil {
		h.Restart = func(t *testing.T) {
			if out, err := exec.Command(lab.Variable(t, ctl), "eval", toDisk).CombinedOutput(); err != nil {
				t.Fatalf("rabbitmqctl eval: %v: %s", err, out)
			}
			kill(t)
		}
	}
	drivertest.Run(t, h)
}
