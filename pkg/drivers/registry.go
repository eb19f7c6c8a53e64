package drivers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

var (
	registryMu sync.RWMutex
	registry   = map[string]Driver{}
)

// Register adds a built-in driver. Call it from init. It panics if Add fails.
func Register(d Driver) {
	if _, err := Add(d); err != nil {
		panic("drivers: " + err.Error())
	}
}

// Add adds a driver at the start of the program, until remove is called. It is safe for concurrent use. It fails if the
// name is missing or registered already, or if the declarations of metrics are invalid or contradict those of another
// driver.
func Add(d Driver) (remove func(), err error) {
	info := d.Info()
	name := info.Name
	if name == "" {
		return nil, fmt.Errorf("a driver of type %T has no name", d)
	}
	if err := CheckMetrics(info.Metrics); err != nil {
		return nil, fmt.Errorf("driver %s: %w", name, err)
	}
	registryMu.Lock()
	defer registryMu.Unlock()
	if _, twice := registry[name]; twice {
		return nil, fmt.Errorf("there is a driver %q already; give it another name", name)
	}
	for _, other := range registry {
		others := other.Info()
		for _, m := range info.Metrics {
			if at := metricAt(others.Metrics, m.Name); at >= 0 && !m.Same(others.Metrics[at]) {
				return nil, fmt.Errorf("driver %s: metric %q differs from that of driver %s (%+v and %+v); use another name",
					name, m.Name, others.Name, m, others.Metrics[at])
			}
		}
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
	return slices.Sorted(maps.Keys(registry))
}

// Metrics returns the metrics of all registered drivers, each once: shared ones first, then those of each driver.
func Metrics() []MetricInfo {
	all := SharedMetrics()
	for _, name := range Names() {
		if d, err := Lookup(name); err == nil {
			for _, m := range d.Info().Metrics {
				if metricAt(all, m.Name) < 0 {
					all = append(all, m)
				}
			}
		}
	}
	return all
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
