package controller

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockstep/internal/wire"
)

// TestAgentsAreNotLostWithTheLink: after an outage of the control plane they have the whole time to be heard again, for
// however long the outage was; one that is silent then is lost.
func TestAgentsAreNotLostWithTheLink(t *testing.T) {
	const back = wire.LostAfter - 100*time.Millisecond // from the link to the first heartbeat
	for outage := time.Second; outage < 15*time.Second; outage += 300 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			type link struct {
				since  time.Time
				linked bool
			}
			var now atomic.Value
			now.Store(link{linked: true})
			f := newFleet(slog.New(slog.DiscardHandler), func() (time.Time, bool) { l := now.Load().(link); return l.since, l.linked })
			defer f.close()
			for _, name := range []string{"a1", "silent"} {
				f.heard(wire.Heartbeat{Agent: name, Instance: "i"})
			}
			time.Sleep(time.Second)
			now.Store(link{})
			time.Sleep(outage)
			now.Store(link{time.Now(), true})
			time.Sleep(back)
			if !f.there("a1") {
				t.Errorf("lost %v after an outage of %v", back, outage)
			}
			f.heard(wire.Heartbeat{Agent: "a1", Instance: "i"})
			time.Sleep(wire.LostAfter - back + time.Millisecond)
			if f.there("silent") || !f.there("a1") {
				t.Errorf("after an outage of %v, the silent one is there: %v, the other: %v", outage, f.there("silent"), f.there("a1"))
			}
		})
	}
}

// TestAgentsAreNotLostWhileTheControllerIsStopped: its timers fire late, all at once, before it has read a heartbeat.
func TestAgentsAreNotLostWhileTheControllerIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(slog.New(slog.DiscardHandler), func() (time.Time, bool) { return time.Time{}, true })
		defer f.close()
		f.heard(wire.Heartbeat{Agent: "a1", Instance: "i"})
		f.mu.Lock() // a stopped process sends nothing and reads nothing, and its clock goes on
		f.members["a1"].timer.Stop()
		f.mu.Unlock()
		time.Sleep(10 * time.Second)
		f.expire("a1", "i")
		if !f.there("a1") {
			t.Fatal("the agent is lost, although the controller could not hear it")
		}
		time.Sleep(wire.LostAfter + time.Millisecond)
		if f.there("a1") {
			t.Error("the agent is silent, and is not lost")
		}
	})
}
