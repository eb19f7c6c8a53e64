package test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/test/lab/labtest"
	"example.org/lockstep/lockstep/test/process"
)

// A fault in the test's own RabbitMQ does not affect another instance. At the end of the test, all its processes are
// stopped. The same is true of RabbitMQ in a separate root directory: its process can be paused and observed, and
// rabbitmqctl works.
func TestOwnRabbitMQ(t *testing.T) {
	t.Parallel()
	for part, version := range map[string]string{"rabbitmq": "3.", "rabbitmq4": "4.0.", "rabbitmq43": "4."} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			prefix := "LOCKSTEP_" + strings.ToUpper(part)
			pids := map[string]bool{}
			t.Run("fault", func(t *testing.T) {
				other := labtest.Own(t, part)
				own := labtest.Own(t, part)
				api := management{t, own.Variable(prefix+"_MANAGEMENT") + "/api"}
				var overview struct {
					Version string `json:"rabbitmq_version"`
				}
				if api.mustGet("/overview", &overview); !strings.HasPrefix(overview.Version, version) ||
					part == "rabbitmq43" && regexp.MustCompile(`^4\.[0-2]\.`).MatchString(overview.Version) {
					t.Errorf("version of %s: got %s, want %s*, and at least 4.3 for rabbitmq43", part, overview.Version,
						version)
				}
				const address = "http://guest:guest@127.0.0.1"
				if url := own.Variable(prefix + "_MANAGEMENT"); url == other.Variable(prefix+"_MANAGEMENT") ||
					!strings.HasPrefix(url, address) {
					t.Errorf("address of the management API: got %s, want %s with a port of its own", url, address)
				}
				metrics, err := http.Get(own.Variable(prefix+"_PROMETHEUS") + "/metrics")
				if err != nil {
					t.Fatal(err)
				}
				_ = metrics.Body.Close()
				if metrics.StatusCode != http.StatusOK {
					t.Errorf("Prometheus metrics: got status %s, want 200 OK", metrics.Status)
				}
				node, err := exec.Command(own.Variable(prefix+"_CTL"), "eval", "node().").CombinedOutput()
				if err != nil || !strings.Contains(string(node), "rmq1@localhost") {
					t.Errorf("rabbitmqctl eval node(): got %s, %v, want rmq1@localhost", node, err)
				}
				pid := own.Variable(prefix + "_PID")
				pids[pid], pids[other.Variable(prefix+"_PID")] = true, true
				if name := statusOf(pid)["Name"]; name != "beam.smp" {
					t.Errorf("name of process %s: got %q, want beam.smp", pid, name)
				}
				labtest.Control(t, "pause", own.Process(1))
				process.Eventually(t, "state T (stopped) of the paused broker",
					func() bool { return strings.HasPrefix(statusOf(pid)["State"], "T") })
				if state := statusOf(other.Variable(prefix + "_PID"))["State"]; strings.HasPrefix(state, "T") {
					t.Errorf("state of the broker that was not paused: got %q, want it not stopped", state)
				}
				labtest.Control(t, "resume", own.Process(1))
				labtest.Control(t, "kill", own.Process(1))
				if status := statusOf(pid); status["Name"] == "beam.smp" && !strings.HasPrefix(status["State"], "Z") {
					t.Errorf("status of the killed broker: got %v, want no process, or a zombie", status)
				}
				labtest.Control(t, "start", own.Process(1))
				api.mustGet("/overview", &overview)
				again, err := exec.Command(own.Variable(prefix+"_CTL"), "eval", "os:getpid().").Output()
				if err != nil {
					t.Fatal(err)
				}
				pids[strings.Trim(string(again), "\"\n")] = true
			})
			for pid := range pids {
				if name := statusOf(pid)["Name"]; name == "beam.smp" {
					t.Errorf("process %s after the end of the test: got %s, want none", pid, name)
				}
			}
			if text, err := os.ReadFile("/proc/self/mountinfo"); err != nil ||
				strings.Contains(string(text), "lockstep-lab") {
				t.Errorf("mounts outside the lab: got one of the lab, or error %v:\n%s", err, text)
			}
		})
	}
}

// statusOf returns the fields of /proc/PID/status; none if the process has ended.
func statusOf(pid string) map[string]string {
	fields := map[string]string{}
	if _, err := strconv.Atoi(pid); err != nil {
		return fields
	}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%s/status", pid)) // it may have ended
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields
}
