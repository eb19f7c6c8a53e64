package cli

import "syscall"

// drainSignal is never sent on Windows, which has no SIGUSR1.
const drainSignal = syscall.Signal(10)
