package controller

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/schedule"
	_ "example.org/lockstep/lockstep/pkg/drivers/mongodb"
)

// The controller reads no file when it expands the matrix of a schedule. Reading a FIFO would block it.
func TestExpansionReadsNoFile(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for options, wantErr := range map[string]string{
		`{driver: "mongodb", options: {url: "mongodb://h:1/?tlsCAFile=%s"}}`:                            "tls: {ca, cert, key}",
		`{driver: "mongodb", options: {url: "mongodb://h:1/", tls: {ca: %q, cert: %[1]q, key: %[1]q}}}`: "",
	} {
		text := fmt.Sprintf(`package matrix
name: "m"
brokers: b: `+options+`
axes: broker: ["b"]
cell: {axis: _, publishers: mode: "confirm-window", message: {size: 200, payload: {kind: "file", file: %[1]q}}}
tables: [{rows: ["broker"], values: ["lost"]}]
`, fifo)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // ends a test that hangs
		failed := make(chan error, 1)
		go func() {
			_, err := Expand(ctx, schedule.Matrix{File: "m.cue", Text: text})
			failed <- err
		}()
		var err error
		select {
		case err = <-failed:
		case <-ctx.Done():
			t.Fatalf("%s: Expand did not return", options)
		}
		if cancel(); wantErr == "" && err != nil || wantErr != "" &&
			(err == nil || !strings.Contains(err.Error(), wantErr)) {
			t.Errorf("%s: got error %v, want %q", options, err, wantErr)
		}
	}
}
