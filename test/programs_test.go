// Package test tests the behaviour of whole programs with real brokers.
package test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rogpeppe/go-internal/testscript"

	"example.org/lockstep/lockstep/test/process"
)

var update = flag.Bool("update", false, "rewrite the expected output in scripts")

// programs is the folder of the three programs with the race detector. broker is the URL of a NATS server under test
// that several processes can use.
var programs, broker string

// plain returns the folder of the programs without the race detector: for measurements, and for tests of the output of
// programs.
var plain = sync.OnceValues(func() (string, error) { return process.Programs(built, false) })

// built is the folder in which programs are built.
var built string

func TestMain(m *testing.M) {
	if where, is := os.LookupEnv(natsProcess); is {
		os.Exit(serveNATS(where))
	}
	flag.Parse()
	syscall.Umask(0o022) // programs reject files with commands that a group can write
	if err := process.Beside(5); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(run(m))
}

// run builds the programs, starts a NATS server under test, and runs the tests.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "lockstep-programs-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built = dir
	os.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))   // instead of the user's folder of runs
	os.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config")) // instead of the user's configured fleets
	if programs, err = process.Programs(dir, true); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	goCache, err := exec.Command("go", "env", "GOCACHE").Output() // is below the user's cache by default
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	os.Setenv("GOCACHE", strings.TrimSpace(string(goCache)))
	os.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache")) // instead of the user's cached ceilings
	nats, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true,
		StoreDir: filepath.Join(dir, "nats"), NoSigs: true, NoLog: true})
	if err != nil {
		fmt.Fprintf(os.Stderr, "start the NATS under test: %v\n", err)
		return 1
	}
	nats.Start()
	defer nats.Shutdown()
	broker = nats.ClientURL()
	return m.Run()
}

// TestScripts runs the whole programs with the scripts in testdata, which compare exit codes, output and files.
func TestScripts(t *testing.T) {
	t.Parallel()
	folder, err := plain()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			port := freePort(t)
			root, err := filepath.Abs("..")
			if err != nil {
				return err
			}
			env.Setenv("PATH", folder+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("SERVER", "127.0.0.1:"+port)
			env.Setenv("NATS", broker)
			env.Setenv("MATRICES", filepath.Join(root, "matrices"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"alter": alter, "code": exitCode,
			"until": untilOutput},
	})
}

// exitCode implements "code N program args…": the program must exit with this code.
func exitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N program args…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("run %s: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s: got exit code %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// untilOutput implements "until text program args…": the program is repeated until its output contains the text.
func untilOutput(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until text program args…")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for {
		err := ts.Exec(args[1], args[2:]...)
		out := ts.ReadFile("stdout") + ts.ReadFile("stderr")
		if err == nil && strings.Contains(out, args[0]) {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			ts.Fatalf("timed out after 5 min waiting for the output %q; last output: %s (%v)", args[0], out, err)
		}
	}
}

// freePort returns a free port of 127.0.0.1.
func freePort(t *testing.T) string {
	t.Helper()
	return strconv.Itoa(process.Ports(t, 1)[0])
}
