package cli_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/cli"
	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	_ "example.org/lockstep/lockstep/pkg/drivers/nats"
)

// listener counts connections and never answers.
func listener(t *testing.T) (address string, dialled *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	dialled = &atomic.Int64{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			dialled.Add(1)
			c.Close()
		}
	}()
	return l.Addr().String(), dialled
}

// ctl runs ctl without a terminal.
func ctl(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	var out bytes.Buffer
	code = cli.Ctl(t.Context(), args, strings.NewReader("y\n"), &out, &out)
	return code, out.String()
}

// foreign writes the record of a run of another ctl, with a NATS matrix at an address.
func foreign(t *testing.T, folder, text string, change func(*plan.Run)) plan.Run {
	t.Helper()
	m, err := matrix.Load("foreign.cue", []byte(text), matrix.Narrow{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.Version, r.ID, r.Started = plan.RecordFormat, "20260102-150405-foreign-3f9c", time.Now().UTC()
	r.Source = plan.Source{File: "foreign.cue", Path: "/nowhere/foreign.cue", Text: text,
		SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(text)))}
	if change != nil {
		change(&r)
	}
	if _, err := runs.Create(folder, r); err != nil {
		t.Fatal(err)
	}
	return r
}

// foreignMatrix returns a matrix with a broker at an address and two files of this host.
func foreignMatrix(address, key, payload string) string {
	return fmt.Sprintf(`package matrix
name: "foreign"
brokers: theirs: {driver: "nats", options: {url: "nats://%s", user: "${env:CANARY}", password: "${file:%s}"}}
cell: {
	message: payload: {kind: "file", file: %q}
	warmup: "0s"
	measure: "100ms"
}
`, address, key, payload)
}

