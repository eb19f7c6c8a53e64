package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Four hundred short tasks in one process: memory and open files after the first hundred are those at the end. Only with LOCKSTEP_LONG=1, by
// make test-long.
func TestSoakDoesNotGrow(t *testing.T) {
	if os.Getenv("LOCKSTEP_LONG") == "" {
		t.Skip("a soak of minutes: make test-long runs it")
	}
	dir := t.TempDir()
	labels := make([]string, 200)
	for i := range labels {
		labels[i] = strconv.Quote("n" + strconv.Itoa(i))
	}
	matrix := fmt.Sprintf(`package matrix
name: "soak"
brokers: {fake: {driver: "loopback", options: name: "soak"}, nats: {driver: "nats", options: {urls: [%q], storage: "memory"}}}
axes: {n: [%s], broker: ["fake", "nats"]}
cell: {axis: _, labels: n: axis.n, publishers: {persistent: false, rate: 2000}, warmup: "0s", measure: "300ms"}
tables: [{rows: ["n"], columns: ["broker"], values: ["lost"]}]
`, broker, strings.Join(labels, ", "))
	if err := os.WriteFile(filepath.Join(dir, "matrix.cue"), []byte(matrix), 0o644); err != nil {
		t.Fatal(err)
	}
	ctl := start(t, dir, "ctl", "run", "matrix.cue")
	at := func(n int) (rss, files int) {
		eventually(t, fmt.Sprintf("task %d done", n), 4*time.Minute, func() bool { return strings.Contains(ctl.out.String(), fmt.Sprintf("[%d/400]", n)) })
		return residence(t, ctl.cmd.Process.Pid)
	}
	rss, files := at(100)
	rssLater, filesLater := at(395)
	t.Logf("after 100 tasks %d MiB and %d files, after 395 %d MiB and %d files", rss>>20, files, rssLater>>20, filesLater)
	if rssLater > rss*3/2 || filesLater > files+8 {
		t.Errorf("grew: %d MiB and %d files after 100 tasks, %d MiB and %d files after 395", rss>>20, files, rssLater>>20, filesLater)
	}
	if code := ctl.leaves(time.Minute); code != 0 {
		t.Errorf("left with %d, want 0", code)
	}
}

// residence is a process's resident memory in bytes, and how many files it has open.
func residence(t *testing.T, pid int) (rss, files int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); f[0] == "VmRSS:" {
			kib, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			rss = kib << 10
		}
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return rss, len(fds)
}
