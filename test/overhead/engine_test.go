package overhead

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	harness "example.org/lockstep/lockstep/internal/engine"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
)

var tasks int // for unique names

// assignment gives one agent all roles.
func assignment(w work) plan.Assignment {
	tasks++
	cell := plan.Cell{Workload: plan.Default()}
	x := &cell.Workload
	x.Publishers.Mode, x.Publishers.MaxInFlight, x.Publishers.Count, x.Publishers.Persistent = string(w.mode), window,
		uint64(w.n), false
	x.Consumers.Prefetch = prefetch
	x.Message.Size = w.size
	x.Warmup, x.Measure = 0, plan.Duration(patience)
	one := plan.Share{Count: 1, Total: 1}
	return plan.Assignment{Task: plan.Task{Run: "overhead", ID: fmt.Sprint(tasks), Cell: cell}, Publishers: one,
		Consumers: one}
}

// direct returns the address unchanged, as in an agent without a simulated network.
func direct(_ context.Context, address string) (string, error) { return address, nil }

// engine executes the work as an agent does, with all recording.
func engine(b *testing.B, s subject, w work) sample {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	d, err := drivers.Lookup(s.name)
	must(b, err)
	var e *harness.Engine
	session, err := d.Open(ctx, s.options, drivers.Env{
		Dial: new(net.Dialer).DialContext, Forward: direct, Log: slog.New(slog.DiscardHandler),
		Dir:     b.TempDir(),
		Event:   func(kind drivers.EventKind, detail string) { b.Errorf("%s: %s", kind, detail) },
		Retried: func(requests int64) { b.Errorf("%d requests were repeated", requests) },
	})
	must(b, err)
	defer func() { must(b, session.Close()) }()
	a := assignment(w)
	e, err = harness.New(harness.Config{Assignment: a, Session: session, Log: slog.New(slog.DiscardHandler),
		CopiesBody: d.Info().Declare(s.options, drivers.Use{Mode: w.mode}).Capabilities.CopiesBody})
	must(b, err)
	topology := harness.Topology(a.Task)
	must(b, session.Setup(ctx, topology))
	defer func() { must(b, session.Teardown(context.Background(), topology)) }()
	must(b, e.ConnectConsumers(ctx))
	must(b, e.ConnectPublishers(ctx))

	before := cpuTime(b)
	must(b, e.Run(ctx, clock.Now()))
	var received int64
	var last record.Snapshot
	for {
		last = e.Take(false)
		for i := range last.Windows {
			received += last.Windows[i].Counts[record.Received]
		}
		if received >= int64(w.n) {
			break
		}
		if err := clock.Until(ctx, clock.Now()+int64(20*time.Millisecond)); err != nil {
			b.Fatalf("%s: the engine received %d of %d messages: %v", w, received, w.n, err)
		}
	}
	used := cpuTime(b) - before
	must(b, e.Close(ctx))
	final := e.Take(true)
	return sample{elapsed: time.Duration(max(last.LastDelivery, last.LastConfirm, final.LastConfirm)), cpu: used}
}
