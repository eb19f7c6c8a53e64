package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/wire"
)

// TestAgentsAreNotLostDuringAnOutage proves that after an outage of the control plane (with a broken or a silent
// link), or after a pause of this process, agents have the full time to send a heartbeat, for any duration of the
// outage. An agent that is silent for that time is lost.
func TestAgentsAreNotLostDuringAnOutage(t *testing.T) {
	const back = wire.LostAfter - 2*silenceEvery // from then to the first heartbeat
	for _, answers := range []bool{false, true} {
		for outage := wire.LostAfter/2 + 2*silenceEvery; outage < 15*time.Second; outage += 300 * time.Millisecond {
			t.Run(fmt.Sprintf("%v, request answered at the end: %v", outage, answers), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(slog.New(slog.DiscardHandler))
					begin := time.Now().Add(time.Second)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					go f.dropSilent(ctx, func(context.Context) (time.Duration, error) {
						left := time.Until(begin.Add(outage))
						if time.Now().Before(begin) || left <= 0 {
							return 0, nil
						}
						if answers {
							time.Sleep(left)
							return left, nil
						}
						return 0, errors.New("no link")
					})
					for _, name := range []string{"a1", "silent"} {
						f.heartbeat(wire.Heartbeat{Agent: name, Instance: "i"})
					}
					time.Sleep(time.Second + outage + back)
					if !f.has("a1") {
						t.Errorf("%v after the outage: a1 is lost", back)
					}
					f.heartbeat(wire.Heartbeat{Agent: "a1", Instance: "i"})
					time.Sleep(wire.LostAfter - back + silenceEvery)
					if f.has("silent") || !f.has("a1") {
						t.Errorf("listed agents: got silent %v, a1 %v, want false, true", f.has("silent"), f.has("a1"))
					}
				})
			})
		}
	}
}

// Each response of the control plane takes almost two seconds.
func TestSilentAgentsAreLostBehindASlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		const rtt = wire.LostAfter/2 - time.Millisecond
		go f.dropSilent(ctx, func(ctx context.Context) (time.Duration, error) { return rtt, wire.Wait(ctx, rtt) })
		f.heartbeat(wire.Heartbeat{Agent: "a1", Instance: "i"})
		time.Sleep(2 * wire.LostAfter)
		if f.has("a1") {
			t.Error("an agent without heartbeats for twice LostAfter is not lost")
		}
	})
}

// TestLogLinesOfAnAgentAreLimited proves that an agent with another process in each heartbeat, or one that joins and
// leaves repeatedly, cannot fill the log.
func TestLogLinesOfAnAgentAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := newFleet(slog.New(slog.NewTextHandler(&log, nil)))
		lines := func(agent string) int { return strings.Count(log.String(), "agent="+agent+" ") }
		flood := func() {
			for i := range 100 {
				f.heartbeat(wire.Heartbeat{Agent: "a1", Host: "h", Instance: fmt.Sprint("i", i)})
				f.heartbeat(wire.Heartbeat{Agent: "a2", Host: "h", Instance: "i", Leaving: i%2 > 0})
			}
		}
		flood()
		f.heartbeat(wire.Heartbeat{Agent: "a3", Host: "h", Instance: "i"})
		if lines("a1") != maxLines || lines("a2") != maxLines || lines("a3") != 1 {
			t.Errorf("log lines of the agents: got %d, %d, %d, want %d, %[4]d, 1", lines("a1"), lines("a2"),
				lines("a3"), maxLines)
		}
		time.Sleep(time.Minute + time.Second)
		flood()
		if lines("a1") != 2*maxLines {
			t.Errorf("log lines of a1 after another minute: got %d, want %d", lines("a1"), 2*maxLines)
		}
	})
}
