package plan

import "slices"

// Observation instructs an observer to measure one broker of a task. An observer is an agent that measures a broker's
// processes on their host, and generates no load.
type Observation struct {
	Broker string `json:"broker"` // its name in the matrix
	As     string `json:"as"`     // the observer's own name for it: the broker's name, or its driver's
}

// Observe returns the brokers of a task that an observer measures, given the names in its own configuration. A name is
// a broker's, or else a driver's. ambiguous are brokers that match the same driver's name: the observed process could
// belong to any of them.
func Observe(brokers []Broker, names []string) (fit []Observation, ambiguous []string) {
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
			ambiguous = append(ambiguous, b.Name)
		default:
			fit = append(fit, Observation{b.Name, b.Driver})
		}
	}
	return fit, ambiguous
}
