// Package drivertest is the conformance suite of drivers. It proves that a driver supports what it declares. The engine
// needs no special cases for a driver that passes.
package drivertest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// Harness describes a driver under test and its broker. Each of its more than 20 fields enables checks or limits them.
type Harness struct {
	Driver drivers.Driver
	// Options are options for a working broker. Run adds the defaults of the schema to these and all other options.
	Options json.RawMessage
	// DeadOptions are options with an endpoint that refuses connections. Nil: this is not checked, which the log
	// reports.
	DeadOptions json.RawMessage
	// DeadAddress is a text that the error for DeadOptions must contain. The default is "127.0.0.1".
	DeadAddress string
	// WrongCredentials are Options with WrongPassword. Nil: this is not checked, which the log reports.
	WrongCredentials json.RawMessage
	// FullOptions are options for a broker that blocks Publish after a few messages. Nil: the suite stalls the
	// connections.
	FullOptions json.RawMessage
	// Reject describes messages that the broker rejects. Nil: this is not checked, which the log reports.
	Reject *Rejection
	// Restart restarts the broker and returns when it answers again. Nil: the broker cannot be restarted.
	Restart func(t *testing.T)
	// Cut breaks every connection to the broker of Options at once. Nil: each check cuts those of its own Env.Dial.
	Cut func()
	// NoNetwork states that the driver makes no connections: the checks of Dial do not apply.
	NoNetwork bool
	// Existing makes a queue as another program would, for the check "existing". options are Options with the defaults.
	// It is required if the driver declares Existing. Declared returns one.
	Existing func(ctx context.Context, options json.RawMessage) (Existing, error)
	// TLS describes a listener with TLS. Nil: the checks of TLS do not apply.
	TLS *TLS
	// Subset lists the checks to run, by name ("mode/confirm-window") or by the part before the slash ("mode"). Empty:
	// all checks. Use it for a variant of options if another configuration runs all checks.
	Subset []string
	// MaxParallel is the maximum number of concurrent checks. The default of 8 is enough to use the time in which
	// checks wait for a broker, and suits two cores.
	MaxParallel int
	// NoQueueDepth states that the broker never reports queue_depth. Without it, a probe must report queue_depth.
	NoQueueDepth bool
	// NoPublishRate states that the broker never reports publish_rate, although the driver declares it for others.
	NoPublishRate bool
	// WholeChunks states that the broker delivers whole chunks of messages, which can be more than the prefetch.
	WholeChunks bool
	// OneRequest states that a publisher has one request in flight, whatever its window is: more would break the order.
	OneRequest bool
	// Groups states that the key of a message selects its message group, also without PublisherSpec.Keyed.
	Groups bool
	// Concurrent states that the broker lists its objects and declares topologies reliably while other checks create
	// and remove objects. The checks "tls", "probe", "cleanup", "setup" and "teardown" then run concurrently with
	// others.
	Concurrent bool
	// Slow reduces the number of messages, and waits longer for events that must not happen.
	Slow bool

	// wait and leakWait replace waitLimit and leakLimit in the suite's own tests. 0: the default.
	wait, leakWait time.Duration
}

// Existing is a queue that the suite uses and does not declare.
type Existing struct {
	Queue string // as in Topology.Existing
	// Options are those of a user who may only publish to the queue and consume from it, if the broker has permissions.
	Options json.RawMessage
	Remove  func() error
}

// MessagePath is the Subset for options that change how messages are routed, stored, confirmed and acknowledged. It
// leaves out the checks of sessions, links and single calls.
func MessagePath() []string {
	return []string{"info", "cleanup", "setup", "teardown", "mode", "ack", "redelivery", "order", "prefetch", "fan-out",
		"bindings", "binder", "queues", "keys", "mandatory", "reject"}
}

// Links is the Subset for options that change how connections are made, shared and closed, such as a list of nodes.
func Links() []string {
	return []string{"open", "dial", "tls", "describe", "probe", "close", "close-dead", "session-close", "publish-blocks",
		"handler-blocks", "nodes", "cut", "restart"}
}

// maxParallel is the default of Harness.MaxParallel.
const maxParallel = 8

