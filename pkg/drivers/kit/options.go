// Package kit has parts that several drivers use.
package kit

import (
	"bytes"
	_ "embed" // for schema.cue
	"encoding/json"
	"fmt"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// Schema is CUE source that defines #TLS, and _#time for a Duration above 0. Drivers append it to their own, whose
// #Options have the field tls?: #TLS.
//
//go:embed schema.cue
var Schema string

// Decode decodes options of a driver. They are validated by its schema, and contain the defaults. Check validates what
// a schema cannot, such as combinations. An unknown field is an error. Numbers in untyped fields are json.Number.
func Decode[T any, P interface {
	*T
	Check() error
}](driver string, options json.RawMessage) (T, error) {
	var o T
	d := json.NewDecoder(bytes.NewReader(options))
	d.UseNumber()
	d.DisallowUnknownFields()
	err := d.Decode(&o)
	if err == nil {
		err = P(&o).Check()
	}
	if err != nil {
		return o, fmt.Errorf("read %s options: %w", driver, err)
	}
	return o, nil
}

// Declare returns an Info.Declare that decodes the options. The error of invalid options is the only rejection.
func Declare[T any, P interface {
	*T
	Check() error
}](driver string, declare func(o P, use drivers.Use) drivers.Declaration) func(json.RawMessage,
	drivers.Use) drivers.Declaration {
	return func(raw json.RawMessage, use drivers.Use) drivers.Declaration {
		o, err := Decode[T, P](driver, raw)
		if err != nil {
			return drivers.Declaration{Rejections: []string{err.Error()}}
		}
		return declare(&o, use)
	}
}

// Reasons collects the reasons why a use is not supported, or notes about it.
type Reasons []string

// If adds a reason if it applies.
func (r *Reasons) If(applies bool, format string, args ...any) {
	if applies {
		*r = append(*r, fmt.Sprintf(format, args...))
	}
}

// Duration is a time.Duration that options contain as text: "5s".
type Duration time.Duration

// UnmarshalText parses a duration. The schema limits its value.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%w: write it like \"30s\"", err)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalText formats the duration as String does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Std returns the duration as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String formats the duration as time.Duration does.
func (d Duration) String() string { return d.Std().String() }
