package external

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipeSize is how much a pipe holds: with the usual 64 KiB large messages cost two changes of process each.
const pipeSize = 1 << 20

// widen makes a pipe larger, where the system allows it.
func widen(pipe *os.File) {
	if raw, err := pipe.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
}
