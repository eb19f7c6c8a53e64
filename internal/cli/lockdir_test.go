package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/wire"
)

func TestAFolderHasOneDaemon(t *testing.T) {
	dir := t.TempDir()
	release, err := lockDir("--dir", dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockDir("--dir", dir)
	var coded exit
	if !errors.As(err, &coded) || coded.code != ExitBadMatrix ||
		!strings.Contains(err.Error(), fmt.Sprintf("in use by process %d on this host; pass another --dir",
			os.Getpid())) {
		t.Errorf("a second daemon gets %v", err)
	}
	release()
	if release, err = lockDir("--dir", dir); err != nil {
		t.Fatalf("the folder is not free after its daemon has ended: %v", err)
	}
	release()
}

// A daemon whose folder is in use ends before it opens anything, with the exit code of command-line errors.
func TestDaemonsLockTheirFolderFirst(t *testing.T) {
	dir := t.TempDir()
	release, err := lockDir("--dir", dir)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	var out strings.Builder
	if code := Controller(t.Context(), []string{"--listen", "127.0.0.1:0", "--dir", dir}, nil, &out,
		&out); code != ExitBadMatrix || !strings.Contains(out.String(), "in use by process") {
		t.Errorf("controller: code %d: %s", code, out.String())
	}
	out.Reset()
	if code := Agent(t.Context(), []string{"--server", "nats://127.0.0.1:1", "--name", "a", "--dir", dir}, nil, &out,
		&out); code != ExitBadMatrix || !strings.Contains(out.String(), "in use by process") {
		t.Errorf("agent: code %d: %s", code, out.String())
	}
}

func TestMissingFilesEndADaemon(t *testing.T) {
	for _, flag := range []string{"--creds", "--ca"} {
		var out strings.Builder
		code := Agent(t.Context(), []string{"--server", "nats://127.0.0.1:1", "--name", "a", flag, "nosuch.file"}, nil,
			&out, &out)
		if code != ExitBadMatrix || !strings.Contains(out.String(), flag+" nosuch.file") {
			t.Errorf("agent %s: code %d: %s", flag, code, out.String())
		}
		out.Reset()
		code = Ctl(t.Context(), []string{"runs", "list", "--server", "nats://127.0.0.1:1", flag, "nosuch.file"}, nil, &out,
			&out)
		if code != ExitBadMatrix || !strings.Contains(out.String(), flag+" nosuch.file") {
			t.Errorf("ctl %s: code %d: %s", flag, code, out.String())
		}
	}
}

// Other users of the host could run commands through such a file.
func TestFilesOfCommandsThatOthersCanChangeAreRefused(t *testing.T) {
	open := t.TempDir() + "/open"
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file string
		mode os.FileMode
		want string
	}{
		{t.TempDir() + "/others.cue", 0o602, "run chmod go-w on it"},
		{t.TempDir() + "/group.cue", 0o620, "run chmod go-w on it"},
		{open + "/file.cue", 0o600, "run chmod o-w on its folder"},
	} {
		if err := errors.Join(os.WriteFile(c.file, nil, 0o600), os.Chmod(c.file, c.mode)); err != nil {
			t.Fatal(err)
		}
		for flag, program := range map[string]func(context.Context, []string, io.Reader, io.Writer, io.Writer) int{
			"--faults": Agent, "--hooks": Controller} {
			var out strings.Builder
			code := program(t.Context(), []string{"--server", "nats://127.0.0.1:1", "--dir", t.TempDir(), flag, c.file},
				nil, &out, &out)
			if code != ExitBadMatrix || !strings.Contains(out.String(), c.want) {
				t.Errorf("%s %s: code %d: %s", flag, c.file, code, out.String())
			}
		}
	}
}

// All invalid permissions for matrices are reported at once, from the command line and the environment.
func TestErrorsOfAgentAccess(t *testing.T) {
	t.Setenv("LOCKSTEP_ENV", "BROKER_PASSWORD, LOCKSTEP_TOKEN")
	var out strings.Builder
	code := Agent(t.Context(), []string{"--server", "nats://127.0.0.1:1", "--name", "a", "--files", "relative",
		"--files", "/nosuch"}, nil, &out, &out)
	for _, want := range []string{`"relative"`, `"/nosuch"`, `"LOCKSTEP_TOKEN"`} {
		if code != ExitBadMatrix || !strings.Contains(out.String(), want) ||
			strings.Contains(out.String(), "BROKER_PASSWORD") {
			t.Errorf("code %d: %s; want %s named", code, out.String(), want)
		}
	}
}

