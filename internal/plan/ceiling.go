package plan

import "cmp"

// Ceiling is the limit of the load generator itself for one shape of load, measured before the first task on the
// agents of the run, with the loopback driver in place of the broker.
type Ceiling struct {
	Load   LoadShape `json:"load"`
	Limits *Limits   `json:"limits,omitempty"` // nil: not measured
}

// LoadShape is what a ceiling depends on, besides the hosts. It is comparable.
type LoadShape struct {
	Mode        string `json:"mode"`
	MaxInFlight int    `json:"maxInFlight,omitempty"` // only in confirm-window
	Batch       Batch  `json:"batch,omitzero"`        // only in confirm-batch
	Size        int    `json:"size"`                  // bytes; the maximum of several sizes
	Nodes       int    `json:"nodes"`                 // publishing agents
	Threads     int    `json:"threads"`               // publishers per agent
}

// Limits are the results of the measurement of a ceiling.
type Limits struct {
	Rate     float64  `json:"rate"`     // msg/s of all publishing agents together, as fast as possible
	Publish  Duration `json:"publish"`  // median publish latency at LimitsRate; the highest of the agents
	EndToEnd Duration `json:"endToEnd"` // median end-to-end latency at LimitsRate; the highest of the agents
}

// LimitsRate is the publish rate of each agent at which latencies of Limits are measured, in msg/s.
const LimitsRate = 1000

// Compare orders shapes by agents, threads and size. Shapes that differ only in the mode are equal.
func (s LoadShape) Compare(o LoadShape) int {
	return cmp.Or(cmp.Compare(s.Nodes, o.Nodes), cmp.Compare(s.Threads, o.Threads), cmp.Compare(s.Size, o.Size))
}
