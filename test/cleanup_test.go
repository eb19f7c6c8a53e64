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

// tell sends a change to the management API.
func (m management) tell(method, path string, body any) {
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

// named lists the objects of the broker whose names begin with prefix.
func (m management) named(prefix string) (names []string) {
	m.t.Helper()
	for _, kind := range []string{"exchanges", "queues"} {
		var all []placed
		m.must("/"+kind, &all)
		for _, x := range all {
			if strings.HasPrefix(x.Name, prefix) {
				names = append(names, x.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// cleaning is a broker with its own user, whose password must not be printed, and a matrix for it.
type cleaning struct {
	t             *testing.T
	api           management
	dir, password string
	url, manager  string
}

func newCleaning(t *testing.T) *cleaning {
	t.Helper()
	first, _, _ := strings.Cut(variable(t, "LOCKSTEP_RABBITMQ3_URLS"), ",") // no test kills this node
	manager := variable(t, "LOCKSTEP_RABBITMQ3_MANAGEMENT")
	s := &cleaning{t: t, api: managementOf(t, "LOCKSTEP_RABBITMQ3_MANAGEMENT"), dir: t.TempDir(),
		password: "hunter2-and-more"}
	user := fmt.Sprintf("sweeper-%d", time.Now().UnixNano())
	s.api.tell(http.MethodPut, "/users/"+user, map[string]string{"password": s.password, "tags": "administrator"})
	t.Cleanup(func() { s.api.tell(http.MethodDelete, "/users/"+user, nil) })
	s.api.tell(http.MethodPut, "/permissions/%2f/"+user,
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
func (s *cleaning) matrix(options string) string {
	s.t.Helper()
	return writeMatrix(s.t, s.dir, fmt.Sprintf(`package matrix
name: "cleanup"
brokers: rabbit: {driver: "rabbitmq", options: %s}
axes: mode: ["confirm-window"]
cell: {axis: _, publishers: {mode: axis.mode, rate: 100}, topology: {queues: 2, bindings: 3}, consumers: threads: 2, warmup: "200ms", measure: "60s"}
`, options))
}

// killed starts a run and kills it during a cell, so that its objects stay at the broker.
func (s *cleaning) killed(file string) (run string, left []string) {
	s.t.Helper()
	f := &fleet{t: s.t, dir: s.dir}
	if err := os.RemoveAll(filepath.Join(s.dir, "runs")); err != nil {
		s.t.Fatal(err)
	}
	ctl := start(s.t, s.dir, "ctl", "run", file)
	process.Eventually(s.t, "measuring", f.measuring)
	ctl.Kill()
	run = f.runID()
	if left = s.api.named("lockstep-" + run); len(left) < 3 {
		s.t.Fatalf("a killed run has left %v: want two queues and an exchange", left)
	}
	return run, left
}

// cleanup runs ctl runs cleanup with a standard input, which may be nil, and checks that it does not print the
// password.
func (s *cleaning) cleanup(in *os.File, args ...string) (code int, out string) {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(programs, "ctl"), append([]string{"runs", "cleanup"}, args...)...)
	cmd.Dir, cmd.Stdin = s.dir, in
	text, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	if strings.Contains(string(text), s.password) {
		s.t.Errorf("ctl runs cleanup shows the password:\n%s", text)
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

// A run is killed during a cell. Its objects are listed, and removed only after a confirmation. Other objects stay.
func TestCleanupAfterAKill(t *testing.T) {
	s := newCleaning(t)
	t.Parallel()
	file := s.matrix(fmt.Sprintf("{url: %q, management: %q}", s.url, s.manager))
	run, left := s.killed(file)
	other := "lockstep-20000101-000000-another-" + run[len(run)-4:] + "-s0-q0"
	precious := "precious-" + run
	for _, name := range []string{other, precious} {
		s.api.tell(http.MethodPut, "/queues/%2f/"+name, map[string]bool{"durable": true})
		t.Cleanup(func() { s.api.tell(http.MethodDelete, "/queues/%2f/"+name, nil) })
	}
	untouched := func(after string) {
		t.Helper()
		if now := s.api.named("lockstep-" + run); !slices.Equal(now, left) {
			t.Errorf("%s the broker has %v, want %v", after, now, left)
		}
	}
	lists := func(out string) {
		t.Helper()
		for _, name := range left {
			if !strings.Contains(out, name) {
				t.Errorf("%s is not listed:\n%s", name, out)
			}
		}
		if strings.Contains(out, precious) || strings.Contains(out, other) {
			t.Errorf("what is not of this run is listed:\n%s", out)
		}
	}
	code, out := s.cleanup(nil, "latest")
	if code != 2 || !strings.Contains(out, "--yes") {
		t.Errorf("without a terminal ctl runs cleanup exited with %d, want 2 and a word about --yes:\n%s", code, out)
	}
	lists(out)
	untouched("after nobody was asked")
	for typed, word := range map[string]string{"n\n": "no", "\n": "nothing", "yes, but not now\n": "something else"} {
		code, out := s.cleanup(terminal(t, typed), "latest")
		if code != 0 || !strings.Contains(out, "nothing removed") {
			t.Errorf("after %s ctl runs cleanup exited with %d:\n%s", word, code, out)
		}
		lists(out)
		untouched("after " + word)
	}
	code, out = s.cleanup(nil, "--run", run, "--yes", file)
	if code != 0 || !strings.Contains(out, "removed") {
		t.Errorf("with --yes ctl runs cleanup exited with %d:\n%s", code, out)
	}
	lists(out)
	s.api.nothingLeft(run)
	for _, name := range []string{other, precious} {
		if len(s.api.named(name)) != 1 {
			t.Errorf("%s is gone, which was not of this run", name)
		}
	}
	if code, out := s.cleanup(nil, "latest"); code != 0 {
		t.Errorf("with nothing left ctl runs cleanup exited with %d:\n%s", code, out)
	}
	if code, out := s.cleanup(nil, file); code != 2 || !strings.Contains(out, other) {
		t.Errorf("ctl runs cleanup of the matrix exited with %d and does not list another run's %s:\n%s", code, other, out)
	}
}

// With a confirmation, objects are removed. A broker that cannot list its objects is told to remove those of the
// record.
func TestCleanupOfARecord(t *testing.T) {
	s := newCleaning(t)
	t.Parallel()
	file := s.matrix(fmt.Sprintf("{url: %q}", s.url))
	run, _ := s.killed(file)
	code, out := s.cleanup(nil, "--run", run, "--yes", file)
	if code != 1 || !strings.Contains(out, "management") {
		t.Errorf("of a matrix whose broker cannot list ctl runs cleanup exited with %d, want 1 and what to do:\n%s", code, out)
	}
	if code, out = s.cleanup(terminal(t, "y\n"), run); code != 0 ||
		!strings.Contains(out, "of 1 attempts of the run;") {
		t.Errorf("of the record ctl runs cleanup exited with %d:\n%s", code, out)
	}
	s.api.nothingLeft(run)
}

// A broker that cannot be reached is reported with its address.
func TestCleanupReportsUnreachableBrokers(t *testing.T) {
	s := newCleaning(t)
	t.Parallel()
	file := s.matrix(fmt.Sprintf("{url: \"amqp://u:%s@127.0.0.1:1/\", management: %q}", s.password, s.manager))
	code, out := s.cleanup(nil, "--yes", file)
	if code != 1 || !strings.Contains(out, "127.0.0.1:1") {
		t.Errorf("ctl runs cleanup exited with %d, want 1 and the address:\n%s", code, out)
	}
	for _, args := range [][]string{{}, {"--run", "x", "latest"}, {filepath.Join(s.dir, "none.cue")}} {
		if code, out := s.cleanup(nil, args...); code != 2 {
			t.Errorf("ctl runs cleanup %v exited with %d, want 2:\n%s", args, code, out)
		}
	}
}
