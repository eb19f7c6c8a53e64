package mongodb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	client "go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/xoptions"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/requests"
)

// Publisher connects a publisher. Without confirms, the publisher has its own client. Then the answer to a request
// after the last insert, on the same connection, shows that the server has received all inserts.
func (c *conn) Publisher(ctx context.Context, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	client, err := c.clientOf(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("connect publisher: %w", err)
	}
	o, into := &c.session.options, c.session.inserted(client, spec)
	return requests.New(requests.Plan{
		Conn: c.Conn, Spec: spec, Lanes: o.inserters(spec.MaxInFlight), MaxPerRequest: o.InsertBatch,
		Patience: o.ConfirmTimeout.Std(),
		Lane: func(waiting *drivers.Waiting) requests.Publish {
			i := &inserter{address: c.address, into: into, ids: newIDs(), options: c.session.insertOptions(spec),
				ordered: o.Ordered, waiting: waiting}
			return i.send
		},
		Settle: func(ctx context.Context) error {
			defer c.giveBack(client)
			return client.Ping(ctx, nil)
		},
	}), nil
}

func (c *conn) clientOf(ctx context.Context, spec drivers.PublisherSpec) (*mongo.Client, error) {
	if err := c.session.exist(ctx, spec.Topology, spec.Queue); err != nil || spec.Mode.Confirmed() {
		return c.client, err
	}
	if err := c.session.checkSilence(ctx, spec); err != nil {
		return nil, err
	}
	return c.own(ctx)
}

// inserted returns the collections into which each message is inserted: one per subscription.
func (s *session) inserted(by *mongo.Client, spec drivers.PublisherSpec) []*mongo.Collection {
	var w *writeconcern.WriteConcern
	switch {
	case !spec.Mode.Confirmed():
		w = writeconcern.Unacknowledged()
	case s.options.WTimeout == 0:
		w = s.options.writeConcern(spec.Persistent)
	}
	var all []*mongo.Collection
	for subscription := range spec.Topology.Subscriptions {
		all = append(all, by.Database(s.options.Database).
			Collection(collectionName(spec.Topology, subscription, spec.Queue), client.Collection().SetWriteConcern(w)))
	}
	return all
}

// insertOptions returns the options of InsertMany. The library does not support wtimeout any more, so a write concern
// with it is added as an internal command field.
func (s *session) insertOptions(spec drivers.PublisherSpec) *client.InsertManyOptionsBuilder {
	o := client.InsertMany().SetOrdered(s.options.Ordered)
	if s.options.WTimeout == 0 || !spec.Mode.Confirmed() {
		return o
	}
	w := s.options.writeConcern(spec.Persistent)
	concern := bson.D{{Key: "w", Value: w.W}, {Key: "wtimeout", Value: s.options.WTimeout.Std().Milliseconds()}}
	if w.Journal != nil {
		concern = append(concern, bson.E{Key: "j", Value: *w.Journal})
	}
	// It fails only for an unknown name. A test with wtimeout checks that the library supports this name.
	_ = xoptions.SetInternalInsertManyOptions(o, "addCommandFields", bson.D{{Key: "writeConcern", Value: concern}})
	return o
}

// inserter sends the inserts of one lane of a publisher.
type inserter struct {
	address string // for messages
	into    []*mongo.Collection
	ids     *ids
	options *client.InsertManyOptionsBuilder
	ordered bool
	waiting *drivers.Waiting // also includes the time that the library itself needs

	buffer    []byte
	documents []any // of type bson.Raw; parts of buffer
}

// maxDocument is the maximum size of a document in MongoDB, in bytes.
const maxDocument = 16 << 20

// send inserts a batch into each collection, one after the other. It ends the batch before a message that is too large.
// The server would reject the whole insert, and the library take a much larger one for a broken connection.
func (i *inserter) send(ctx context.Context, batch []drivers.Message, verdicts []error) (int, error) {
	fits := func(m drivers.Message) bool { return overhead+len(m.Body) <= maxDocument }
	if !fits(batch[0]) {
		verdicts[0] = fmt.Errorf("%w: a body of %d bytes: use at most %d", drivers.ErrRejected, len(batch[0].Body),
			maxDocument-overhead)
		return 1, nil
	}
	for n, m := range batch {
		if !fits(m) {
			batch, verdicts = batch[:n], verdicts[:n]
			break
		}
	}
	i.encode(batch)
	for _, c := range i.into {
		i.waiting.Begin()
		_, err := c.InsertMany(ctx, i.documents, i.options)
		i.waiting.End()
		if err == nil {
			continue
		}
		if !refused(err) {
			return 0, fmt.Errorf("insert into %s at %s: %w", c.Name(), i.address, err)
		}
		i.judge(c, err, verdicts)
	}
	return len(batch), nil
}

func (i *inserter) encode(batch []drivers.Message) {
	size := 0
	for _, m := range batch {
		size += overhead + len(m.Body)
	}
	i.buffer, i.documents = slices.Grow(i.buffer[:0], size), i.documents[:0]
	now := time.Now()
	for _, m := range batch {
		begin := len(i.buffer)
		i.buffer = appendMessage(i.buffer, i.ids.next(now), m.Body)
		i.documents = append(i.documents, bson.Raw(i.buffer[begin:]))
	}
}

var errNotTried = errors.New("not tried after an earlier message of its insert was refused (ordered: true)")

// judge sets the verdict of each message from the server's answer.
func (i *inserter) judge(c *mongo.Collection, err error, verdicts []error) {
	reject := func(from, to int, why error) {
		rejected := fmt.Errorf("%w: insert into %s: %w", drivers.ErrRejected, c.Name(), why)
		for at := from; at < to; at++ {
			if verdicts[at] == nil {
				verdicts[at] = rejected
			}
		}
	}
	var several mongo.BulkWriteException
	if !errors.As(err, &several) {
		reject(0, len(verdicts), err) // the whole command was rejected
		return
	}
	last := -1
	for _, one := range several.WriteErrors {
		if one.Index >= 0 && one.Index < len(verdicts) {
			reject(one.Index, one.Index+1, one.WriteError)
			last = max(last, one.Index)
		}
	}
	if i.ordered && last >= 0 {
		reject(last+1, len(verdicts), errNotTried)
	}
	if several.WriteConcernError != nil {
		reject(0, len(verdicts), several.WriteConcernError)
	}
}
