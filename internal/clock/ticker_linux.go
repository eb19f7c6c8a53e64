package clock

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// ticker is a timerfd of CLOCK_MONOTONIC that is read through Go's network poller.
type ticker struct {
	fd   int
	file *os.File // owns fd
	spec unix.ItimerSpec
	tick [8]byte
}

// theKeeper starts the timekeeper of the process on first use. It returns nil if the kernel provides no timerfd, for
// example because no file descriptor is free. Then Go's timers are used, which are less precise. Never call it in a
// synctest bubble: the keeper's goroutine would belong to the bubble.
var theKeeper = sync.OnceValue(startKeeper)

func startKeeper() *keeper {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil
	}
	k := &keeper{ticker: ticker{fd: fd, file: os.NewFile(uintptr(fd), "timerfd")}}
	go k.keep()
	return k
}

// set makes wait return when the kernel's clock reaches at. The caller holds k.mu.
func (t *ticker) set(at int64) {
	t.spec.Value = unix.NsecToTimespec(at)
	if err := unix.TimerfdSettime(t.fd, unix.TFD_TIMER_ABSTIME, &t.spec, nil); err != nil {
		panic("set timerfd: " + err.Error()) // only for an invalid time or descriptor, which is a bug
	}
}

func (t *ticker) wait() {
	if _, err := t.file.Read(t.tick[:]); err != nil {
		panic("read timerfd: " + err.Error()) // only for a closed descriptor, and it is never closed
	}
}
