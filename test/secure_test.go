package test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"example.org/lockstep/lockstep/test/process"
)

// rightPassword and wrongPassword are secrets of the broker's users. They may only be in the agents' environment and in
// the broker. The texts are unique, so that a search of files and output finds them.
const rightPassword, wrongPassword = "canary-k4Zq81xW", "canary-b0Tt7-v2m"

const secretMatrix = `package matrix

name: "canary"
brokers: {
	good: {driver: "nats", options: {urls: ["nats://bench:${env:RIGHT_PASSWORD}@%[1]s"], storage: "memory"}}
	bad: {driver: "nats", options: {urls: ["nats://bench:${env:WRONG_PASSWORD}@%[1]s"], storage: "memory"}}
}
axes: broker: ["good", "bad"]
cell: {
	axis: _
	publishers: {threads: 1, mode: "confirm-window", persistent: false}
	consumers: {nodes: 1}
	warmup: "100ms"
	measure: "3s"
}
tables: [{rows: ["broker"], values: ["publish.rate", "consume.rate", "lost"]}]
`

// TestASecureFleetRunsAndKeepsItsSecrets creates credentials with the programs and runs a matrix over TLS, with one
// credential per program. The broker's secrets are in no file and no output, and an agent's credentials permit nothing
// else.
func TestASecureFleetRunsAndKeepsItsSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tested := guardedBroker(t)
	creds := filepath.Join(dir, "creds")
	mustRun(t, dir, nil, "ctl", "fleet", "init", creds, "--host", "bench-1.example.org", "--agents", "a1,a2")
	port := freePort(t)
	as := func(name string) []string {
		return []string{"LOCKSTEP_SERVER=tls://127.0.0.1:" + port, "LOCKSTEP_CA=" + filepath.Join(creds, "ca.crt"),
			"LOCKSTEP_CREDS=" + filepath.Join(creds, name+".nk")}
	}
	secrets := []string{"RIGHT_PASSWORD=" + rightPassword, "WRONG_PASSWORD=" + wrongPassword}
	controller := daemon(t, dir, []string{"LOCKSTEP_LISTEN=127.0.0.1:" + port,
		"LOCKSTEP_NATS_CONFIG=" + filepath.Join(creds, "nats.conf"),
		"LOCKSTEP_CREDS=" + filepath.Join(creds, "controller.nk"), "LOCKSTEP_DIR=" + filepath.Join(dir, "controller"),
		"LOCKSTEP_VERBOSE=true"}, "controller")
	agents := map[string]*process.Process{}
	for _, name := range []string{"a1", "a2"} {
		agents[name] = daemon(t, dir, append(append(as("agents/"+name), secrets...), "LOCKSTEP_NAME="+name,
			"LOCKSTEP_DIR="+filepath.Join(dir, name),
			"LOCKSTEP_ENV=RIGHT_PASSWORD,WRONG_PASSWORD", "LOCKSTEP_VERBOSE=true"), "agent")
	}
	matrix := filepath.Join(dir, "matrix.cue")
	if err := os.WriteFile(matrix, fmt.Appendf(nil, secretMatrix, tested), 0o600); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		out, err := program(t, dir, as("client"), "ctl", "fleet", "agents")
		if err == nil && strings.Contains(out, "a1") && strings.Contains(out, "a2") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("timed out after 1 min waiting for agents a1 and a2: %v\n%s", err, out)
		}
		time.Sleep(200 * time.Millisecond) // between two checks of other processes
	}

	out, err := program(t, dir, as("client"), "ctl", "run", "--verbose", matrix)
	if err == nil || !strings.Contains(out, "2 tasks: 1 valid, 0 invalid, 1 failed") {
		t.Errorf("run with a wrong password for one of two brokers: got error %v, want 1 valid and 1 failed task:\n%s",
			err, out)
	}
	for _, name := range []string{"agents/a1", "viewer"} {
		if out, err := program(t, dir, as(name), "ctl", "run", "--runs", filepath.Join(dir, "stolen"),
			matrix); err == nil || !strings.Contains(out, "do not allow this") {
			t.Errorf("ctl run with the credentials of %s: got error %v, want \"do not allow this\":\n%s", name, err,
				out)
		}
	}

	// Every command of a client works with its credentials, and every reading command with those of a viewer.
	if err := os.WriteFile(filepath.Join(dir, "nightly.cue"), []byte(nightly), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ who, command, want string }{
		{"viewer", "runs list", "done"}, {"viewer", "fleet agents", "a1"}, {"viewer", "runs attach latest --runs attached", "2 tasks"},
		{"viewer", "runs pull latest pulled", "complete"},
		{"viewer", "history --metric publish.rate", ""}, {"viewer", "schedule list", ""},
		{"client", "runs list", "done"}, {"client", "runs attach latest", "2 tasks"}, {"client", "runs pull latest", "complete"},
		{"client", "runs cancel latest", "has already ended"},
		{"client", "schedule add --cron @yearly --tz UTC nightly.cue", "nightly"},
		{"viewer", "schedule show nightly", "nightly"},
		{"client", "schedule pause nightly", ""}, {"client", "schedule resume nightly", ""},
		{"client", "schedule run nightly", "nightly"},
		{"client", "schedule remove nightly", "removed"},
	} {
		out, _ := program(t, dir, as(x.who), "ctl", strings.Fields(x.command)...)
		if !strings.Contains(out, x.want) || strings.Contains(out, "do not allow this") ||
			strings.Contains(out, "no controller") {
			t.Errorf("ctl %s with the credentials of %s: got %q, want %q", x.command, x.who, out, x.want)
		}
	}

	// A removed agent is disconnected when the configuration is reloaded.
	kept, err := os.ReadFile(filepath.Join(creds, "agents", "a2.nk"))
	if err != nil {
		t.Fatal(err)
	}
	mustRun(t, dir, nil, "ctl", "fleet", "remove", creds, "a2")
	if err := os.WriteFile(filepath.Join(creds, "agents", "a2.nk"), kept, 0o600); err != nil {
		t.Fatal(err)
	}
	controller.Signal(syscall.SIGHUP)
	for deadline := time.Now().Add(time.Minute); ; {
		out, err := program(t, dir, as("client"), "ctl", "fleet", "agents")
		if err == nil && strings.Contains(out, "a1") && !strings.Contains(out, "a2") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("timed out after 1 min waiting until the removed agent a2 is not listed: %v\n%s", err, out)
		}
		time.Sleep(200 * time.Millisecond) // between two checks of other processes
	}
	agents["a2"].ExitCode()
	if output := agents["a2"].Output(); !strings.Contains(output, "no longer accepts the credentials of agent a2") {
		t.Errorf("output of the removed agent: got no message about rejected credentials:\n%s", output)
	}
	noSecrets(t, dir, 30, rightPassword, wrongPassword)
}