func TestCommandLineHasPriorityOverTheEnvironment(t *testing.T) {
	t.Setenv("LOCKSTEP_CREDS", "")
	for _, c := range []struct {
		name, variable, value string
		args                  []string
		want                  string
	}{
		{"listen", "LOCKSTEP_SERVER", "nats://127.0.0.1:1", []string{"--listen", "nonsense"}, `listen on "nonsense"`},
		{"server", "LOCKSTEP_LISTEN", "127.0.0.1:0", []string{"--server", "nats://127.0.0.1:1", "--ca", "nosuch"},
			"--ca nosuch"},
		{"both", "LOCKSTEP_X", "", []string{"--listen", "nonsense", "--server", "nats://127.0.0.1:1"}, "pass either --listen"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("LOCKSTEP_SERVER", "")
			t.Setenv("LOCKSTEP_LISTEN", "")
			t.Setenv(c.variable, c.value)
			var out strings.Builder
			if code := Controller(t.Context(), c.args, nil, &out, &out); code == ExitOK ||
				!strings.Contains(out.String(), c.want) {
				t.Errorf("code %d: %s; want %q", code, out.String(), c.want)
			}
		})
	}
}

func TestRemediesOfConnectionErrors(t *testing.T) {
	server, err := wire.Embedded(t.Context(), wire.ServerConfig{Listen: "127.0.0.1:0", Auth: wire.Auth{Token: "right"}})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	t.Setenv("LOCKSTEP_TOKEN", "wrong")
	var out strings.Builder
	if code := Ctl(t.Context(), []string{"runs", "list", "--server", server.URL()}, nil, &out, &out); code != ExitError ||
		!strings.Contains(out.String(), "--creds") || strings.Contains(out.String(), "check --server") {
		t.Errorf("a wrong token: code %d: %s", code, out.String())
	}
	out.Reset()
	t.Setenv("LOCKSTEP_TOKEN", "")
	if code := Ctl(t.Context(), []string{"runs", "list", "--server", server.URL()}, nil, &out, &out); code != ExitError ||
		!strings.Contains(out.String(), "requires credentials: pass --creds") {
		t.Errorf("no credentials: code %d: %s", code, out.String())
	}
	if text := (&serverFlags{}).remedy(fmt.Errorf("connect: %w", x509.UnknownAuthorityError{})); !strings.Contains(text,
		"pass --ca") {
		t.Errorf("an unknown authority: %s", text)
	}
}

