package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/test/process"
)

// send sends a change to the management API.
func (m management) send(method, path string, body any) {
	m.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		m.t.Fatal(err)
	}
	request, err := http.NewRequest(method, m.base+path, bytes.NewReader(text))
	if err != nil {
		m.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		m.t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		m.t.Fatalf("%s %s: %s", method, path, response.Status)
	}
}

// objects lists the objects of the broker whose names begin with prefix.
func (m management) objects(prefix string) (names []string) {
	m.t.Helper()
	for _, kind := range []string{"exchanges", "queues"} {
		var all []brokerObject
		m.mustGet("/"+kind, &all)
		for _, x := range all {
			if strings.HasPrefix(x.Name, prefix) {
				names = append(names, x.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// cleanupSetup is a broker with its own user, whose password must not be printed, and a matrix for it.
type cleanupSetup struct {
	t             *testing.T
	api           management
	dir, password string
	url, manager  string
}

func newCleanupSetup(t *testing.T) *cleanupSetup {
	t.Helper()
	first, _, _ := strings.Cut(variable(t, "LOCKSTEP_RABBITMQ3_URLS"), ",") // no test kills this node
	manager := variable(t, "LOCKSTEP_RABBITMQ3_MANAGEMENT")
	s := &cleanupSetup{t: t, api: managementOf(t, "LOCKSTEP_RABBITMQ3_MANAGEMENT"), dir: t.TempDir(),
		password: "hunter2-and-more"}
	user := fmt.Sprintf("cleanup-%d", time.Now().UnixNano())
	s.api.send(http.MethodPut, "/users/"+user, map[string]string{"password": s.password, "tags": "administrator"})
	t.Cleanup(func() { s.api.send(http.MethodDelete, "/users/"+user, nil) })
	s.api.send(http.MethodPut, "/permissions/%2f/"+user,
		map[string]string{"configure": ".*", "write": ".*", "read": ".*"})
	as := func(address string) string {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(user, s.password)
		return u.String()
	}
	s.url, s.manager = as(first), as(manager)
	return s
}

// matrix writes a matrix for a broker with these options.
func (s *cleanupSetup) matrix(options string) string {
	s.t.Helper()
	return writeMatrix(s.t, s.dir, fmt.Sprintf(`package matrix
name: "cleanup"
brokers: rabbit: {driver: "rabbitmq", options: %s}
axes: mode: ["confirm-window"]
cell: {axis: _, publishers: {mode: axis.mode, rate: 100}, topology: {queues: 2, bindings: 3}, consumers: threads: 2, warmup: "200ms", measure: "60s"}
`, options))
}

// killRun starts a run and kills it during a cell, so that its objects remain at the broker. It returns their names.
func (s *cleanupSetup) killRun(file string) (run string, left []string) {
	s.t.Helper()
	f := &fleet{t: s.t, dir: s.dir}
	if err := os.RemoveAll(filepath.Join(s.dir, "runs")); err != nil {
		s.t.Fatal(err)
	}
	ctl := start(s.t, s.dir, "ctl", "run", file)
	process.Eventually(s.t, "the start of the measurement", f.isMeasuring)
	ctl.Kill()
	run = f.runID()
	if left = s.api.objects("lockstep-" + run); len(left) < 3 {
		s.t.Fatalf("objects of the killed run: got %v, want two queues and an exchange", left)
	}
	return run, left
}

// runCleanup runs ctl runs cleanup with a standard input, which may be nil, and checks that it does not print the
// password.
func (s *cleanupSetup) runCleanup(in *os.File, args ...string) (code int, out string) {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(programs, "ctl"), append([]string{"runs", "cleanup"}, args...)...)
	cmd.Dir, cmd.Stdin = s.dir, in
	text, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	if strings.Contains(string(text), s.password) {
		s.t.Errorf("output of ctl runs cleanup: got the password, want none:\n%s", text)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

// terminal returns a terminal with typed input.
func terminal(t *testing.T, typed string) *os.File {
	t.Helper()
	terminal, master := process.Terminal(t)
	if _, err := master.WriteString(typed); err != nil {
		t.Fatal(err)
	}
	return terminal
}

// A run is killed during a cell. Its objects are listed, and removed only after a confirmation. Other objects remain.
func TestCleanupAfterAKill(t *testing.T) {
	s := newCleanupSetup(t)
	t.Parallel()
	file := s.matrix(fmt.Sprintf("{url: %q, management: %q}", s.url, s.manager))
	run, left := s.killRun(file)
	other := "lockstep-20000101-000000-another-" + run[len(run)-4:] + "-s0-q0"
	unrelated := "unrelated-" + run
	for _, name := range []string{other, unrelated} {
		s.api.send(http.MethodPut, "/queues/%2f/"+name, map[string]bool{"durable": true})
		t.Cleanup(func() { s.api.send(http.MethodDelete, "/queues/%2f/"+name, nil) })
	}
	checkUnchanged := func(after string) {
		t.Helper()
		if now := s.api.objects("lockstep-" + run); !slices.Equal(now, left) {
			t.Errorf("objects of the run %s: got %v, want %v", after, now, left)
		}
	}
	checkListed := func(out string) {
		t.Helper()
		for _, name := range left {
			if !strings.Contains(out, name) {
				t.Errorf("output of ctl runs cleanup: got no %s, want it listed:\n%s", name, out)
			}
		}
		if strings.Contains(out, unrelated) || strings.Contains(out, other) {
			t.Errorf("output of ctl runs cleanup: got %s or %s, which are not of this run:\n%s", unrelated, other, out)
		}
	}
	code, out := s.runCleanup(nil, "latest")
	if code != 2 || !strings.Contains(out, "--yes") {
		t.Errorf("ctl runs cleanup without a terminal: got exit code %d, want 2 and a message with --yes:\n%s", code,
			out)
	}
	checkListed(out)
	checkUnchanged("without a terminal")
	for _, typed := range []string{"n\n", "\n", "yes, but not now\n"} {
		code, out := s.runCleanup(terminal(t, typed), "latest")
		if code != 0 || !strings.Contains(out, "nothing removed") {
			t.Errorf("ctl runs cleanup with the input %q: got exit code %d, want 0 and nothing removed:\n%s", typed,
				code, out)
		}
		checkListed(out)
		checkUnchanged(fmt.Sprintf("after the input %q", typed))
	}
	code, out = s.runCleanup(nil, "--run", run, "--yes", file)
	if code != 0 || !strings.Contains(out, "removed") {
		t.Errorf("ctl runs cleanup --yes: got exit code %d, want 0 and the removal reported:\n%s", code, out)
	}
	checkListed(out)
	s.api.checkNoLeftovers(run)
	for _, name := range []string{other, unrelated} {
		if len(s.api.objects(name)) != 1 {
			t.Errorf("queue %s, which is not of this run: got none, want it unchanged", name)
		}
	}
	if code, out := s.runCleanup(nil, "latest"); code != 0 {
		t.Errorf("ctl runs cleanup without remaining objects: got exit code %d, want 0:\n%s", code, out)
	}
	if code, out := s.runCleanup(nil, file); code != 2 || !strings.Contains(out, other) {
		t.Errorf("ctl runs cleanup of a matrix: got exit code %d, want 2 and %s of another run listed:\n%s", code,
			other, out)
	}
}

// With a confirmation, objects are removed. If the broker cannot list its objects, those in the record are removed.
func TestCleanupOfARecord(t *testing.T) {
	s := newCleanupSetup(t)
	t.Parallel()
	file := s.matrix(fmt.Sprintf("{url: %q}", s.url))
	run, _ := s.killRun(file)
	code, out := s.runCleanup(nil, "--run", run, "--yes", file)
	if code != 1 || !strings.Contains(out, "management") {
		t.Errorf("ctl runs cleanup without a management API: got exit code %d, want 1 and \"management\":\n%s", code,
			out)
	}
	if code, out = s.runCleanup(terminal(t, "y\n"), run); code != 0 ||
		!strings.Contains(out, "of 1 attempts of the run;") {
		t.Errorf("ctl runs cleanup of a run: got exit code %d, want 0 and 1 attempt of the run:\n%s", code, out)
	}
	s.api.checkNoLeftovers(run)
}

// A broker that cannot be reached is reported with its address.
func TestCleanupReportsUnreachableBrokers(t *testing.T) {
	s := newCleanupSetup(t)
	t.Parallel()
	file := s.matrix(fmt.Sprintf("{url: \"amqp://u:%s@127.0.0.1:1/\", management: %q}", s.password, s.manager))
	code, out := s.runCleanup(nil, "--yes", file)
	if code != 1 || !strings.Contains(out, "127.0.0.1:1") {
		t.Errorf("ctl runs cleanup of an unreachable broker: got exit code %d, want 1 and its address:\n%s", code, out)
	}
	for _, args := range [][]string{{}, {"--run", "x", "latest"}, {filepath.Join(s.dir, "none.cue")}} {
		if code, out := s.runCleanup(nil, args...); code != 2 {
			t.Errorf("ctl runs cleanup %v: got exit code %d, want 2:\n%s", args, code, out)
		}
	}
}
