package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestDaemonsServeNothingBeyondLoopbackWithoutUsers(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(bad, []byte("alice:secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	control, agent := []string{"--listen", "127.0.0.1:0"}, []string{"--server", "nats://127.0.0.1:1", "--name", "a"}
	for _, c := range []struct {
		program func(args []string) (int, string)
		args    []string
		want    []string
	}{
		{calls(ctx, Controller), append(control, "--web", "0.0.0.0:0"),
			[]string{"a login is required beyond loopback", "--web-users FILE", "ctl fleet hash-password"}},
		{calls(ctx, Controller), append(control, "--web", ":0", "--web-users", bad, "--web-cert", "c"),
			[]string{"users:1: not of the form NAME:HASH", "only one of --web-cert and --web-key given"}},
		{calls(ctx, Controller), append(control, "--web", "8088"), []string{"--web:", "127.0.0.1:8088"}},
		{calls(ctx, Controller), append(control, "--web-users", bad, "--web-key", "k"),
			[]string{"--web-users without --web", "--web-key without --web"}},
		{calls(ctx, Agent), append(agent, "--metrics", "0.0.0.0:0"),
			[]string{"a login is required beyond loopback", "--metrics-users FILE"}},
	} {
		code, output := c.program(c.args)
		if code != ExitBadMatrix {
			t.Errorf("%q: exit code %d, want %d:\n%s", c.args, code, ExitBadMatrix, output)
		}
		for _, want := range c.want {
			if !strings.Contains(output, want) {
				t.Errorf("%q: no %q in\n%s", c.args, want, output)
			}
		}
		if strings.Contains(output, "secret") {
			t.Errorf("%q shows a password:\n%s", c.args, output)
		}
	}
}

// calls runs a daemon with arguments.
func calls(ctx context.Context, program func(context.Context, []string, io.Reader, io.Writer,
	io.Writer) int) func([]string) (int, string) {
	return func(args []string) (int, string) {
		var output bytes.Buffer
		code := program(ctx, args, strings.NewReader(""), &output, &output)
		return code, output.String()
	}
}

func TestPasswordsAreMadeForUsersFiles(t *testing.T) {
	var out, output bytes.Buffer
	if code := Ctl(t.Context(), []string{"fleet", "hash-password", "alice"}, strings.NewReader("correct horse\n"), &out,
		&output); code != 0 {
		t.Fatalf("exit code %d: %s", code, &output)
	}
	file := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := webFlags{name: "web", listen: "0.0.0.0:0", users: file}
	if l, err := flags.listener(nil); err != nil || len(l.Users) != 1 {
		t.Errorf("what it made is not taken: %v", err)
	}
	if code := Ctl(t.Context(), []string{"fleet", "hash-password", "alice"}, strings.NewReader("short"), &out,
		&output); code != ExitBadMatrix {
		t.Errorf("a short password: exit code %d", code)
	}
}
