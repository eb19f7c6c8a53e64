// Package wiretest lets tests use a control plane in virtual time: the embedded NATS server, its clients, controllers,
// agents, the engine and the loopback driver run in one testing/synctest bubble.
//
// Virtual time passes only while every goroutine of the bubble is durably blocked. Rules for a test that uses this
// package:
//
//   - The control plane is wire.Embedded without Listen and Dir: connections are net.Pipes, streams are in memory.
//   - The test does not wait long for a process, a socket or a pipe of the operating system: time stands still
//     meanwhile.
//   - No link is lost: the NATS client reconnects with a timer that all bubbles share. Close a connection instead.
//   - No timer or channel of another bubble is used: brokers of the loopback driver have unique names in each test.
//
// Work takes no virtual time, so a busy machine does not affect a test, and a test can require exact times.
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

// keepAccessTime starts the ticker that all NATS servers of a process share. Otherwise the first server would start it
// in its bubble. It waits for a channel from outside, so the time of the bubble would stand still.
var keepAccessTime = sync.OnceFunc(ats.Register)

// begin is the start time of tests. A bubble starts in 2000. There clock.Now, which counts from the boot of the host,
// is negative.
var begin = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// InVirtualTime runs a test in its own bubble, in parallel with others.
func InVirtualTime(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	AloneInVirtualTime(t, test)
}

// AloneInVirtualTime is InVirtualTime without parallel tests. It is for tests of process-wide state.
func AloneInVirtualTime(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	keepAccessTime()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(begin))
		test(t)
	})
}

// Virtual reports whether the caller runs in a bubble. Times of a bubble have no monotonic reading.
func Virtual() bool {
	now := time.Now()
	return now == now.Round(0)
}

// Stored returns the number of stored messages of the queue and of runs, by subject.
func Stored(ctx context.Context, js jetstream.JetStream) (map[string]uint64, error) {
	var names []string
	streams := js.StreamNames(ctx)
	for name := range streams.Name() { // the sender blocks until all names are read
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