// TestFilesOfAnotherKindAreRejected proves that this happens at once, independent of --server.
func TestFilesOfAnotherKindAreRejected(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(file, []byte("neither a key nor a certificate\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // an agent that starts tries to connect for ever
	defer cancel()
	for _, flag := range []string{"--creds", "--ca"} {
		for name, program := range map[string]func(args []string, out io.Writer) int{
			"ctl": func(args []string, out io.Writer) int {
				return Ctl(ctx, append([]string{"runs", "list"}, args...), nil, out, out)
			},
			"agent": func(args []string, out io.Writer) int {
				return Agent(ctx, append(args, "--name", "a"), nil, out, out)
			},
		} {
			var out strings.Builder
			code := program([]string{"--server", "nats://127.0.0.1:1", flag, file}, &out)
			if code != ExitBadMatrix || !strings.Contains(out.String(), file) ||
				strings.Contains(out.String(), "check --server") {
				t.Errorf("%s %s: code %d: %s", name, flag, code, out.String())
			}
		}
	}
}

// TestDaemonsReportMissingCredentials proves that daemons report missing credentials like ctl, while they try again:
// the control plane may accept them later.
func TestDaemonsReportMissingCredentials(t *testing.T) {
	server, err := wire.Embedded(t.Context(), wire.ServerConfig{Listen: "127.0.0.1:0", Auth: wire.Auth{Token: "right"}})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for name, program := range map[string]func(ctx context.Context, out io.Writer) int{
		"agent": func(ctx context.Context, out io.Writer) int {
			return Agent(ctx, []string{"--name", "a", "--server", server.URL()}, nil, out, out)
		},
		"controller": func(ctx context.Context, out io.Writer) int {
			return Controller(ctx, []string{"--server", server.URL()}, nil, out, out)
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		out := &untilWritten{text: "requires credentials: pass --creds", then: cancel}
		program(ctx, out)
		if !strings.Contains(out.String(), out.text) {
			t.Errorf("%s: %s", name, out.String())
		}
		cancel()
	}
}

// untilWritten calls then after a text was written.
type untilWritten struct {
	strings.Builder
	text string
	then func()
}

func (u *untilWritten) Write(p []byte) (int, error) {
	n, err := u.Builder.Write(p)
	if strings.Contains(u.String(), u.text) {
		u.then()
	}
	return n, err
}

// An invalid --server ends every program at once, from the command line and from the environment.
func TestInvalidServerURLsAreRejected(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.cue")
	if err := os.WriteFile(file, []byte("package matrix\nname: \"x\"\nbrokers: loop: driver: \"loopback\"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, server := range []string{"http://127.0.0.1:1", "foo", "127.0.0.1:1", "nats://", "nats://127.0.0.1",
		"tls://127.0.0.1:99999", "nats://127.0.0.1:1,foo"} {
		t.Setenv("LOCKSTEP_SERVER", server)
		for name, program := range map[string]func(out *strings.Builder) int{
			"agent": func(out *strings.Builder) int {
				return Agent(t.Context(), []string{"--name", "a"}, nil, out,
					out)
			},
			"controller": func(out *strings.Builder) int {
				return Controller(t.Context(), []string{"--server", server}, nil, out, out)
			},
			"ctl runs list": func(out *strings.Builder) int { return Ctl(t.Context(), []string{"runs", "list"}, nil, out, out) },
			"ctl run": func(out *strings.Builder) int {
				return Ctl(t.Context(), []string{"run", file}, nil, out,
					out)
			},
			"ctl schedule": func(out *strings.Builder) int {
				return Ctl(t.Context(), []string{"schedule", "list"}, nil,
					out, out)
			},
		} {
			var out strings.Builder
			code := program(&out)
			if code != ExitBadMatrix || strings.Count(out.String(), "\n") != 1 ||
				!strings.Contains(out.String(), "pass nats://host:port or tls://host:port") {
				t.Errorf("%s on %s: code %d: %s", name, server, code, out.String())
			}
		}
	}
}

// Credentials together with --open are rejected, because they contradict each other.
func TestOpenWithCredentialsIsRejected(t *testing.T) {
	for name, set := range map[string]func(*testing.T) []string{
		"token":  func(t *testing.T) []string { t.Setenv("LOCKSTEP_TOKEN", "x"); return nil },
		"user":   func(t *testing.T) []string { t.Setenv("LOCKSTEP_USER", "x"); return nil },
		"creds":  func(*testing.T) []string { return []string{"--creds", "x.nk"} },
		"config": func(*testing.T) []string { return []string{"--nats-config", "nats.conf", "--creds", "x.nk"} },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // a controller that starts ends at once
			var out strings.Builder
			code := Controller(ctx, append([]string{"--listen", "127.0.0.1:0", "--open"}, set(t)...), nil, &out, &out)
			if code != ExitBadMatrix || !strings.Contains(out.String(), "--open with credentials") {
				t.Errorf("code %d: %s", code, out.String())
			}
		})
	}
}

// A daemon that fails to start removes a folder that it created, and leaves other folders unchanged.
func TestRejectedDaemonsLeaveNoFolder(t *testing.T) {
	there := t.TempDir()
	made := filepath.Join(there, "new")
	for _, dir := range []string{made, there} {
		var out strings.Builder
		if code := Controller(t.Context(), []string{"--listen", "127.0.0.1:0", "--dir", dir}, nil, &out,
			&out); code != ExitBadMatrix {
			t.Fatalf("code %d: %s", code, out.String())
		}
	}
	if left, err := os.ReadDir(there); err != nil || len(left) != 1 || left[0].Name() != "lock" {
		t.Errorf("it left %v, %v", left, err)
	}
	release, err := lockDir("--dir", made)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(made, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	release()
	if _, err := os.Stat(filepath.Join(made, "kept")); err != nil {
		t.Error(err)
	}
}
