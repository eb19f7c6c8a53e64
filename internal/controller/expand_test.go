package controller

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/schedule"
	_ "lockstep/pkg/drivers/mongodb"
)

// A matrix that takes for ever costs its schedule a slot, and no other schedule more than a wait: the keeper goes on, and so does the leader.
func TestEndlessMatrixHoldsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := expanding
		defer func() { expanding = own }()
		expanding = make(chan struct{}, 2)
		never := make(chan struct{})
		endless := func(context.Context) (plan.Run, error) { <-never; return plan.Run{}, nil }
		quick := func(context.Context) (plan.Run, error) { return plan.Run{ID: "r"}, nil }
		for range 2 {
			began := time.Now()
			if _, err := expandWithin(t.Context(), time.Minute, endless); err == nil || !strings.Contains(err.Error(), "longer than 1m0s") || time.Since(began) != time.Minute {
				t.Errorf("ended after %v with %v: want a minute, and to read so", time.Since(began), err)
			}
			run, err := expandWithin(t.Context(), time.Minute, quick)
			if full := len(expanding) == cap(expanding); full != (err != nil) || !full && run.ID != "r" {
				t.Errorf("beside %d endless ones: %+v, %v", len(expanding), run, err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		began := time.Now()
		if _, err := expandWithin(ctx, time.Minute, quick); err == nil || time.Since(began) != time.Second {
			t.Errorf("a controller that ends waited %v: %v", time.Since(began), err)
		}
		close(never)
		synctest.Wait()
		if len(expanding) != 0 {
			t.Errorf("%d places are taken after the end", len(expanding))
		}
		if _, err := expandWithin(t.Context(), time.Minute, quick); err != nil {
			t.Errorf("with free places: %v", err)
		}
	})
}

// The matrix of a schedule is expanded on the controller, which reads no file for it: a FIFO would hold it up for ever.
func TestExpansionReadsNoFile(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for options, refusal := range map[string]string{
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
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // ends a test that hangs
		_, err := expandWithin(ctx, time.Minute, func(ctx context.Context) (plan.Run, error) {
			return expand(ctx, schedule.Matrix{File: "m.cue", Text: text})
		})
		if cancel(); refusal == "" && err != nil || refusal != "" && (err == nil || !strings.Contains(err.Error(), refusal)) {
			t.Errorf("%s: %v; want %q", options, err, refusal)
		}
	}
}
