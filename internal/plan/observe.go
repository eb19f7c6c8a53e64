package plan

import "slices"

// Observation asks an observer, an agent that measures a broker's processes on their own host and takes no load, to
// measure one broker of a task.
type Observation struct {
	Broker string `json:"broker"` // its name in the matrix
	As     string `json:"as"`     // what the observer was told to call it: that name, or its driver's
}

// Observe says which of a task's brokers an observer measures that was told these names: by a broker's name or, where
// it has no such entry, by its driver. Unclear are brokers that one driver's entry fits alike: which of them the
// process belongs to it does not say.
func Observe(brokers []Broker, names []string) (fit []Observation, unclear []string) {
	drivers := map[string][]string{}
	for _, b := range brokers {
		switch {
		case slices.Contains(names, b.Name):
			fit = append(fit, Observation{b.Name, b.Name})
		case slices.Contains(names, b.Driver):
			drivers[b.Driver] = append(drivers[b.Driver], b.Name)
		}
	}
	for _, b := range brokers {
		switch alike := drivers[b.Driver]; {
		case !slices.Contains(alike, b.Name):
		case len(alike) > 1:
			unclear = append(unclear, b.Name)
		default:
			fit = append(fit, Observation{b.Name, b.Driver})
		}
	}
	return fit, unclear
}
