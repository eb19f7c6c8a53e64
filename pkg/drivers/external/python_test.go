package external

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// python returns the command of the example. Without an interpreter the test is skipped, or fails if all tests are
// required.
func python(t *testing.T) Command {
	t.Helper()
	// The interpreter itself: the first one in the path may be a script that starts more slowly.
	interpreter, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		if os.Getenv("CI") != "" || os.Getenv("LOCKSTEP_LAB") != "" {
			t.Fatalf("the example of a driver in Python is not tested: %v", err)
		}
		t.Skipf("the example of a driver in Python is not tested: %v", err)
	}
	dir, err := filepath.Abs("../../../examples/driver-python")
	if err != nil {
		t.Fatal(err)
	}
	return Command{Command: []string{strings.TrimSpace(string(interpreter)), "nats_driver.py"},
		Env: map[string]string{"PYTHONDONTWRITEBYTECODE": "1"}, Dir: dir}
}

// testLog writes the driver's log to the test's output.
func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// TestPythonExample proves that the example, which the documentation uses as a template, fulfils the driver contract
// with a real server, and with each resilience.
func TestPythonExample(t *testing.T) {
	d, err := New(t.Context(), "nats-python", python(t), testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := net.SplitHostPort(labtest.FreeAddress(t))
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	stop := startNATS(t, port, dir)
	defer func() { stop() }()
	options := fmt.Sprintf(`"url": "nats://user:p%%40ss@127.0.0.1:%d", "replicas": 1, "ackWait": 10`, port)
	drivertest.RunAll(t, map[string]drivertest.Harness{
		"none": {Driver: d, Options: json.RawMessage(`{` + options + `, "resilience": "none"}`),
			Subset: []string{"mode/confirm-window", "order", "cut"}},
		"vendor": {
			Driver:  d,
			Options: json.RawMessage(`{` + options + `}`),
			WrongCredentials: json.RawMessage(fmt.Sprintf(`{"url": "nats://user:%s@127.0.0.1:%d", "replicas": 1, "ackWait": 10}`,
				drivertest.WrongPassword, port)),
			DeadOptions: json.RawMessage(`{"url": "nats://127.0.0.1:1", "replicas": 1, "ackWait": 10}`),
			Reject:      &drivertest.Rejection{Size: 1<<20 + 1}, // the default of the server's max_payload is 1 MiB
			Restart: func(t *testing.T) {
				stop()
				stop = startNATS(t, port, dir)
			},
		},
	})
}

// faultyPython is a driver with a mistake in a method of publishers, which runs in a thread of its own.
const faultyPython = `
from lockstep_driver import serve

class Part:
    node = ""
    def __init__(self, *_): pass
    def setup(self, topology): pass
    def connect(self, *_): return self
    def publisher(self, *_): return self
    def publish(self, first, messages): return {}["missing"]
    def close(self): pass
    def cut(self): pass

serve({"protocol": 5, "name": "faulty", "version": "1", "doc": "A driver.", "schema": "#Options: {}", "declares": [
    {"modes": ["fire-and-forget"], "acks": ["each"], "label": "none", "capabilities": {"transient": True}}]}, Part)
`

// An exception in a method of a publisher ends the process. Otherwise Publish would block as if the broker did.
func TestPythonMistake(t *testing.T) {
	noLeaks(t)
	command, dir := python(t), t.TempDir()
	command.Env["PYTHONPATH"] = command.Dir
	command.Command[1], command.Dir = "faulty.py", dir
	if err := os.WriteFile(filepath.Join(dir, "faulty.py"), []byte(faultyPython), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := newDriver(t.Context(), "faulty", command, quick, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Open(t.Context(), json.RawMessage(`{}`), drivers.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	spec := newLedger().spec()
	spec.Mode = drivers.FireAndForget
	p := publish(t, s, spec)
	if err := p.Publish(t.Context(), drivers.Message{Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if err := ended(t, p, "publisher"); !strings.Contains(err.Error(), "KeyError: 'missing'") {
		t.Errorf("the publisher ends with %v", err)
	}
}

func startNATS(t *testing.T, port int, dir string) (stop func()) {
	t.Helper()
	srv, err := server.NewServer(&server.Options{ServerName: "python", Host: "127.0.0.1", Port: port, NoSigs: true,
		NoLog:     true,
		JetStream: true, StoreDir: dir, Username: "user", Password: "p@ss"})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not accept connections")
	}
	return func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
}
