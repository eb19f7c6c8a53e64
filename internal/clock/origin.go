package clock

import (
	"crypto/rand"
	"os"
	"strings"
	"sync"
	"time"
)

// origin ties a reading of Go's monotonic clock to the CLOCK_MONOTONIC of the same moment.
var origin = calibrate()

type tie struct {
	time      time.Time
	monotonic int64
}

var id = sync.OnceValue(func() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if name := strings.TrimSpace(string(boot)); err == nil && name != "" {
		offsets, _ := os.ReadFile("/proc/self/timens_offsets") // an older kernel has no such namespaces
		return name + shifted(string(offsets))
	}
	return rand.Text()
})

// shifted tells the clocks of one boot apart that containers with a time namespace of their own read
// (time_namespaces(7)): the offset of theirs, or nothing.
func shifted(offsets string) string {
	for line := range strings.Lines(offsets) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "monotonic" && (f[1] != "0" || f[2] != "0") {
			return "+" + f[1] + "s" + f[2] + "ns"
		}
	}
	return ""
}
