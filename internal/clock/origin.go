package clock

import (
	"crypto/rand"
	"os"
	"strings"
	"sync"
	"time"
)

// origin is a reading of Go's monotonic clock with the CLOCK_MONOTONIC of the same moment.
var origin = calibrate()

type tie struct {
	time      time.Time
	monotonic int64
}

var id = sync.OnceValue(func() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if name := strings.TrimSpace(string(boot)); err == nil && name != "" {
		offsets, _ := os.ReadFile("/proc/self/timens_offsets") // older kernels have no time namespaces
		return name + shifted(string(offsets))
	}
	return rand.Text()
})

// shifted returns a suffix that distinguishes the clocks of containers with their own time namespace
// (time_namespaces(7)). It contains the offset of the namespace, and is empty without one.
func shifted(offsets string) string {
	for line := range strings.Lines(offsets) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "monotonic" && (f[1] != "0" || f[2] != "0") {
			return "+" + f[1] + "s" + f[2] + "ns"
		}
	}
	return ""
}
