// Package drivertest is the conformance suite of drivers: what a driver declares is proven, and what it does
// not declare must be refused. A driver that passes can be trusted by the engine without a special case.
package drivertest

import (
	"encoding/json"
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
	name string
	run  func(*check)
}

// checks lists the whole suite.
func checks() []named {
	all := []named{
		{"info", checkInfo},
		{"open/garbage", checkGarbage},
		{"open/twice", checkOpenTwice},
		{"open/dead", checkDead},
		{"open/cancel", checkCancelOpen},
		{"dial/refused", checkDialRefused},
		{"dial/counted", checkDialCounted},
		{"dial/exclusive", checkExclusive},
		{"describe", checkDescribe},
		{"setup", checkSetup},
		{"teardown", checkTeardown},
	}
	for _, m := range drivers.Modes() {
		all = append(all, named{"mode/" + string(m), func(c *check) { checkMode(c, m) }})
		all = append(all, named{"close/" + string(m), func(c *check) { checkClose(c, m) }})
	}
	for _, a := range []drivers.Ack{drivers.AckEach, drivers.AckEvery, drivers.AckInterval, drivers.AckAutomatic} {
		all = append(all, named{"ack/" + string(a), func(c *check) { checkAck(c, a) }})
		if a != drivers.AckAutomatic {
			all = append(all, named{"redelivery/" + string(a), func(c *check) { checkRedelivery(c, a) }})
		}
	}
	return append(all, []named{
		{"order", checkOrder},
		{"sizes", checkSizes},
		{"ready", checkReady},
		{"prefetch", checkPrefetch},
		{"batch", checkBatch},
		{"fan-out", checkFanOut},
		{"bindings", checkBindings},
		{"queues", checkQueues},
		{"mandatory", checkMandatory},
		{"mandatory/unconfirmed", checkMandatoryUnconfirmed},
		{"together", checkTogether},
		{"handler-blocks/close", checkHandlerBlocks},
		{"publish-blocks/close", checkPublishBlocksClose},
		{"publish-blocks/cancel", checkPublishBlocksCancel},
		{"session-close", checkSessionClose},
		{"cut/publisher", checkCutPublisher},
		{"cut/consumer", checkCutConsumer},
		{"restart", checkRestart},
	}...)
}
