package fleet

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// late is a network link with a delay to a host: two TUN devices, one on this machine and one on the host. Packets are
// copied between them after the delay. It does not need netem, which some kernels lack.
type late struct {
	near, far string // the addresses of its ends: of this machine and of the host
}

// delayed connects a host by such a link. It is removed at the end of the test.
func (s *site) delayed(t *testing.T, h *host, delay time.Duration) late {
	t.Helper()
	l := late{near: s.prefix + "201", far: s.prefix + "202"}
	here, there := s.tun(t, s.id+"n"), s.tun(t, s.id+"p")
	s.ip("addr", "add", l.near, "peer", l.far+"/32", "dev", s.id+"n")
	s.ip("link", "set", s.id+"n", "up")
	s.ip("link", "set", s.id+"p", "netns", h.space)
	s.ip("-n", h.space, "addr", "add", l.far, "peer", l.near+"/32", "dev", s.id+"p")
	s.ip("-n", h.space, "link", "set", s.id+"p", "up")
	done := make(chan error, 2)
	go func() { done <- carry(here, there, delay) }()
	go func() { done <- carry(there, here, delay) }()
	t.Cleanup(func() {
		_ = here.Close()
		_ = there.Close()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	return l
}

// tun creates a TUN device, which exists while the file is open.
func (s *site) tun(t *testing.T, name string) *os.File {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatalf("open /dev/net/tun: %v", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		_ = unix.Close(fd)
		t.Fatalf("make the device %s: %v", name, err)
	}
	return os.NewFile(uintptr(fd), name)
}

type packet struct {
	due  time.Time
	data []byte
}

// carry copies packets between two devices until the first one is closed. If the queue is full, packets are dropped, as
// on a real link.
func carry(from, to *os.File, delay time.Duration) error {
	line := make(chan packet, 10_000)
	defer close(line)
	go func() {
		for p := range line {
			time.Sleep(time.Until(p.due))
			_, _ = to.Write(p.data) // fails while the device is down
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("carry packets from %s: %w", from.Name(), err)
		}
		select {
		case line <- packet{time.Now().Add(delay), append([]byte(nil), buffer[:n]...)}:
		default:
		}
	}
}
