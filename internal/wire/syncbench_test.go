package wire

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/record"
)

// BenchmarkStoredSnapshots stores one snapshot per agent and operation, in turn on a control plane that syncs before
// each acknowledgement, and on one that does not. The disk is in the same state for both.
func BenchmarkStoredSnapshots(b *testing.B) {
	for _, agents := range []int{1, 1000} {
		b.Run(fmt.Sprint("agents=", agents), func(b *testing.B) {
			ref, seq := Ref{Run: "r", Task: "t", Attempt: "y"}, uint64(0)
			var planes [2]*Agent
			for i, every := range []time.Duration{0, 2 * time.Minute} {
				c := storeOf(b, plane(b, ServerConfig{Dir: b.TempDir(), Sync: every}))
				r := recorder(b, c, "r")
				takeReports(b, r.leader, r.Snapshots(b.Context(), ref, bytesPerAgent(1<<30), func(record.Snapshot) error { return nil }))
				planes[i] = NewAgent(c.conn)
			}
			var took [2]time.Duration
			for b.Loop() {
				seq++
				for i, agent := range planes {
					began := time.Now()
					var all sync.WaitGroup
					for n := range agents {
						all.Go(func() {
							s := record.Snapshot{Agent: fmt.Sprint("a", n), Task: "t", Seq: seq}
							if err := agent.Snapshot(b.Context(), ref, s); err != nil {
								b.Error(err)
							}
						})
					}
					all.Wait()
					took[i] += time.Since(began)
				}
			}
			for i, unit := range []string{"synced-ms/op", "unsynced-ms/op"} {
				b.ReportMetric(took[i].Seconds()*1000/float64(b.N), unit)
			}
		})
	}
}
