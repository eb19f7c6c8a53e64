package mongodb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	client "go.mongodb.org/mongo-driver/v2/mongo/options"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/requests"
)

// consumer sends the requests of a requests.Consumer: claims, deletes, and updates that give messages back.
type consumer struct {
	address    string // for messages
	from       *mongo.Collection
	queue      uint32
	visibility time.Duration
	poll       time.Duration
	sorted     bool
	automatic  bool
	existing   bool // the collection may contain other documents
}

// refusedPause delays the break of a consumer whose claims are rejected. Otherwise it would be reconnected and rejected
// in a tight loop.
const refusedPause = 200 * time.Millisecond

// maxConcurrent is the default maximum number of concurrent claims and of concurrent deletes of a consumer. It is the
// default size of the connection pool in the libraries of MongoDB.
const maxConcurrent = 100

// maxSettled is the maximum number of messages of one delete or update, if it may have several.
const maxSettled = 10_000

// Consumer connects a consumer. Setup created its collection, so no message is missed.
func (c *conn) Consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer, error) {
	if err := c.session.exist(ctx, spec.Topology, spec.Queue); err != nil {
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	o := &c.session.options
	n := &consumer{address: c.address, queue: uint32(spec.Queue), visibility: o.Visibility.Std(),
		poll: o.PollInterval.Std(), sorted: o.Order == orderInsertion, automatic: spec.Ack == drivers.AckAutomatic,
		existing: spec.Topology.Existing != "",
		from: c.client.Database(o.Database).Collection(collectionName(spec.Topology, spec.Subscription, spec.Queue),
			client.Collection().SetWriteConcern(o.claimConcern(spec.Topology.Persistent)))}
	plan := requests.ConsumerPlan[lease]{
		Conn: c.Conn, Spec: spec, Handle: handle,
		Receiver: n.receiver, Receivers: o.claimers(spec.Prefetch), MaxReceived: 1,
		ReceivePatience: o.ConfirmTimeout.Std(), Patience: o.ConfirmTimeout.Std(),
	}
	if !n.automatic {
		plan.Settle, plan.MaxSettled = n.settle, 1
		if spec.Ack != drivers.AckEach {
			plan.MaxSettled = maxSettled
		}
		plan.Settlers = min(maxConcurrent, requests.Concurrent(spec.Prefetch, plan.MaxSettled))
	}
	return requests.NewConsumer(plan), nil
}

// lease is a claimed message and the time that the claim set. The claim is valid while the document has this time.
type lease struct {
	id    bson.ObjectID
	until bson.DateTime
}

// receiver returns a function that claims one message. It begins at a random place among the unclaimed messages, so
// that concurrent claims rarely want the same one. After the last message it begins with the first. Messages with an
// expired claim come after all others. While the queue is empty, each attempt is one request.
func (c *consumer) receiver() requests.Receive[lease] {
	empty := c.sorted
	return func(ctx context.Context, _ int) ([]requests.Received[lease], time.Duration, error) {
		now := time.Now()
		var found *requests.Received[lease]
		var err error
		if !empty {
			found, err = c.claim(ctx, now, bson.D{{Key: fieldAt, Value: unclaimed},
				{Key: fieldRandom, Value: bson.D{{Key: "$gte", Value: rand.Int32()}}}})
		}
		if found == nil && err == nil {
			found, err = c.claim(ctx, now,
				bson.D{{Key: fieldAt, Value: bson.D{{Key: "$lte", Value: bson.NewDateTimeFromTime(now)}}}})
		}
		empty = c.sorted || found == nil
		switch {
		case err != nil && refused(err):
			return nil, refusedPause, fmt.Errorf("claim from %s at %s: %w", c.from.Name(), c.address, err)
		case err != nil:
			return nil, 0, fmt.Errorf("claim from %s at %s: %w", c.from.Name(), c.address, err)
		case found == nil:
			return nil, c.poll, nil
		}
		return []requests.Received[lease]{*found}, 0, nil
	}
}

// claim claims one message that matches filter. It returns nil if there is none.
func (c *consumer) claim(ctx context.Context, now time.Time, filter bson.D) (*requests.Received[lease], error) {
	if c.existing {
		filter = append(filter, bson.E{Key: fieldBody, Value: bson.D{{Key: "$type", Value: "binData"}}},
			bson.E{Key: fieldCount, Value: bson.D{{Key: "$type", Value: "int"}}})
	}
	var order any // none
	if c.sorted {
		order = byInsertion
	}
	until := bson.NewDateTimeFromTime(now.Add(c.visibility))
	var answer *mongo.SingleResult
	if c.automatic {
		answer = c.from.FindOneAndDelete(ctx, filter, client.FindOneAndDelete().SetSort(order))
	} else {
		answer = c.from.FindOneAndUpdate(ctx, filter, bson.D{
			{Key: "$set", Value: bson.D{{Key: fieldAt, Value: until}}},
			{Key: "$inc", Value: bson.D{{Key: fieldCount, Value: 1}}},
		}, client.FindOneAndUpdate().SetSort(order))
	}
	raw, err := answer.Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := readMessage(raw)
	if err != nil {
		return nil, err
	}
	d := drivers.Delivery{Body: m.body, Redelivered: drivers.No, Stream: c.queue}
	if m.count > 0 {
		d.Redelivered = drivers.Yes
	}
	return &requests.Received[lease]{Delivery: d, Key: lease{id: m.id, until: until}}, nil
}

// settle deletes accepted messages, and gives others back.
func (c *consumer) settle(ctx context.Context, leases []lease, how requests.Settling) error {
	if how == requests.Accepted {
		if err := c.remove(ctx, leases); err != nil {
			return fmt.Errorf("acknowledge %d messages of %s at %s: %w", len(leases), c.from.Name(), c.address, err)
		}
		return nil
	}
	if err := c.giveBack(ctx, leases); err != nil {
		return fmt.Errorf("give back %d messages of %s at %s: %w", len(leases), c.from.Name(), c.address, err)
	}
	return nil
}

// remove deletes messages by ID only. They were handled, even if another consumer has claimed them since.
func (c *consumer) remove(ctx context.Context, leases []lease) error {
	if len(leases) == 1 {
		_, err := c.from.DeleteOne(ctx, bson.D{{Key: fieldID, Value: leases[0].id}})
		return err
	}
	all := make([]bson.ObjectID, len(leases))
	for i := range leases {
		all[i] = leases[i].id
	}
	_, err := c.from.DeleteMany(ctx, bson.D{{Key: fieldID, Value: bson.D{{Key: "$in", Value: all}}}})
	return err
}

// giveBack makes messages visible again whose claims are still valid. Their next delivery is marked as a redelivery,
// also if they were not handled: it may come after that of later messages.
func (c *consumer) giveBack(ctx context.Context, leases []lease) error {
	update := bson.D{{Key: "$set", Value: bson.D{{Key: fieldAt, Value: unclaimed}}}}
	all := make([]mongo.WriteModel, len(leases))
	for i, l := range leases {
		all[i] = mongo.NewUpdateOneModel().SetUpdate(update).
			SetFilter(bson.D{{Key: fieldID, Value: l.id}, {Key: fieldAt, Value: l.until}})
	}
	_, err := c.from.BulkWrite(ctx, all, client.BulkWrite().SetOrdered(false))
	return err
}
