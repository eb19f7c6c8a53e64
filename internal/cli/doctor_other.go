//go:build !linux

package cli

// hostChecks checks nothing: the limits are read from Linux.
func hostChecks() []check {
	return []check{{"host", stateOK, "limits and clock are only checked on Linux"}}
}

// freeDisk does not know the free space.
func freeDisk(string) (bytes float64, known bool) { return 0, false }
