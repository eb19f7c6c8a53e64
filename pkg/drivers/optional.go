package drivers

import "context"

// Describer is implemented by sessions whose broker can be identified.
type Describer interface {
	Describe(ctx context.Context) (Description, error)
}

// Description is the identity of a broker, without secrets. It is part of the subject's fingerprint.
type Description struct {
	Product  string            `json:"product,omitempty"`
	StandIn  string            `json:"standIn,omitempty"` // product in whose place this one runs; empty: itself
	Version  string            `json:"version,omitempty"`
	Members  []string          `json:"members,omitempty"`  // nodes of the cluster, sorted
	Settings map[string]string `json:"settings,omitempty"` // effective settings that affect results
}

// Prober is implemented by sessions whose broker reports metrics.
type Prober interface {
	// Probe reads the metrics once. One agent of a task calls it from one goroutine, about once per second, while
	// publishers and consumers are active. It should not use the measured path (Env.ManagementDialer).
	//
	// Rules for the result:
	//
	//   - Info.Metrics declares every name.
	//   - Metrics that the broker does not report are omitted, never 0.
	//   - A metric is of the whole broker or of its nodes, never both.
	//   - Metrics since the last probe, and rates, are omitted in the first probe.
	//   - Metrics and an error may be returned together. The error is then the reason for missing metrics.
	//   - An error that wraps ErrUnsupported names the options that are needed for metrics. Probe is then not called
	//     again.
	Probe(ctx context.Context) ([]Metric, error)
}

// Binder is implemented by sessions whose broker can change bindings during the load. Its methods are safe for
// concurrent use. A message with a ChurnKey without a binding is unroutable.
type Binder interface {
	// Bind routes messages to queue with this key (≥ ChurnKey) to that queue of the subscription. It returns when the
	// broker has confirmed the binding. Teardown removes bindings that are left.
	Bind(ctx context.Context, t Topology, subscription, queue int, key uint32) error
	// Unbind removes a binding. It succeeds if the binding does not exist.
	Unbind(ctx context.Context, t Topology, subscription, queue int, key uint32) error
}

// Verifier is implemented by sessions that can use existing queues.
type Verifier interface {
	// Verify returns an error that names the queues of a topology with Existing that are missing, or do not fit the
	// options. It changes nothing at the broker. It needs no permissions besides those to publish and to consume,
	// unless the broker creates a missing queue at its first use. It is called instead of Setup.
	Verify(ctx context.Context, t Topology) error
}

// Cleaner is implemented by sessions that can list and remove objects at a broker, for the cleanup after killed runs.
// An error that wraps ErrUnsupported names the options that are needed.
type Cleaner interface {
	// Leftovers returns the objects whose names begin with prefix, sorted. It removes nothing.
	Leftovers(ctx context.Context, prefix string) ([]Leftover, error)
	// Cleanup removes objects. Objects that no longer exist are not an error.
	Cleanup(ctx context.Context, these []Leftover) error
}

// ClientProcesses is implemented by sessions whose client runs in separate processes on this host. Their resource use
// counts as the agent's.
type ClientProcesses interface {
	// Processes returns the current process ids. The caller finds their child processes. It is safe for concurrent use.
	Processes() []int
}

// Leftover is one object at a broker.
type Leftover struct {
	Kind string `json:"kind"` // in the broker's terms: "queue", "exchange", "topic", "consumer group"
	Name string `json:"name"`
}
