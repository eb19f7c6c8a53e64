//go:build unix

package cli

import "syscall"

// drainSignal asks an agent to leave as soon as no task is in flight.
const drainSignal = syscall.SIGUSR1
