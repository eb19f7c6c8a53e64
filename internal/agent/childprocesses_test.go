package agent

import (
	"fmt"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/record"
)

// TestDriverProcessesCountAsAgent proves that the resource use of an external driver's processes counts as that of the
// agent, not of the broker.
func TestDriverProcessesCountAsAgent(t *testing.T) {
	p := fakeProc(t.TempDir())
	thread := func(pid, tid int, ticks int64, children string) {
		p.process(t, pid, "python3", ticks, 100, "5")
		stat := fmt.Sprintf("%d (a) S 1 1 1 0 -1 4194560 1 2 3 4 %d 0 0 0 20 0 1 0 5 1000 100 18446744073709551615 1",
			tid, ticks)
		p.write(t, fmt.Sprintf("%d/task/%d/stat", pid, tid), stat)
		p.write(t, fmt.Sprintf("%d/task/%d/children", pid, tid), children)
	}
	set := func(root, helper int64) {
		thread(400, 400, root, "401 ")
		thread(401, 401, helper, "")
		thread(402, 402, 100_000, "") // not a child of the driver
	}
	children, sample := childProcesses{proc: procfs(p)}, func() (s record.HostSample) { return s }
	set(10_000, 20_000)
	first := sample()
	children.sample([]int{400}, &first)
	if first.AgentCPU != 0 || first.DriverThread != 0 || first.AgentRSS == 0 {
		t.Errorf("first sample: got %+v, want memory but no CPU use: earlier use does not count", first)
	}
	children.at = children.at.Add(-10 * time.Second)
	set(10_000+950, 20_000+100) // ticks of 10 ms
	second := record.HostSample{AgentCPU: 0.25, AgentRSS: 7}
	children.sample([]int{400}, &second)
	if second.AgentCPU < 1.15 || second.AgentCPU > 1.3 || second.DriverThread < 0.85 || second.DriverThread > 0.95 ||
		second.AgentRSS != 7+first.AgentRSS {
		t.Errorf("second sample: got %+v, want 0.25 + 0.95 + 0.1 cores, and 0.95 of a thread", second)
	}
	third := sample()
	children.sample(nil, &third) // the session is closed
	if third != sample() {
		t.Errorf("sample without processes: got %+v, want zero values", third)
	}
}
