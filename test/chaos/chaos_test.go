package chaos

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// faults are the rows of the table.
func faults() []fault {
	return slices.Concat(agentFaults(), controllerFaults(), planeFaults(), brokerFaults(), ctlFaults(), linkFaults(),
		wireFaults(), diskFaults(), combinedFaults())
}

// TestChaos runs the short selection of faults, or all of them, and prints the table.
func TestChaos(t *testing.T) {
	var mu sync.Mutex
	var lines []line
	t.Cleanup(func() { t.Logf("\n%s", table(lines)) })
	first := firstSeed(t)
	for _, f := range faults() {
		if !f.short && !long() {
			continue
		}
		for seed := first; seed < first+uint64(*seeds); seed++ {
			t.Run(fmt.Sprintf("%s/seed=%d", f.name, seed), func(t *testing.T) {
				t.Parallel()
				r := f.row(t, seed)
				defer func() { // also if the row is aborted
					t.Log(strings.Join(r.line.cells(), " | "))
					mu.Lock()
					defer mu.Unlock()
					lines = append(lines, r.line)
				}()
				f.do(r)
			})
		}
	}
}
