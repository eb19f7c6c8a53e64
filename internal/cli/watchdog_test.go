//go:build unix

package cli

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// systemd is notified when a daemon is ready, and of progress only while there is progress.
func TestWatchdogReportsProgressOnly(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	next := func() string {
		text := make([]byte, 100)
		n, err := systemd.Read(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(text[:n])
	}
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", "")
	var checks atomic.Int64
	stop := supervise(slog.New(slog.DiscardHandler), func() error {
		if checks.Add(1) < 4 {
			return errors.New("stuck")
		}
		return nil
	})
	defer stop()
	if got := next(); got != "READY=1" {
		t.Errorf("the first message is %q", got)
	}
	if got, n := next(), checks.Load(); got != "WATCHDOG=1" || n < 4 {
		t.Errorf("%q after %d checks, the first 3 of which found it stuck", got, n)
	}
}
