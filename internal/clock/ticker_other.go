//go:build !linux

package clock

// ticker has no precise form on this platform: Go's timers serve.
type ticker struct{}

func theKeeper() *keeper { return nil }

func (ticker) set(int64) {}
func (ticker) wait()     {}
