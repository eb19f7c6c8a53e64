package drivers

import (
	"fmt"
	"slices"
	"strings"
)

var registry = map[string]Driver{}

// Register adds a driver; call it from init. A missing or repeated name is a programmer's mistake and panics.
func Register(d Driver) {
	name := d.Info().Name
	if name == "" {
		panic("drivers: a driver without a name")
	}
	if _, twice := registry[name]; twice {
		panic("drivers: " + name + " is registered twice")
	}
	registry[name] = d
}

// Names lists the registered drivers, sorted.
func Names() []string {
	names := make([]string, 0, len(registry))
	for name := range registry {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Lookup finds a driver by name; the error lists those there are.
func Lookup(name string) (Driver, error) {
	if d, ok := registry[name]; ok {
		return d, nil
	}
	return nil, fmt.Errorf("no driver %q in this build (there are: %s)", name, strings.Join(Names(), ", "))
}
