package record

import (
	"cmp"
	"slices"
)

// ProbeSample is one metric that the broker reported about itself.
type ProbeSample struct {
	At    int64   `json:"at"`             // ns since T0
	Name  string  `json:"name"`           // as in package drivers
	Node  string  `json:"node,omitempty"` // the member of a cluster; empty: the whole broker
	Value float64 `json:"value"`
}

// Probes returns the metrics that the broker reported, by time, name and node.
func (m *Merged) Probes() []ProbeSample {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(m.probes), func(a, b ProbeSample) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node))
	})
}
