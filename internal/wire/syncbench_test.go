package wire

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"lockstep/internal/record"
)

// BenchmarkStoredSnapshots stores snapshots of 1,000 agents, with and without a sync before each acknowledgement.
func BenchmarkStoredSnapshots(b *testing.B) {
	for _, every := range []time.Duration{0, 2 * time.Minute} {
		b.Run(fmt.Sprintf("sync=%v", every), func(b *testing.B) {
			c := link(b, plane(b, ServerConfig{Dir: b.TempDir(), Sync: every}))
			for b.Loop() {
				var all sync.WaitGroup
				for i := range 1000 {
					all.Go(func() {
						s := record.Snapshot{Agent: fmt.Sprint("a", i), Task: "t", Seq: 1}
						if err := c.Snapshot(b.Context(), NewKey(), Ref{Run: "r", Task: "t", Try: "y"}, s); err != nil {
							b.Error(err)
						}
					})
				}
				all.Wait()
			}
			b.ReportMetric(1000*float64(b.N)/b.Elapsed().Seconds(), "snapshots/s")
		})
	}
}