// TestRecordsOfOthersNeedConsent proves that rerun, resume and cleanup of a foreign record list what they
// would use, and use nothing without --yes.
func TestRecordsOfOthersNeedConsent(t *testing.T) {
	t.Setenv("CANARY", "canary-secret")
	key, payload := filepath.Join(t.TempDir(), "private.key"), filepath.Join(t.TempDir(), "payload")
	for _, name := range []string{key, payload} {
		if err := os.WriteFile(name, []byte("canary-secret\n"+strings.Repeat("x", 1000)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{"rerun", "resume", "cleanup"} {
		t.Run(command, func(t *testing.T) {
			address, dialled := listener(t)
			folder := t.TempDir()
			r := foreign(t, folder, foreignMatrix(address, key, payload), nil)
			file := filepath.Join(folder, "foreign.zip")
			if code, output := ctl(t, "bundle", "create", "--runs", folder, "-f", file, r.ID); code != cli.ExitOK {
				t.Fatalf("bundle: exit code %d:\n%s", code, output)
			}
			args := map[string][]string{
				"rerun":   {"bundle", "rerun", "--runs", filepath.Join(folder, "again"), file},
				"resume":  {"run", "--runs", folder, "--resume", r.ID},
				"cleanup": {"runs", "cleanup", "--runs", folder, r.ID},
			}[command]
			code, output := ctl(t, args...)
			if code != cli.ExitBadMatrix || !strings.Contains(output, "was not created by this user") ||
				!strings.Contains(output, "pass --yes") {
				t.Errorf("exit code %d:\n%s", code, output)
			}
			for _, want := range []string{address, "secret ${env:CANARY}", "secret ${file:" + key + "}",
				"payload file " + payload} {
				if !strings.Contains(output, want) {
					t.Errorf("%q is not listed:\n%s", want, output)
				}
			}
			if strings.Contains(output, "canary-secret") {
				t.Errorf("a secret was resolved:\n%s", output)
			}
			if n := dialled.Load(); n > 0 {
				t.Errorf("the broker was dialled %d times before the answer", n)
			}
			if _, output = ctl(t, append(args, "--yes")...); dialled.Load() == 0 {
				t.Errorf("with --yes, nothing was used:\n%s", output)
			}
		})
	}
}

// TestFilesOfForeignRecordsAreNotRead covers a record whose matrix has passwords, which is read from its original
// file.
func TestFilesOfForeignRecordsAreNotRead(t *testing.T) {
	folder := t.TempDir()
	r := foreign(t, folder, foreignMatrix("127.0.0.1:1", "/nowhere", "/nowhere"),
		func(r *plan.Run) { r.Source.SHA256 = strings.Repeat("0", 64) })
	if code, output := ctl(t, "run", "--runs", folder, "--resume", r.ID, "--yes"); code != cli.ExitError ||
		!strings.Contains(output, "is not read") {
		t.Errorf("exit code %d:\n%s", code, output)
	}
}

// TestBundlesHavePayloadsOfOwnRunsOnly bundles a foreign record that names a file of this host, and then a run of this
// ctl.
func TestBundlesHavePayloadsOfOwnRunsOnly(t *testing.T) {
	dir := t.TempDir()
	payload, file := filepath.Join(dir, "payload"), filepath.Join(dir, "once.cue")
	text := strings.Replace(once, "warmup:", fmt.Sprintf("message: payload: {kind: \"file\", file: %q}\n\twarmup:",
		payload), 1)
	for name, text := range map[string]string{payload: strings.Repeat("canary-payload", 100), file: text} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bundled := func(folder, run string) (output string, has bool) {
		out := filepath.Join(t.TempDir(), "b.zip")
		code, output := ctl(t, "bundle", "create", "--runs", folder, "-f", out, run)
		if code != cli.ExitOK {
			t.Fatalf("bundle: exit code %d:\n%s", code, output)
		}
		z, err := zip.OpenReader(out)
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		for _, f := range z.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			has = has || strings.Contains(string(data), "canary-payload")
		}
		return output, has
	}
	theirs, ours := filepath.Join(dir, "theirs"), filepath.Join(dir, "ours")
	if output, has := bundled(theirs, foreign(t, theirs, text, nil).ID); has ||
		!strings.Contains(output, "was not created by the user") {
		t.Errorf("the bundle of a foreign run has a file of this host: %v\n%s", has, output)
	}
	if code, output := ctl(t, "run", "--runs", ours, file); code != cli.ExitOK {
		t.Fatalf("exit code %d:\n%s", code, output)
	}
	if output, has := bundled(ours, "latest"); !has {
		t.Errorf("the bundle of an own run does not have its payload:\n%s", output)
	}
}

// TestPointsOfARecordFollowTheFlags proves that the InfluxDB of a foreign record receives no points and no secret of
// this host.
func TestPointsOfARecordFollowTheFlags(t *testing.T) {
	address, dialled := listener(t)
	folder := t.TempDir()
	key := filepath.Join(t.TempDir(), "private.key")
	if err := os.WriteFile(key, []byte("canary"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := foreign(t, folder, once, func(r *plan.Run) {
		r.Influx = &plan.Influx{URL: "http://" + address, Org: "o", Bucket: "b", Token: "${file:" + key + "}"}
	})
	code, output := ctl(t, "runs", "replay", "--runs", folder, r.ID)
	if code != cli.ExitBadMatrix || !strings.Contains(output, "pass --influx FILE") {
		t.Errorf("exit code %d:\n%s", code, output)
	}
	if n := dialled.Load(); n > 0 {
		t.Errorf("the record's InfluxDB was dialled %d times", n)
	}
}

// TestCleanupWithoutAFleet proves that cleanup of a fleet's run needs consent if the fleet does not answer, because the
// run may be active, and that a local run does not need the fleet that is selected.
func TestCleanupWithoutAFleet(t *testing.T) {
	const fleet = "nats://127.0.0.1:1"
	t.Setenv("LOCKSTEP_SERVER", fleet)
	const text = `package matrix
name: "foreign"
brokers: b: {driver: "nats", options: url: "nats://127.0.0.1:1"}
cell: {}
`
	for server, want := range map[string]string{
		fleet: "nothing removed: the fleet does not answer; pass --yes if the run is not active",
		"":    "was not created by this user",
	} {
		folder := t.TempDir()
		r := foreign(t, folder, text, func(r *plan.Run) { r.Source.Server = server })
		code, output := ctl(t, "runs", "cleanup", "--runs", folder, r.ID)
		if code != cli.ExitBadMatrix || !strings.Contains(output, want) {
			t.Errorf("run on %q: got exit code %d, want 2 and %q:\n%s", server, code, want, output)
		}
		if asked := strings.Contains(output, "query run "); asked != (server != "") {
			t.Errorf("run on %q: got a query of the fleet %v:\n%s", server, asked, output)
		}
	}
}
