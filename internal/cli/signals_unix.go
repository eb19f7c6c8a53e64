//go:build unix

package cli

import "syscall"

// drainSignal makes an agent leave as soon as no task is in flight.
const drainSignal = syscall.SIGUSR1
