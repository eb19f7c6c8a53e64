//go:build !linux

package clock

import "time"

// calibrate starts a clock of this process only. ID then identifies the process.
func calibrate() tie { return tie{time.Now(), 0} }
