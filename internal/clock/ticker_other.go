//go:build !linux

package clock

// ticker is not used on this platform: alarms use Go's timers.
type ticker struct{}

func theKeeper() *keeper { return nil }

func (ticker) set(int64) {}
func (ticker) wait()     {}
