package plan

import (
	"time"
)

// Limits of runs and workloads. The memory use of agents and controllers is proportional to each of these sizes.
const (
	maxWait           = 366 * 24 * time.Hour // settle time between tasks, and grace for agents
	maxRounds         = 200                  // repetitions of a run that repeats until its values are precise enough
	maxGroups         = 1000                 // per cell
	maxAgents         = 20_000               // per cell
	maxTaskTime       = 24 * time.Hour       // per duration; records have one window per second
	maxTaskRest       = 2 * time.Hour        // Limit may exceed maxTaskTime by this
	maxInFlight       = 10_000_000           // messages per agent
	maxAllPublishers  = 1_000_000            // over all agents
	maxPublisherPairs = 10_000_000           // per agent; each consumer has one set of messages per publisher
	maxChurn          = 10_000               // bindings per second, and messages per second per binding
	maxNodes          = 500                  // of a cluster of brokers
	maxNodeName       = 256                  // bytes
	maxMetrics        = 1000                 // of a run, that only drivers declare
)

// Limits of workloads that other packages check, too.
const (
	MinMessageSize   = 64          // bytes: the size of the envelope
	MaxMessageSize   = 104_857_600 // bytes
	MaxInFlightBytes = 4 << 30     // bodies of messages in flight, bytes per agent
	MaxThreads       = 100_000     // per role and agent
	MaxQueues        = 100_000
	MaxSubscriptions = 10_000
)
