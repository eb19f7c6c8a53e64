package cli

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// supervise reports to systemd that the daemon is ready and then, until stop is called, that it makes progress. If
// stuck returns an error, the report is omitted, and systemd ends a daemon whose unit has a WatchdogSec. Without
// systemd, supervise does nothing.
func supervise(log *slog.Logger, stuck func() error) (stop func()) {
	every, err := daemon.SdWatchdogEnabled(true)
	if err == nil {
		_, err = daemon.SdNotify(false, daemon.SdNotifyReady)
	}
	if err != nil {
		log.Warn("cannot notify systemd", "err", err)
	}
	if every == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every / 4)
		defer tick.Stop()
		for {
			if err := stuck(); err != nil {
				log.Error("no progress; systemd will restart this daemon", "err", err)
			} else if _, err := daemon.SdNotify(false, daemon.SdNotifyWatchdog); err != nil {
				log.Warn("cannot notify systemd", "err", err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
