package mongodb

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// document encodes a response of a server.
func document(t *testing.T, d bson.D) bson.Raw {
	t.Helper()
	raw, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// named returns metrics by name.
func named(metrics []drivers.Metric) map[string]float64 {
	all := map[string]float64{}
	for _, f := range metrics {
		all[f.Name] = f.Value
	}
	return all
}

// serverStatus and dbStats of a mongod on Linux are parsed as in MongoDB's documentation. The tests have no mongod.
func TestProbeOfAServerAsDocumented(t *testing.T) {
	status := func(host string, micros, inserted, opened int64) bson.Raw {
		return document(t, bson.D{
			{Key: "host", Value: host},
			{Key: "connections", Value: bson.D{{Key: "current", Value: int32(7)},
				{Key: "totalCreated", Value: opened}}},
			{Key: "mem", Value: bson.D{{Key: "resident", Value: int64(100)}}},
			{Key: "globalLock", Value: bson.D{{Key: "currentQueue", Value: bson.D{{Key: "total", Value: int32(3)}}}}},
			{Key: "opcounters", Value: bson.D{{Key: "insert", Value: inserted}}},
			{Key: "extra_info", Value: bson.D{{Key: "user_time_us", Value: micros},
				{Key: "system_time_us", Value: micros}}},
		})
	}
	synctest.Test(t, func(t *testing.T) {
		var grown kit.Rates
		want := map[string]float64{drivers.MetricConnections: 7, drivers.MetricMemory: 100 << 20,
			drivers.MetricRunQueue: 3}
		if first := named(serverMetrics(status("a", 1e6, 1000, 20), &grown)); !maps.Equal(first, want) {
			t.Errorf("the first probe gives %v, want %v", first, want)
		}
		time.Sleep(4 * time.Second)
		second := maps.Clone(want)
		second[drivers.MetricCPU], second[drivers.MetricPublishRate], second[drivers.MetricConnectionRate] = 0.5, 250, 1
		if next := named(serverMetrics(status("a", 2e6, 2000, 24), &grown)); !maps.Equal(next, second) {
			t.Errorf("the second probe gives %v, want %v", next, second)
		}
		if other := named(serverMetrics(status("b", 9e6, 9000, 90), &grown)); !maps.Equal(other, want) {
			t.Errorf("the first probe of another primary gives %v, want %v", other, want)
		}
	})
	disk := named(diskMetrics(document(t, bson.D{{Key: "fsUsedSize", Value: 30.0},
		{Key: "fsTotalSize", Value: 100.0}})))
	if !maps.Equal(disk, map[string]float64{drivers.MetricDiskFree: 70}) {
		t.Errorf("the disk gives %v", disk)
	}
}

// Metrics that a server does not report, or that a user may not read, are missing.
func TestProbeWithoutAnswersIsMissing(t *testing.T) {
	var grown kit.Rates
	for range 2 {
		for name, raw := range map[string]bson.Raw{"refused": nil, "empty": document(t, bson.D{})} {
			if metrics := append(serverMetrics(raw, &grown), diskMetrics(raw)...); len(metrics) > 0 {
				t.Errorf("%s: %v", name, metrics)
			}
		}
	}
}

// FerretDB reports less than MongoDB. The other metrics are missing.
func TestProbeOfTheStandInFerretDB(t *testing.T) {
	r := newRig(t, standIn(t, `{}`), nil)
	for range 2 {
		metrics, err := r.session.Probe(r.context())
		if err != nil {
			t.Fatal(err)
		}
		all := named(metrics)
		t.Log(all)
		if _, said := all[drivers.MetricQueueDepth]; !said {
			t.Errorf("no depth of the task's queues in %v", all)
		}
		for _, name := range []string{drivers.MetricMemory, drivers.MetricCPU, drivers.MetricDiskFree} {
			if v, said := all[name]; said && v <= 0 {
				t.Errorf("%s is %v of a server at work", name, v)
			}
		}
	}
}
