package wire

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/record"
)

// BenchmarkStoredSnapshots stores snapshots of 1,000 agents, with and without a sync before each acknowledgement.
func BenchmarkStoredSnapshots(b *testing.B) {
	for _, every := range []time.Duration{0, 2 * time.Minute} {
		b.Run(fmt.Sprintf("sync=%v", every), func(b *testing.B) {
			c := storeOf(b, plane(b, ServerConfig{Dir: b.TempDir(), Sync: every}))
			agent, ref := NewAgent(c.conn), Ref{Run: "r", Task: "t", Attempt: "y"}
			r := recorder(b, c, "r")
			takeReports(b, r.leader, r.Snapshots(b.Context(), ref, 1<<30, func(record.Snapshot) {}))
			seq := uint64(0)
			for b.Loop() {
				seq++
				var all sync.WaitGroup
				for i := range 1000 {
					all.Go(func() {
						s := record.Snapshot{Agent: fmt.Sprint("a", i), Task: "t", Seq: seq}
						if err := agent.Snapshot(b.Context(), ref, s); err != nil {
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
