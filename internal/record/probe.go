package record

import (
	"cmp"
	"slices"
)

// ProbeSample is one metric that the broker said of itself at one moment.
type ProbeSample struct {
	At    int64   `json:"at"`             // nanoseconds since T0
	Name  string  `json:"name"`           // as in package drivers
	Node  string  `json:"node,omitempty"` // the member of a cluster that it is of; empty: the whole broker
	Value float64 `json:"value"`
}

// Probes returns what the broker said of itself, by time, name and node.
func (m *Merged) Probes() []ProbeSample {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(m.probes), func(a, b ProbeSample) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node))
	})
}
