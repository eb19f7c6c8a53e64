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
		return name
	}
	return rand.Text()
})
