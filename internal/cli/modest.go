package cli

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	modestPercent = 25        // GOGC
	modestBytes   = 224 << 20 // of all that Go manages, where what is in use leaves an eighth of it free
	modestEvery   = 2 * time.Second
)

// modest has a controller collect its garbage sooner than Go does by itself until ctx ends: it has time, and large fleets' heartbeats and records pass
// through its memory. What the operator says in GOGC and GOMEMLIMIT stays.
func modest(ctx context.Context) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(modestPercent)
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	tick := time.NewTicker(modestEvery)
	defer tick.Stop()
	defer debug.SetMemoryLimit(math.MaxInt64)
	for {
		debug.SetMemoryLimit(softLimit(inUse()))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// softLimit is the limit where so many bytes are in use: one that these reach would have the process collect garbage all the time and find none.
func softLimit(used uint64) int64 {
	return int64(max(modestBytes, used+used/8))
}

// inUse is what no collection frees, in bytes: what the last one found alive, stacks, and what the runtime needs itself.
func inUse() (n uint64) {
	all := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/memory/classes/os-stacks:bytes"},
		{Name: "/memory/classes/metadata/mcache/inuse:bytes"}, {Name: "/memory/classes/metadata/mspan/inuse:bytes"},
		{Name: "/memory/classes/metadata/other:bytes"}, {Name: "/memory/classes/other:bytes"}, {Name: "/memory/classes/profiling/buckets:bytes"}}
	metrics.Read(all)
	for _, s := range all {
		n += s.Value.Uint64()
	}
	return n
}
