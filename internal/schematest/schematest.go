// Package schematest completes the options of tests.
package schematest

import (
	"encoding/json"
	"fmt"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// Fill returns options with the defaults of the driver's schema, as drivers get them from a matrix. The test fails if
// the schema rejects the options.
func Fill[Text string | []byte | json.RawMessage](t testing.TB, d drivers.Driver, options Text) json.RawMessage {
	t.Helper()
	filled, err := fill(d, string(options))
	if err != nil {
		t.Fatal(err)
	}
	return filled
}

// FillNamed is Fill for a driver by name, and panics instead. It returns options of an unknown driver unchanged.
func FillNamed(driver string, options json.RawMessage) json.RawMessage {
	d, err := drivers.Lookup(driver)
	if err != nil {
		return options
	}
	filled, err := fill(d, string(options))
	if err != nil {
		panic(err)
	}
	return filled
}

func fill(d drivers.Driver, options string) (json.RawMessage, error) {
	ctx := cuecontext.New()
	schema := ctx.CompileString(d.Info().Schema).LookupPath(cue.ParsePath("#Options"))
	filled, err := schema.Unify(ctx.CompileString(options)).MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("complete options %s of driver %s: %w", options, d.Info().Name, err)
	}
	return filled, nil
}
