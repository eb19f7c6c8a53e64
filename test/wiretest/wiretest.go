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
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"
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
