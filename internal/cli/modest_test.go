package cli

import (
	"context"
	"math"
	"runtime/debug"
	"testing"
	"time"
)

// TestAModestController: its limit leaves room above what is in use, however much that is, and what the operator says stays.
func TestAModestController(t *testing.T) {
	for used, want := range map[uint64]int64{0: modestBytes, 100 << 20: modestBytes, 800 << 20: 900 << 20} {
		if got := softLimit(used); got != want {
			t.Errorf("with %d bytes in use the limit is %d, want %d", used, got, want)
		}
	}
	if used := inUse(); used < 1<<20 || used > 4<<30 {
		t.Errorf("this test is said to use %d bytes", used)
	}
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	for said, wants := range map[string]func(limit int64) bool{
		"":       func(limit int64) bool { return limit >= modestBytes && limit < math.MaxInt64 },
		"100MiB": func(limit int64) bool { return limit == math.MaxInt64 }, // the runtime has read it at its start: nothing is set here
	} {
		t.Setenv("GOMEMLIMIT", said)
		debug.SetMemoryLimit(math.MaxInt64)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); modest(ctx) }()
		for end := time.Now().Add(2 * time.Minute); said == "" && !wants(debug.SetMemoryLimit(-1)) && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
		if said != "" {
			<-ended
		}
		if limit := debug.SetMemoryLimit(-1); !wants(limit) {
			t.Errorf("with GOMEMLIMIT=%q the limit is %d", said, limit)
		}
		stop()
		<-ended
	}
}
