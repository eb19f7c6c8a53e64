package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	_ "example.org/lockstep/lockstep/pkg/drivers/nats"
)

// The matrix of docs/howto/external-drivers.md runs: the Python example and the built-in driver, with one server.
func TestDocumentedExternalDriver(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		if os.Getenv("CI") != "" || os.Getenv("LOCKSTEP_LAB") != "" {
			t.Fatalf("the example of a driver in Python is not tested: %v", err)
		}
		t.Skipf("the example of a driver in Python is not tested: %v", err)
	}
	page, err := os.ReadFile("../../docs/howto/external-drivers.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^ctl (run --drivers .*)$`).FindSubmatch(page)
	if command == nil {
		t.Fatal("docs/howto/external-drivers.md shows no ctl run --drivers")
	}
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(),
		NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	defer srv.Shutdown()
	if !srv.ReadyForConnections(2 * time.Minute) {
		t.Fatal("the server does not accept connections")
	}
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	args := []string{"--runs", t.TempDir(), "--quick"}
	for _, broker := range []string{"go", "python"} {
		args = append(args, "--set", fmt.Sprintf(`brokers.%s.options.url=%q`, broker, srv.ClientURL()))
	}
	fields := strings.Fields(string(command[1]))
	for _, field := range fields[1:] {
		if strings.HasPrefix(field, "examples/") {
			field = filepath.Join("../..", field)
		}
		args = append(args, field)
	}
	var out, errs bytes.Buffer
	code := Ctl(t.Context(), append(fields[:1:1], args...), strings.NewReader(""), &out, &errs)
	t.Logf("%s\n%s", out.String(), errs.String())
	if code != ExitOK {
		t.Errorf("exit code %d, want %d", code, ExitOK)
	}
	if tasks := regexp.MustCompile(`broker=python mode=[a-z-]+: valid`).FindAllString(errs.String(), -1); len(tasks) != 2 {
		t.Errorf("got %d valid tasks of the driver in Python, want 2", len(tasks))
	}
}

// Every error of the drivers file is reported with a remedy.
func TestErrorsOfDriversFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for file, want := range map[string]string{
		filepath.Join(dir, "none.cue"):                             "read the drivers file",
		write("open.cue", `a: command: ["x"]`, 0o602):              "chmod go-w",
		write("typo.cue", `a: comand: ["x"]`, 0o600):               `did you mean "command"`,
		write("gone.cue", `a: command: ["/there/is/none"]`, 0o600): "driver a: start /there/is/none",
		write("dies.cue", `a: command: ["sh", "-c", "echo oh >&2; exit 4"]`,
			0o600): "exit status 4; its last words: oh",
		write("taken.cue", `nats: command: ["sh", "-c", "exit 4"]`, 0o600): "driver nats",
	} {
		var out, errs bytes.Buffer
		code := Ctl(t.Context(), []string{"explain", "--drivers", file}, strings.NewReader(""), &out, &errs)
		if code != ExitBadMatrix || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit code %d, want %d; %q is not in %s", filepath.Base(file), code, ExitBadMatrix, want,
				errs.String())
		}
	}
}
