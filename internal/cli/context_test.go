package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A saved fleet is used by name, or after ctl context use. Flags of the command line have priority over the
// environment, and LOCKSTEP_SERVER over LOCKSTEP_CONTEXT and the selected context.
func TestContextsSelectTheFleet(t *testing.T) {
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	for _, variable := range []string{"SERVER", "CONTEXT", "CREDS", "CA", "TOKEN"} {
		t.Setenv("LOCKSTEP_"+variable, "")
	}
	t.Chdir(t.TempDir())
	run := func(code int, args ...string) string {
		t.Helper()
		var out strings.Builder
		if got := Ctl(t.Context(), args, nil, &out, &out); got != code {
			t.Fatalf("ctl %v: code %d, want %d:\n%s", args, got, code, &out)
		}
		return out.String()
	}
	run(ExitOK, "fleet", "init", "creds")
	run(ExitOK, "context", "add", "bench", "--server", "tls://127.0.0.1:1", "--creds", "creds/client.nk", "--ca", "creds/ca.crt")
	run(ExitOK, "context", "add", "other", "--server", "nats://127.0.0.1:2")
	info, err := os.Stat(filepath.Join(config, "lockstep", "contexts.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file of contexts has mode %v, want 0600 (%v)", info.Mode(), err)
	}
	t.Chdir(t.TempDir()) // the paths of the credentials are absolute

	const away, bench = ": connection refused", "context bench: connect to control plane tls://127.0.0.1:1"
	for _, x := range []struct {
		server, context string // of the environment
		use             string
		args            string
		code            int
		want            string
	}{
		{use: "local", args: "--runs r", code: ExitOK, want: "STARTED"},
		{use: "bench", code: ExitError, want: bench + away},
		{use: "bench", code: ExitError, want: "check that a controller (or its NATS server) is running there, and its URL: ctl context list"},
		{use: "bench", args: "--context local", code: ExitOK, want: "STARTED"},
		{use: "bench", args: "--context other", code: ExitError, want: "context other: connect to control plane nats://127.0.0.1:2" + away},
		{use: "bench", args: "--server nats://127.0.0.1:3", code: ExitError, want: "nats://127.0.0.1:3" + away + "; check --server"},
		{use: "bench", server: "nats://127.0.0.1:4", code: ExitError, want: "nats://127.0.0.1:4" + away + "; check --server"},
		{use: "bench", context: "other", code: ExitError, want: "context other: "},
		{use: "bench", context: "local", code: ExitOK, want: "STARTED"},
		{use: "local", server: "nats://127.0.0.1:4", context: "other", code: ExitError, want: "nats://127.0.0.1:4" + away},
		{use: "local", server: "nats://127.0.0.1:4", args: "--context bench", code: ExitError, want: bench},
		{use: "local", args: "--context bench --server nats://127.0.0.1:3", code: ExitBadMatrix, want: "both --server and --context given"},
		{use: "local", args: "--context bnch", code: ExitBadMatrix, want: `no context "bnch"; did you mean "bench"?`},
		{use: "local", args: "--context bench --ca nowhere", code: ExitBadMatrix, want: "read --ca nowhere: "},
	} {
		run(ExitOK, "context", "use", x.use)
		t.Setenv("LOCKSTEP_SERVER", x.server)
		t.Setenv("LOCKSTEP_CONTEXT", x.context)
		if out := run(x.code, append([]string{"runs", "list"}, strings.Fields(x.args)...)...); !strings.Contains(out, x.want) {
			t.Errorf("%+v: %s", x, out)
		}
		t.Setenv("LOCKSTEP_SERVER", "")
		t.Setenv("LOCKSTEP_CONTEXT", "")
	}

	for args, want := range map[string]string{
		"add bench --server nats://h:1": "context bench already exists; remove it first",
		"add local --server nats://h:1": "context local is this host",
		"add x":                         "no server given",
		"add x --server h":              `--server "h": not the URL`,
		"use bnch":                      `no context "bnch"; did you mean "bench"?`,
		"use else":                      `no context "else"; use one of bench, other, local, or add it`,
		"remove local":                  "context local is this host",
	} {
		if out := run(ExitBadMatrix, append([]string{"context"}, strings.Fields(args)...)...); !strings.Contains(out, want) {
			t.Errorf("context %s: %s, want %q", args, out, want)
		}
	}
	run(ExitOK, "context", "use", "other")
	if out := run(ExitOK, "context", "list"); !strings.Contains(out, "*  other") || !strings.Contains(out, "/creds/client.nk") {
		t.Errorf("context list:\n%s", out)
	}
	run(ExitOK, "context", "remove", "other")
	if out := run(ExitOK, "context", "list"); !strings.Contains(out, "*  local") || strings.Contains(out, "other") {
		t.Errorf("context list after remove:\n%s", out)
	}

	if err := os.WriteFile(filepath.Join(config, "lockstep", "contexts.json"), []byte(`{"contxts": {}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := run(ExitBadMatrix, "runs", "list"); !strings.Contains(out, "contexts.json: ") ||
		!strings.Contains(out, "correct or remove the file") {
		t.Errorf("an invalid file: %s", out)
	}
	run(ExitOK, "runs", "list", "--context", "local")
}

// Settings of two fleets are not combined: the credentials of the environment are not used for a context. Printed
// commands select the same fleet.
func TestContextsReplaceTheEnvironment(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("LOCKSTEP_SERVER", "")
	t.Setenv("LOCKSTEP_CREDS", "/env/client.nk")
	saved := contexts{Current: "bench", Contexts: map[string]fleetContext{"bench": {Server: "tls://h:1", CA: "/bench/ca.crt"}}}
	if err := saved.write(); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args, creds, hint string
	}{
		{"", "", ""},
		{"--context bench", "", " --context bench"},
		{"--context bench --creds /typed.nk", "/typed.nk", " --context bench --creds /typed.nk"},
		{"--context local", "/env/client.nk", " --context local"},
		{"--server tls://i:1", "/env/client.nk", " --server tls://i:1"},
	} {
		var s serverFlags
		c := &cobra.Command{}
		s.addChoice(c, "")
		if err := c.ParseFlags(strings.Fields(x.args)); err != nil {
			t.Fatal(err)
		}
		if err := s.choose(c); err != nil {
			t.Fatal(err)
		}
		if s.creds != x.creds || s.hint() != x.hint {
			t.Errorf("%q: creds %q and hint %q, want %q and %q", x.args, s.creds, s.hint(), x.creds, x.hint)
		}
	}
}