// guardedBroker starts a NATS server under test that requires a password, and returns host:port.
func guardedBroker(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(),
		NoSigs: true, NoLog: true, Username: "bench", Password: rightPassword})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("timed out after 1 min waiting for the NATS server under test")
	}
	return s.Addr().String()
}

// program runs a program without the test's own settings. Its output is a file in the folder.
func program(t *testing.T, dir string, env []string, name string, args ...string) (string, error) {
	t.Helper()
	p := daemon(t, dir, env, name, args...)
	if code := p.ExitCode(); code != 0 {
		return p.Output(), fmt.Errorf("exit code %d", code)
	}
	return p.Output(), nil
}

func mustRun(t *testing.T, dir string, env []string, name string, args ...string) {
	t.Helper()
	if out, err := program(t, dir, env, name, args...); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// daemon starts a program without the test's own settings, with its log in the folder, until the end of the test.
func daemon(t *testing.T, dir string, env []string, name string, args ...string) *process.Process {
	t.Helper()
	return process.Start(t, process.Command{Dir: dir, Env: env, Bare: true,
		Argv: append([]string{filepath.Join(programs, name)}, args...)})
}

// noSecrets checks that no file below a folder contains a secret, and that there is a minimum number of files.
func noSecrets(t *testing.T, dir string, minFiles int, secrets ...string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.Type().IsRegular() {
			return nil
		}
		var text []byte
		if err == nil {
			text, err = os.ReadFile(path)
		}
		if errors.Is(err, fs.ErrNotExist) { // a server removes its own files meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		files++
		for _, secret := range secrets {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s: got the secret %q, want none", path, secret)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < minFiles {
		t.Errorf("searched files: got %d, want at least %d", files, minFiles)
	}
}
