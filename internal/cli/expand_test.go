//go:build linux

package cli

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/schedule"
)

// TestMatricesOfSchedules proves that matrices are expanded in a process that is killed if it exceeds its limits, as in
// a controller.
func TestMatricesOfSchedules(t *testing.T) {
	matrix := func(more string) schedule.Matrix {
		return schedule.Matrix{File: "m.cue", Path: "/home/somebody/m.cue", Text: `package matrix
import "list"
name: "m"
brokers: b: {driver: "loopback"}
cell: {broker: "b", axis: _}
_list: list.Range(0, 1000, 1)
` + more}
	}
	const threads = "axes: threads: [1, 2]\n"
	ordinary := matrix(threads + "_few: [for a in _list if a < 0 {a}]")
	large := matrix("axes: threads: [for i in list.Range(0, 100_000_000, 1) {i}]")
	run, err := expander("", expandTime, expandMemory)(t.Context(), ordinary)
	if err != nil || len(run.Cells) != 2 || run.Name != "m" || run.Source.Path != "/home/somebody/m.cue" {
		t.Errorf("an ordinary matrix: %d cells of %q, %v", len(run.Cells), run.Name, err)
	}
	if _, err := expander("", expandTime, expandMemory)(t.Context(), matrix("axes: thread: [1]")); err == nil ||
		!strings.Contains(err.Error(), "m.cue:") {
		t.Errorf("a faulty matrix: %v; want its place", err)
	}
	if _, err := expander("", expandTime, 200<<20)(t.Context(), large); err == nil ||
		!strings.Contains(err.Error(), "more than 200 MiB of memory") {
		t.Errorf("a matrix that takes gigabytes: %v", err)
	}
	if _, err := expander("", 100*time.Millisecond, expandMemory)(t.Context(), large); err == nil ||
		!strings.Contains(err.Error(), "longer than 100ms") {
		t.Errorf("a matrix that takes longer than allowed: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the controller ends"))
	if _, err := expander("", expandTime, expandMemory)(ctx, ordinary); err == nil ||
		!strings.Contains(err.Error(), "the controller ends") {
		t.Errorf("when the controller ends: %v", err)
	}
}
