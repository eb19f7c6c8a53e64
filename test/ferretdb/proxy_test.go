package main

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// patience is the time limit for events that must happen.
const patience = 5 * time.Minute

// start starts a new FerretDB and returns the URLs of both ports.
func start(t *testing.T) (plain, serial string) {
	t.Helper()
	var addresses []string
	for range 2 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, listener.Addr().String())
		defer listener.Close()
		_ = listener.Close()
	}
	dir, err := os.MkdirTemp("", "ferretdb") // FerretDB may still write there after the end of the test
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, addresses[0], addresses[1], dir) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	return "mongodb://" + addresses[0] + "/", "mongodb://" + addresses[1] + "/"
}

func connect(t *testing.T, url string) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := client.Ping(ctx, nil); err != nil {
		t.Fatal(err)
	}
	return client
}

// claim lets workers claim all documents, and returns the number of documents that were claimed more than once.
func claim(t *testing.T, url, collection string, workers, documents int) (duplicates int) {
	t.Helper()
	client := connect(t, url)
	c := client.Database("test").Collection(collection)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all []any
	for i := range documents {
		all = append(all, bson.M{"_id": i, "state": "new"})
	}
	if _, err := c.InsertMany(ctx, all); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	times := map[int]int{}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				var got struct {
					ID int `bson:"_id"`
				}
				err := c.FindOneAndUpdate(ctx, bson.M{"state": "new"},
					bson.M{"$set": bson.M{"state": "claimed"}}).Decode(&got)
				if errors.Is(err, mongo.ErrNoDocuments) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				times[got.ID]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(times) != documents {
		t.Errorf("%d of %d documents are claimed", len(times), documents)
	}
	for _, n := range times {
		duplicates += n - 1
	}
	return duplicates
}

func TestClaimsAreAtomic(t *testing.T) {
	plain, serial := start(t)
	if n := claim(t, serial, "serial", 4, 400); n > 0 {
		t.Errorf("400 documents are claimed %d times too often", n)
	}
	// Without the proxy, duplicates must occur, or this test could not fail.
	for begun := time.Now(); time.Since(begun) < patience; {
		n := claim(t, plain, "plain"+time.Now().Format("150405000000000"), 4, 400)
		t.Logf("without the proxy 400 documents are claimed %d times too often", n)
		if n > 0 {
			return
		}
	}
	t.Error("FerretDB's own claims look atomic: is the proxy still needed?")
}

// An unacknowledged write leaves no response for the next request of its connection.
func TestUnacknowledgedWrites(t *testing.T) {
	_, serial := start(t)
	c := connect(t, serial).Database("test").Collection("c")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	silent := c.Clone(options.Collection().SetWriteConcern(writeconcern.Unacknowledged()))
	for i := range 200 {
		if _, err := silent.InsertOne(ctx, bson.M{"_id": i}); err != nil {
			t.Fatal(err)
		}
		if i%20 == 0 {
			var got bson.M
			if err := c.FindOneAndUpdate(ctx, bson.M{"_id": 0},
				bson.M{"$inc": bson.M{"n": 1}}).Decode(&got); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n, err := c.CountDocuments(ctx, bson.M{}); n != 200 || err != nil {
		t.Errorf("%d of 200 documents arrived, %v", n, err)
	}
}

// No message of a client makes the proxy panic.
func FuzzCommand(f *testing.F) {
	f.Add([]byte{16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 221, 7, 0, 0})
	f.Add([]byte{32, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 221, 7, 0, 0, 2, 0, 0, 0, 0, 11, 0, 0, 0, 16, 'u', 0, 1, 0, 0, 0})
	f.Add([]byte{30, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 221, 7, 0, 0, 0, 0, 0, 0, 1, 200, 0, 0, 0, 'a', 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		m := message(data)
		if len(m) < header {
			return
		}
		_ = m.silence()
		_ = m.command()
	})
}
