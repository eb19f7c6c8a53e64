package external

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipeSize is the capacity of a pipe in bytes. With the usual 64 KiB, each large message costs two process switches.
const pipeSize = 1 << 20

// widen makes a pipe larger, if the system allows it.
func widen(pipe *os.File) {
	if raw, err := pipe.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
}
