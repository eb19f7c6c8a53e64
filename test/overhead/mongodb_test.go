package overhead

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"example.org/lockstep/lockstep/pkg/drivers"
	_ "example.org/lockstep/lockstep/pkg/drivers/mongodb"
)

// mongoURL names FerretDB behind the lab's proxy, as the stand-in for MongoDB. Its claims are so slow that only the CPU
// time of the engine is comparable, not the rate.
const mongoURL = "LOCKSTEP_MONGODB_URL"

// BenchmarkMongoDB uses the queue pattern with w: 1, as FerretDB supports it.
func BenchmarkMongoDB(b *testing.B) {
	url := labAddress(b, mongoURL, "mongodb")
	o, err := json.Marshal(map[string]any{"url": url, "w": 1, "journal": false, "pollInterval": "1ms"})
	must(b, err)
	compare(b, subject{name: "mongodb", options: o, pairs: 8, minMessages: 300,
		bare: func(b *testing.B, w work) sample { return bareMongoDB(b, url, w) }})
}

// bareMongoDB has one client per side, like the engine, and creates what the driver creates.
func bareMongoDB(b *testing.B, url string, w work) sample {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tasks++
	open := func(concern *writeconcern.WriteConcern) *mongo.Collection {
		c,
			err := mongo.Connect(options.Client().ApplyURI(url).SetRetryWrites(false).SetRetryReads(false).SetWriteConcern(concern))
		must(b, err)
		must(b, c.Ping(ctx, nil))
		return c.Database("lockstep").Collection("lockstep-overhead-bare-" + strconv.Itoa(tasks))
	}
	from, to := open(writeconcern.W1()), open(writeconcern.W1())
	if !w.mode.Confirmed() {
		to = open(writeconcern.Unacknowledged())
	}
	defer func() {
		must(b, from.Drop(context.Background()))
		must(b, errors.Join(from.Database().Client().Disconnect(ctx), to.Database().Client().Disconnect(ctx)))
	}()
	_, err := from.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "at", Value: 1},
		{Key: "_id", Value: 1}}})
	must(b, err)

	return timed(b, w, func() error { return claimMongoDB(ctx, from, w.n) },
		func() error { return insertMongoDB(ctx, to, w) })
}

// claimMongoDB claims and deletes single documents.
func claimMongoDB(ctx context.Context, from *mongo.Collection, n int) error {
	for i := 0; i < n; {
		var m struct {
			ID   bson.ObjectID `bson:"_id"`
			Body []byte        `bson:"body"`
		}
		now := time.Now()
		err := from.FindOneAndUpdate(ctx, bson.D{{Key: "at", Value: bson.D{{Key: "$lte", Value: now}}}}, bson.D{
			{Key: "$set", Value: bson.D{{Key: "at", Value: now.Add(30 * time.Second)}}},
			{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}},
		}).Decode(&m)
		if errors.Is(err, mongo.ErrNoDocuments) {
			time.Sleep(time.Millisecond)
			continue
		}
		if err == nil {
			_, err = from.DeleteOne(ctx, bson.D{{Key: "_id", Value: m.ID}})
		}
		if err != nil {
			return fmt.Errorf("the bare loop received %d of %d messages: %w", i, n, err)
		}
		i++
	}
	return nil
}

// insertMongoDB inserts a hundred documents at a time if the mode permits it.
func insertMongoDB(ctx context.Context, to *mongo.Collection, w work) error {
	batch := 1
	if w.mode == drivers.ConfirmWindow {
		batch = 100
	}
	body := make([]byte, w.size)
	for i := 0; i < w.n; i += batch {
		var some []any
		for range min(batch, w.n-i) {
			some = append(some, bson.D{{Key: "_id", Value: bson.NewObjectID()}, {Key: "at", Value: bson.DateTime(0)},
				{Key: "n", Value: int32(0)}, {Key: "body", Value: body}})
		}
		if _, err := to.InsertMany(ctx, some); err != nil {
			return err
		}
	}
	return nil
}
