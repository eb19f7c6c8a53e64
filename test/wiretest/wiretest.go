// Package wiretest lets tests use a control plane in virtual time: the embedded NATS server, its clients, controllers,
// agents, the engine and the loopback driver run in one testing/synctest bubble.
//
// Everything in a bubble has to block durably for its time to pass. So in a test of this package
//
//   - the control plane is wire.Embedded without Listen and Dir: connections are net.Pipes, streams are in memory;
//   - no process, socket or pipe of the operating system is waited for for long: time stands still meanwhile;
//   - no link is lost: the NATS client opens it again with a timer that all bubbles share. Close a connection instead;
//   - no timer or channel of another bubble is used: brokers of driver loopback have names of their own in each test.
//
// Time passes only when every goroutine waits. What a busy machine makes slow takes no time, so that a test can require
// exact times.
package wiretest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go/jetstream"
)

// Background is the goroutine that InVirtualTime leaves running, for goleak.IgnoreAnyFunction.
const Background = "github.com/nats-io/nats-server/v2/server/ats.Register.func1"

// keepAccessTime starts the ticker that all NATS servers of a process share. The first server would start it in its
// bubble, and it waits for a channel from outside, so that the bubble's time would stand still.
var keepAccessTime = sync.OnceFunc(ats.Register)

// begin is when tests begin. A bubble begins in 2000, where clock.Now, which counts from the boot of the host, is
// negative.
var begin = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// InVirtualTime runs a test in a bubble of its own, in parallel to others.
func InVirtualTime(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	AloneInVirtualTime(t, test)
}

// AloneInVirtualTime is InVirtualTime without other tests in parallel, for what a process has once.
func AloneInVirtualTime(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	keepAccessTime()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(begin))
		test(t)
	})
}

// Virtual reports whether the caller runs in a bubble: the times of a bubble have no monotonic reading.
func Virtual() bool {
	now := time.Now()
	return now == now.Round(0)
}

// Stored counts the messages that a control plane stores of its queue and of runs, by subject.
func Stored(ctx context.Context, js jetstream.JetStream) (map[string]uint64, error) {
	var names []string
	streams := js.StreamNames(ctx)
	for name := range streams.Name() { // whose sender waits until all are read
		names = append(names, name)
	}
	if err := streams.Err(); err != nil {
		return nil, err
	}
	stored := map[string]uint64{}
	for _, name := range names {
		s, err := js.Stream(ctx, name)
		if err != nil {
			return nil, err
		}
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
		if err != nil {
			return nil, err
		}
		for subject, n := range info.State.Subjects {
			if strings.HasPrefix(subject, "lockstep.") { // others are keys of buckets
				stored[subject] += n
			}
		}
	}
	return stored, nil
}
