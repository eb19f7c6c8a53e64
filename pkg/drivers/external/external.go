// Package external implements drivers as separate processes, in any language. They communicate over standard input and
// output, in frames of a JSON header and a body. docs/reference/driver-protocol.md describes the protocol. This package
// enforces the contract of drivers. A process that violates it, dies or hangs causes an error that names it, never a
// wrong number.
package external

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// Driver is a driver whose sessions are processes.
type Driver struct {
	command     Command
	description description
	limit       limits
}

// New starts the command, reads its description, and ends it. The description must contain this name.
func New(ctx context.Context, name string, c Command, log *slog.Logger) (*Driver, error) {
	return newDriver(ctx, name, c, usual, log)
}

func newDriver(ctx context.Context, name string, c Command, limit limits, log *slog.Logger) (*Driver, error) {
	if len(c.Command) == 0 || c.Command[0] == "" {
		return nil, fmt.Errorf("driver %s: no command is given", name)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l, desc, err := begin(ctx, name, c, limit, log)
	if err != nil {
		return nil, err
	}
	l.end()
	return &Driver{command: c, description: desc, limit: limit}, nil
}

// Register creates drivers from commands, in parallel, and adds them to the registry until remove is called. If any
// command cannot be used, no driver is added, and the error lists all such commands.
func Register(ctx context.Context, commands map[string]Command, log *slog.Logger) (remove func(), err error) {
	names := slices.Sorted(maps.Keys(commands))
	made, errs := make([]*Driver, len(names)), make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { made[i], errs[i] = New(ctx, name, commands[name], log) })
	}
	wg.Wait()
	var removes []func()
	remove = func() {
		for _, f := range removes {
			f()
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, d := range made {
		undo, err := drivers.Add(d)
		if err != nil {
			remove()
			return nil, err
		}
		removes = append(removes, undo)
	}
	return remove, nil
}

// Info returns the description that the process sent when New started it.
func (d *Driver) Info() drivers.Info {
	return drivers.Info{Name: d.description.Name, Doc: d.description.Doc, Schema: d.description.Schema,
		Metrics: d.description.Metrics,
		Declare: func(options json.RawMessage, use drivers.Use) drivers.Declaration {
			return d.description.declare(options, use)
		}}
}

func withDefaults(env drivers.Env) drivers.Env {
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	if env.Event == nil {
		env.Event = func(drivers.EventKind, string) {}
	}
	if env.Retried == nil {
		env.Retried = func(int64) {}
	}
	if env.Forward == nil {
		env.Forward = func(context.Context, string) (string, error) {
			return "",
				errors.New("there is no way out of here")
		}
	}
	return env
}
