package drivers

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

var (
	registryMu sync.RWMutex
	registry   = map[string]Driver{}
)

// Register adds a built-in driver. Call it from init. It panics if the name is missing or registered already.
func Register(d Driver) {
	if _, err := Add(d); err != nil {
		panic("drivers: " + err.Error())
	}
}

// Add adds a driver at the start of the program, until remove is called. It is safe for concurrent use.
func Add(d Driver) (remove func(), err error) {
	name := d.Info().Name
	if name == "" {
		return nil, fmt.Errorf("a driver of type %T has no name", d)
	}
	registryMu.Lock()
	defer registryMu.Unlock()
	if _, twice := registry[name]; twice {
		return nil, fmt.Errorf("there is a driver %q already; give it another name", name)
	}
	registry[name] = d
	return func() {
		registryMu.Lock()
		defer registryMu.Unlock()
		delete(registry, name)
	}, nil
}

// Names returns the names of the registered drivers, sorted.
func Names() []string {
	registryMu.RLock()
	defer registryMu.RUnlock()
	names := make([]string, 0, len(registry))
	for name := range registry {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Lookup returns a driver by name. The error lists the registered names.
func Lookup(name string) (Driver, error) {
	registryMu.RLock()
	d, ok := registry[name]
	registryMu.RUnlock()
	if ok {
		return d, nil
	}
	return nil,
		fmt.Errorf("no driver %q on this host (available: %s); load an external driver with --drivers FILE",
			name, strings.Join(Names(), ", "))
}
