// Package drivertest is the conformance suite of drivers: what a driver declares is proven, and what it does
// not declare must be refused. A driver that passes can be trusted by the engine without a special case.
package drivertest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/drivers"
)

// Harness is what the suite needs to know of a driver under test and of the broker it speaks to.
type Harness struct {
	Driver drivers.Driver
	// Options reach a broker that works. They are as Open gets them: with the defaults of the schema.
	Options json.RawMessage
	// DeadOptions name an endpoint that refuses connections. Nil: not checked, and the log says so.
	DeadOptions json.RawMessage
	// DeadAddress is what the error for DeadOptions has to contain; "" is "127.0.0.1".
	DeadAddress string
	// FullOptions reach a broker that blocks Publish after a few messages. Nil: the suite stalls the connections.
	FullOptions json.RawMessage
	// Restart restarts the broker and returns when it answers again. Nil: it cannot be restarted here.
	Restart func(t *testing.T)
	// Cut breaks every link to the broker of Options at once. Nil: the suite cuts what Env.Dial connected.
	Cut func()
	// Bare says that the driver makes no connections at all: the checks of Dial do not apply.
	Bare bool
	// Brief says that a run of its own proves the same driver with other options whole: what does not depend on how messages reach
	// queues, are kept, confirmed and acknowledged is not proven again.
	Brief bool
	// Slow asks for fewer messages and waits longer for what must not happen.
	Slow bool

	wait time.Duration // shortens what the suite's own tests wait for in vain
}

// Run proves the driver contract as far as h.Driver declares it for h.Options. Every check has a deadline, a
// topology of its own, which it removes, and fails if it leaves a goroutine behind.
//
// An unroutable message is made by Topology.Queues 1 and PublisherSpec.Queue 1: a queue that was not declared.
// Drivers that declare Mandatory must connect such a publisher and return its messages.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range checks() {
		if h.Brief && elsewhere(c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			r := prove(t, h, c)
			for _, line := range r.logs {
				t.Log(line)
			}
			for _, line := range r.failures {
				t.Error(line)
			}
			if r.skipped != "" && len(r.failures) == 0 {
				t.Skip(r.skipped)
			}
		})
	}
}

// named is one check and the name of its subtest.
type named struct {
	name  string
	run   func(*check)
	limit time.Duration // 0: checkLimit
}

// elsewhere tells whether a check is about sessions, links and calls alone, which are the same with whatever options.
func elsewhere(name string) bool {
	of, _, _ := strings.Cut(name, "/")
	return slices.Contains([]string{"open", "dial", "describe", "probe", "close", "sizes", "ready", "batch", "together", "handler-blocks", "publish-blocks",
		"session-close", "cut", "restart"}, of)
}

// checks lists the whole suite.
func checks() []named {
	all := []named{
		{name: "info", run: checkInfo},
		{name: "open/garbage", run: checkGarbage},
		{name: "open/twice", run: checkOpenTwice},
		{name: "open/dead", run: checkDead},
		{name: "open/cancel", run: checkCancelOpen},
		{name: "dial/refused", run: checkDialRefused},
		{name: "dial/counted", run: checkDialCounted},
		{name: "dial/exclusive", run: checkExclusive},
		{name: "describe", run: checkDescribe},
		{name: "probe", run: checkProbe},
		{name: "probe/ends", run: checkProbeEnds},
		{name: "sweep", run: checkSweeper},
		{name: "setup", run: checkSetup},
		{name: "teardown", run: checkTeardown},
	}
	for _, m := range drivers.Modes() {
		all = append(all, named{name: "mode/" + string(m), run: func(c *check) { checkMode(c, m) }})
		all = append(all, named{name: "close/" + string(m), run: func(c *check) { checkClose(c, m) }})
	}
	for _, a := range []drivers.Ack{drivers.AckEach, drivers.AckEvery, drivers.AckInterval, drivers.AckAutomatic} {
		all = append(all, named{name: "ack/" + string(a), run: func(c *check) { checkAck(c, a) }})
		if a != drivers.AckAutomatic {
			all = append(all, named{name: "redelivery/" + string(a), run: func(c *check) { checkRedelivery(c, a) }})
		}
	}
	all = append(all, []named{
		{name: "order", run: checkOrder},
		{name: "sizes", run: checkSizes},
		{name: "ready", run: checkReady},
		{name: "prefetch", run: checkPrefetch},
		{name: "batch", run: checkBatch},
		{name: "fan-out", run: checkFanOut},
		{name: "bindings", run: checkBindings},
		{name: "binder", run: checkBinder},
		{name: "binder/together", run: checkBinderTogether},
		{name: "binder/ends", run: checkBinderEnds},
		{name: "queues", run: checkQueues},
		{name: "mandatory", run: checkMandatory},
		{name: "mandatory/unconfirmed", run: checkMandatoryUnconfirmed},
		{name: "together", run: checkTogether},
		{name: "handler-blocks/close", run: checkHandlerBlocks},
		{name: "publish-blocks/close", run: checkPublishBlocksClose},
		{name: "publish-blocks/cancel", run: checkPublishBlocksCancel},
		{name: "session-close", run: checkSessionClose},
		{name: "cut/publisher", run: checkCutPublisher},
		{name: "cut/consumer", run: checkCutConsumer},
		{name: "cut/late", run: checkCutLate},
	}...)
	return append(all, named{name: "restart", run: checkRestart, limit: restartLimit})
}
