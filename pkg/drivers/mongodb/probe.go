package mongodb

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"lockstep/pkg/drivers"
)

// Probe asks the primary: serverStatus for itself, and collStats and a count for each collection of the task. What the user may not ask
// for, or the server does not say, is missing.
func (s *session) Probe(ctx context.Context) ([]drivers.Figure, error) {
	db, err := s.database(ctx, &s.aside)
	if err != nil {
		return nil, fmt.Errorf("probe MongoDB: %w", err)
	}
	status, err := command(ctx, db.Client().Database("admin"), bson.D{{Key: "serverStatus", Value: 1}})
	if err != nil {
		return nil, fmt.Errorf("probe MongoDB: serverStatus: %w", err)
	}
	s.mu.Lock()
	var figures []drivers.Figure
	figures, s.cpu = serverFigures(status, s.cpu, time.Now())
	names := slices.Clone(s.depths)
	s.mu.Unlock()
	of, err := collectionFigures(ctx, db, names)
	if err != nil {
		return nil, fmt.Errorf("probe MongoDB: %w", err)
	}
	return append(figures, of...), nil
}

// command runs one; what the server refuses gives nil and no error.
func command(ctx context.Context, db *mongo.Database, c bson.D) (bson.Raw, error) {
	raw, err := db.RunCommand(ctx, c).Raw()
	if err != nil && refused(err) {
		return nil, nil
	}
	return raw, err
}

// cpuReading is the processor time that a server had used at some time.
type cpuReading struct {
	at   time.Time
	used float64 // seconds
}

// serverFigures reads serverStatus. Processor time is there on Linux alone.
func serverFigures(status bson.Raw, last cpuReading, now time.Time) ([]drivers.Figure, cpuReading) {
	var all []drivers.Figure
	add := func(name drivers.FigureName, factor float64, path ...string) {
		if v, ok := number(status, path...); ok {
			all = append(all, drivers.Figure{Name: name, Value: v * factor})
		}
	}
	add(drivers.FigureConnections, 1, "connections", "current")
	add(drivers.FigureMemory, 1<<20, "mem", "resident")
	user, is := number(status, "extra_info", "user_time_us")
	system, are := number(status, "extra_info", "system_time_us")
	if !is || !are {
		return all, cpuReading{}
	}
	next := cpuReading{at: now, used: (user + system) / 1e6}
	if passed := next.at.Sub(last.at).Seconds(); !last.at.IsZero() && passed > 0 && next.used >= last.used {
		all = append(all, drivers.Figure{Name: drivers.FigureCPU, Value: (next.used - last.used) / passed})
	}
	return all, next
}

// number reads a number of any kind; false if it is not there.
func number(raw bson.Raw, path ...string) (float64, bool) {
	v, err := raw.LookupErr(path...)
	if err != nil {
		return 0, false
	}
	if i, ok := v.AsInt64OK(); ok {
		return float64(i), true
	}
	return v.DoubleOK()
}

// collectionFigures adds up the collections of the task. Any that cannot be asked leaves its figures out: a part is not the whole.
func collectionFigures(ctx context.Context, db *mongo.Database, names []string) ([]drivers.Figure, error) {
	if len(names) == 0 {
		return nil, nil
	}
	var depth, stored, hidden float64
	sized := true
	now := bson.NewDateTimeFromTime(time.Now())
	for _, name := range names {
		stats, err := command(ctx, db, bson.D{{Key: "collStats", Value: name}})
		if err != nil {
			return nil, fmt.Errorf("collStats of %s: %w", name, err)
		}
		count, is := number(stats, "count")
		data, are := number(stats, "storageSize")
		index, too := number(stats, "totalIndexSize")
		if !is {
			return nil, nil
		}
		sized = sized && are && too
		depth, stored = depth+count, stored+data+index
		n, err := db.Collection(name).CountDocuments(ctx, bson.D{{Key: fieldAt, Value: bson.D{{Key: "$gt", Value: now}}}})
		if err != nil {
			return nil, fmt.Errorf("count %s: %w", name, err)
		}
		hidden += float64(n)
	}
	all := []drivers.Figure{
		{Name: drivers.FigureQueues, Value: float64(len(names))},
		{Name: drivers.FigureQueueDepth, Value: depth},
		{Name: drivers.FigureUnacked, Value: hidden},
	}
	if sized {
		all = append(all, drivers.Figure{Name: drivers.FigureStored, Value: stored})
	}
	return all, nil
}
