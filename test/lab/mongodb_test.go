package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// The stand-in for MongoDB lets only one client claim a document, as MongoDB does.
func TestMongoDBClaimsOnce(t *testing.T) {
	chosen, err := choose([]string{"mongodb"})
	if err != nil {
		t.Fatal(err)
	}
	l := testLab(t)
	if err := l.start(t.Context(), chosen); err != nil {
		t.Fatal(err)
	}
	var url string
	for _, variable := range l.env {
		if value, found := strings.CutPrefix(variable, "LOCKSTEP_MONGODB_URL="); found {
			url = value
		}
	}
	client, err := mongo.Connect(options.Client().ApplyURI(url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	ctx := t.Context()

	const documents = 100
	jobs := client.Database("test").Collection("jobs")
	var all []any
	for i := range documents {
		all = append(all, bson.M{"_id": i, "state": "new"})
	}
	if _, err := jobs.InsertMany(ctx, all); err != nil {
		t.Fatal(err)
	}
	var claims atomic.Int64
	var claimed sync.Map
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				var job struct {
					ID int `bson:"_id"`
				}
				ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
				err := jobs.FindOneAndUpdate(ctx, bson.M{"state": "new"},
					bson.M{"$set": bson.M{"state": "claimed"}}).Decode(&job)
				cancel()
				if errors.Is(err, mongo.ErrNoDocuments) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				claims.Add(1)
				if _, twice := claimed.LoadOrStore(job.ID, true); twice {
					t.Errorf("document %d is claimed twice", job.ID)
				}
			}
		})
	}
	wg.Wait()
	if claims.Load() != documents {
		t.Errorf("%d claims of %d documents", claims.Load(), documents)
	}
}