// Run proves that h.Driver fulfils the driver contract, as far as it declares it for h.Options. Every check has a
// timeout and its own topology, which it removes.
//
// The checks of the subtest "parallel" run concurrently. Checks that affect others run alone afterwards, in this order:
// those of "tls", "probe", "cleanup", "setup", "teardown" without Harness.Concurrent, "in-process", those that call
// Harness.Cut, then "leaks", which looks for leaked goroutines of all checks, and last "restart". The time that "go
// test -v" prints for a parallel check does not include waiting for other checks. The log contains the check's own
// time.
//
// An unroutable message is created by Topology.Queues 1 and PublisherSpec.Queue 1, which is a queue that was not
// declared. Drivers that declare Mandatory must connect such a publisher and return its messages.
func Run(t *testing.T, h Harness) {
	t.Helper()
	RunAll(t, map[string]Harness{"": h})
}

// RunAll is Run for several configurations, whose names are part of the names of the subtests. It uses the time in
// which the checks of one configuration wait for checks of the others. The smallest Harness.MaxParallel applies to all.
func RunAll(t *testing.T, all map[string]Harness) {
	t.Helper()
	type part struct {
		name  string
		h     Harness
		check named
	}
	var chosen []part
	var parallel []int
	var leakWait time.Duration
	for _, name := range slices.Sorted(maps.Keys(all)) {
		some, err := all[name].chosen()
		if err != nil {
			t.Fatal(err)
		}
		h := all[name].complete(t)
		for _, c := range some {
			chosen = append(chosen, part{path.Join(name, c.name), h, c})
		}
		parallel = append(parallel, cmp.Or(h.MaxParallel, maxParallel))
		leakWait = max(leakWait, cmp.Or(h.leakWait, leakLimit))
	}
	before := goleak.IgnoreCurrent()
	var failed atomic.Bool
	report := func(t *testing.T, r result) {
		t.Helper()
		if len(r.failures) > 0 {
			failed.Store(true)
		}
		r.report(t)
	}
	t.Run("parallel", func(t *testing.T) {
		slots := make(chan struct{}, slices.Min(parallel))
		for _, c := range chosen {
			if c.h.alone(c.check.name) {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				done := make(chan result, 1)
				go func() { // before t.Parallel, which limits parallel tests to the number of cores
					slots <- struct{}{}
					defer func() { <-slots }()
					done <- prove(t, c.h, c.check)
				}()
				t.Parallel()
				report(t, <-done)
			})
		}
	})
	for _, c := range chosen {
		if c.h.alone(c.check.name) && c.check.name != "restart" {
			t.Run(c.name, func(t *testing.T) { report(t, prove(t, c.h, c.check)) })
		}
	}
	if slices.ContainsFunc(chosen, func(c part) bool { return c.check.name != "restart" }) {
		t.Run("leaks", func(t *testing.T) { checkLeaks(before, leakWait, failed.Load()).report(t) })
	}
	for _, c := range chosen {
		// its goroutines may belong to a broker in this process
		if c.check.name == "restart" {
			t.Run(c.name, func(t *testing.T) { report(t, prove(t, c.h, c.check)) })
		}
	}
}

// complete adds the defaults of the schema to all options.
func (h Harness) complete(t *testing.T) Harness {
	t.Helper()
	all := []*json.RawMessage{&h.Options, &h.DeadOptions, &h.WrongCredentials, &h.FullOptions}
	if h.TLS != nil {
		own := *h.TLS
		h.TLS = &own
		all = append(all, &own.Options)
	}
	if h.Reject != nil {
		own := *h.Reject
		h.Reject = &own
		all = append(all, &own.Options)
	}
	for _, options := range all {
		if *options != nil {
			*options = schematest.Fill(t, h.Driver, *options)
		}
	}
	return h
}

