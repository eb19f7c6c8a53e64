package mongodb

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// askWithin is the maximum time of a probe, so that it can return the metrics read so far.
const askWithin = 3 * time.Second

// Probe reads serverStatus and dbStats of the primary, and collStats and a count of each of the task's collections.
// Metrics that the user may not read, or the server does not return, are missing.
func (s *session) Probe(ctx context.Context) ([]drivers.Metric, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	db, err := s.database(ctx, &s.probes, s.env.ManagementDialer())
	if err != nil {
		return nil, fmt.Errorf("probe MongoDB: %w", err)
	}
	status, err := command(ctx, db.Client().Database("admin"), bson.D{{Key: "serverStatus", Value: 1}})
	if err != nil {
		return nil, fmt.Errorf("probe MongoDB: serverStatus: %w", err)
	}
	metrics := serverMetrics(status, &s.grown)
	stats, err := command(ctx, db, bson.D{{Key: "dbStats", Value: 1}})
	if err != nil {
		return metrics, fmt.Errorf("probe MongoDB: dbStats: %w", err)
	}
	metrics = append(metrics, diskMetrics(stats)...)
	s.mu.Lock()
	names := slices.Clone(s.depths)
	s.mu.Unlock()
	of, err := collectionMetrics(ctx, db, names)
	metrics = append(metrics, of...)
	if err != nil {
		return metrics, fmt.Errorf("probe MongoDB: %w", err)
	}
	return metrics, nil
}

// command runs a command. It returns nil without an error if the server rejects it.
func command(ctx context.Context, db *mongo.Database, c bson.D) (bson.Raw, error) {
	raw, err := db.RunCommand(ctx, c).Raw()
	if err != nil && refused(err) {
		return nil, nil
	}
	return raw, err
}

// serverMetrics reads serverStatus. Processor time exists only on Linux. Rates are per server, because a new primary
// has its own counters. The publish rate is that of all users' inserts: one document per message and subscription.
func serverMetrics(status bson.Raw, grown *kit.Rates) []drivers.Metric {
	var all []drivers.Metric
	add := func(name string, factor float64, path ...string) {
		if v, ok := number(status, path...); ok {
			all = append(all, drivers.Metric{Name: name, Value: v * factor})
		}
	}
	host, _ := status.Lookup("host").StringValueOK()
	rate := func(name string, counter float64, found bool) {
		if !found {
			return
		}
		if rate, known := grown.PerSecond(name+" "+host, counter); known {
			all = append(all, drivers.Metric{Name: name, Value: rate})
		}
	}
	add(drivers.MetricConnections, 1, "connections", "current")
	add(drivers.MetricMemory, 1<<20, "mem", "resident")
	add(drivers.MetricRunQueue, 1, "globalLock", "currentQueue", "total")
	user, is := number(status, "extra_info", "user_time_us")
	system, are := number(status, "extra_info", "system_time_us")
	rate(drivers.MetricCPU, (user+system)/1e6, is && are)
	inserted, found := number(status, "opcounters", "insert")
	rate(drivers.MetricPublishRate, inserted, found)
	opened, found := number(status, "connections", "totalCreated")
	rate(drivers.MetricConnectionRate, opened, found)
	return all
}

// diskMetrics reads dbStats. It returns the free space of the disk with the data.
func diskMetrics(stats bson.Raw) []drivers.Metric {
	used, is := number(stats, "fsUsedSize")
	total, are := number(stats, "fsTotalSize")
	if !is || !are || total <= 0 || used > total {
		return nil
	}
	return []drivers.Metric{{Name: drivers.MetricDiskFree, Value: total - used}}
}

// number returns a number of any type. It returns false if there is none.
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

// collectionMetrics adds up the task's collections. If one cannot be read, it returns nothing, because a partial sum
// would be wrong.
func collectionMetrics(ctx context.Context, db *mongo.Database, names []string) ([]drivers.Metric, error) {
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
		n, err := db.Collection(name).CountDocuments(ctx,
			bson.D{{Key: fieldAt, Value: bson.D{{Key: "$gt", Value: now}}}})
		if err != nil {
			return nil, fmt.Errorf("count %s: %w", name, err)
		}
		hidden += float64(n)
	}
	all := []drivers.Metric{
		{Name: drivers.MetricQueues, Value: float64(len(names))},
		{Name: drivers.MetricQueueDepth, Value: depth},
		{Name: drivers.MetricUnacked, Value: hidden},
	}
	if sized {
		all = append(all, drivers.Metric{Name: drivers.MetricStored, Value: stored})
	}
	return all, nil
}
