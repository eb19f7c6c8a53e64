package kit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// Leftovers returns the objects of one kind whose names begin with prefix, sorted. Their order is that of a Cleaner.
func Leftovers(kind, prefix string, names []string) []drivers.Leftover {
	var all []drivers.Leftover
	for _, name := range slices.Sorted(slices.Values(names)) {
		if strings.HasPrefix(name, prefix) {
			all = append(all, drivers.Leftover{Kind: kind, Name: name})
		}
	}
	return all
}

// Cleanup calls the function of each kind with the names of the objects, in the order of the kinds, and joins the
// errors. It removes nothing if one of the objects has another kind.
func Cleanup(these []drivers.Leftover, remove map[string]func(names []string) error) error {
	names := map[string][]string{}
	for _, one := range these {
		if remove[one.Kind] == nil {
			return fmt.Errorf("cleanup %s %q: the driver creates no such objects: %w", one.Kind, one.Name,
				drivers.ErrUnsupported)
		}
		names[one.Kind] = append(names[one.Kind], one.Name)
	}
	var errs []error
	for _, kind := range slices.Sorted(maps.Keys(names)) {
		if err := remove[kind](names[kind]); err != nil {
			errs = append(errs, fmt.Errorf("cleanup: %w", err))
		}
	}
	return errors.Join(errs...)
}
