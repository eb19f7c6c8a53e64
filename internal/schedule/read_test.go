package schedule

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// TestAStoredScheduleIsMeasuredBeforeItIsDecoded reads a history with entries of three bytes.
func TestAStoredScheduleIsMeasuredBeforeItIsDecoded(t *testing.T) {
	text := []byte(`{"history":[{}` + strings.Repeat(",{}", 2_000_000) + `]}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Read(bytes.NewReader(text))
	runtime.ReadMemStats(&after)
	if !errors.Is(err, plan.ErrTooLarge) {
		t.Errorf("two million entries: %v, want ErrTooLarge", err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 100<<20 {
		t.Errorf("%d MiB were allocated to refuse them", grown>>20)
	}
}