// alone reports whether a check would affect checks that run concurrently.
func (h Harness) alone(name string) bool {
	switch {
	case name == "restart", name == "in-process": // the broker ends
		return true
	case h.Cut != nil && (strings.HasPrefix(name, "cut/") || name == "binder/ends"): // Cut breaks the links of all checks
		return true
	case h.Concurrent:
		return false
	case name == "setup", name == "teardown":
		// They declare the same topology twice. FerretDB then creates an index again if other checks create collections
		// meanwhile.
		return true
	case name == "cleanup", name == "probe", strings.HasPrefix(name, "probe/"), strings.HasPrefix(name, "tls/"):
		// They list objects of the broker while other checks create and remove objects. Then RabbitMQ answers 500, and
		// a NATS cluster waits for the leaders of removed streams.
		return true
	}
	return false
}

// chosen returns the checks of the subset, in the order of the suite.
func (h Harness) chosen() ([]named, error) {
	all := checks()
	if len(h.Subset) == 0 {
		return all, nil
	}
	matches := func(entry, name string) bool { return entry == name || strings.HasPrefix(name, entry+"/") }
	for _, entry := range h.Subset {
		if !slices.ContainsFunc(all, func(c named) bool { return matches(entry, c.name) }) {
			return nil, fmt.Errorf("Harness.Subset: unknown check %q", entry)
		}
	}
	return slices.DeleteFunc(all, func(c named) bool {
		return !slices.ContainsFunc(h.Subset, func(entry string) bool { return matches(entry, c.name) })
	}), nil
}

// named is one check with the name of its subtest.
type named struct {
	name  string
	run   func(*check)
	limit time.Duration // 0: checkLimit
}

// checks returns all checks.
func checks() []named {
	all := []named{
		{name: "info", run: checkInfo},
		{name: "open/garbage", run: checkGarbage},
		{name: "open/twice", run: checkOpenTwice},
		{name: "open/optional", run: checkOptional},
		{name: "open/dead", run: checkDead},
		{name: "open/credentials", run: checkCredentials},
		{name: "open/cancel", run: checkCancelOpen},
		{name: "close-dead/silent", run: func(c *check) { checkCloseDead(c, false) }}, // early: they wait longest
		{name: "close-dead/stalled", run: func(c *check) { checkCloseDead(c, true) }},
		{name: "dial/refused", run: checkDialRefused},
		{name: "dial/counted", run: checkDialCounted},
		{name: "dial/conns", run: checkConns},
	}
	all = append(all, tlsChecks()...)
	all = append(all, []named{
		{name: "describe", run: checkDescribe},
		{name: "probe", run: checkProbe},
		{name: "probe/counts", run: checkProbeCounts},
		{name: "probe/rate", run: checkProbeRate},
		{name: "probe/ends", run: checkProbeEnds},
		{name: "cleanup", run: checkCleaner},
		{name: "setup", run: checkSetup},
		{name: "teardown", run: checkTeardown},
		{name: "existing", run: checkExisting},
	}...)
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
		{name: "ack/exact", run: checkExact},
		{name: "batch", run: checkBatch},
		{name: "fan-out", run: checkFanOut},
		{name: "bindings", run: checkBindings},
		{name: "binder", run: checkBinder},
		{name: "binder/together", run: checkBinderTogether},
		{name: "binder/ends", run: checkBinderEnds},
		{name: "queues", run: checkQueues},
		{name: "keys", run: checkKeys},
		{name: "mandatory", run: func(c *check) { checkMandatory(c, c.anyMode()) }},
		{name: "mandatory/unconfirmed", run: func(c *check) { checkMandatory(c, drivers.FireAndForget) }},
		{name: "reject", run: checkReject},
		{name: "nodes", run: checkNodes},
		{name: "together", run: checkTogether},
		{name: "sessions", run: checkSessions},
		{name: "in-process", run: checkInProcess},
		{name: "in-flight", run: checkInFlight},
		{name: "handler-blocks/stop", run: checkHandlerBlocks},
		{name: "publish-blocks/cut", run: checkPublishBlocksCut},
		{name: "session-close", run: checkSessionClose},
		{name: "cut/conn", run: checkCutConn},
		{name: "cut/publisher", run: checkCutPublisher},
		{name: "cut/consumer", run: checkCutConsumer},
		{name: "cut/library", run: checkCutLibrary},
		{name: "cut/late", run: checkCutLate},
	}...)
	return append(all, named{name: "restart", run: checkRestart, limit: restartLimit})
}
