package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// fake is a driver for these tests: it only declares capabilities.
type fake struct{ name string }

func init() {
	drivers.Register(fake{"fake"})
	drivers.Register(fake{"simple"})
}

const fakeSchema = `
#Options: {
	// Where it is.
	url: *"fake://127.0.0.1:1/" | string & !=""
	// Other places.
	urls?: [string, ...string]
	// How it stores.
	storage: *"memory" | "file"
	// Copies.
	replicas: *1 | int & >=1 & <=5
	// How its queues are.
	queue: {
		type: *"classic" | "quorum"
		arguments: {[string]: number | string | bool}
	}
}
`

func (f fake) Info() drivers.Info {
	info := drivers.Info{Name: f.name, Doc: "A driver that only declares.", Schema: fakeSchema, Declare: f.declare}
	if f.name == "fake" {
		info.Metrics = append(drivers.SharedMetrics(drivers.MetricQueues), segments)
	}
	return info
}

var segments = drivers.MetricInfo{Name: "segments", Unit: "count", Doc: "open segments", Sum: true}

func (f fake) declare(options json.RawMessage, use drivers.Use) drivers.Declaration {
	d := drivers.Declaration{Capabilities: drivers.Capabilities{
		Modes: drivers.Modes(), Acks: []drivers.Ack{drivers.AckEach, drivers.AckEvery, drivers.AckInterval,
			drivers.AckAutomatic},
		Mandatory: true, Persistent: true, Transient: true, UnlimitedPrefetch: true, Subscriptions: true,
		Bindings: true, Nodes: true, Existing: true,
	}, Guarantees: drivers.Guarantees{ConfirmedKept: true}, Label: "held in no memory"}
	var o struct{ Storage string }
	if json.Unmarshal(options, &o) == nil && o.Storage == "file" && use.Prefetch == 13 {
		d.Rejections = append(d.Rejections, "13 is an unlucky prefetch for files")
	}
	if f.name == "simple" {
		d.Capabilities = drivers.Capabilities{Modes: slices.Clone(drivers.Modes()[:1]),
			Acks: []drivers.Ack{drivers.AckAutomatic}, Transient: true}
	}
	return d
}

func (fake) Open(context.Context, json.RawMessage, drivers.Env) (drivers.Session, error) {
	return nil, errors.New("the fake opens nothing")
}
