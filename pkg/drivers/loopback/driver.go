// Package loopback is a broker in the memory of the process: the reference driver, the fake of every test and
// the floor of the harness. It keeps all promises unless its options ask for faults, which are exact in number.
package loopback

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"

	"lockstep/pkg/drivers"
)

//go:embed schema.cue
var schema string

func init() { drivers.Register(Driver{}) }

// Driver is the loopback driver.
type Driver struct{}

// Info describes the driver.
func (Driver) Info() drivers.Info {
	return drivers.Info{
		Name:    "loopback",
		Doc:     "A broker in the memory of the process: no network, faults on demand, the floor of every figure.",
		Schema:  schema,
		Declare: func(json.RawMessage, drivers.Use) drivers.Declaration { return drivers.Declaration{} },
	}
}

// Open prepares a session.
func (Driver) Open(context.Context, json.RawMessage, drivers.Env) (drivers.Session, error) {
	return nil, errors.New("open loopback: not built yet")
}

// Cut breaks every link to the broker of this name.
func Cut(name string) {}
