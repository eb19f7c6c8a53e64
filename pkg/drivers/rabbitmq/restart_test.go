package rabbitmq

import (
	"encoding/json"
	"os/exec"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// No other package uses the brokers that this file restarts. Its tests are the last of the package.
func TestRestart(t *testing.T) {
	restart(t, single(t, `{}`), "rabbitmq", "LOCKSTEP_RABBITMQ_CTL")
}

// In a cluster, the node with all links is restarted, and the others keep the queue.
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

// toDisk makes a node write its definitions to disk: Mnesia's log, and the DETS tables of Ra.
const toDisk = "mnesia:sync_log(), [ok = dets:sync(T) || T <- dets:all()]."

// restart runs the check while the lab kills and starts the process. RabbitMQ confirms a declaration some seconds
// before it is on disk. A broker that is killed in that time may keep a queue without its binding, or without the
// members of a stream or quorum queue. So the definitions are written first. ctl is the variable with the path of
// rabbitmqctl.
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
