package mongodb

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// inOrder is the order of the index: unclaimed messages first, by ID.
var inOrder = bson.D{{Key: fieldAt, Value: 1}, {Key: fieldID, Value: 1}}

// acknowledge deletes the messages accepted so far by ID only. They were handled, even if another consumer has claimed
// them since.
func (c *consumer) acknowledge() error { return c.remove(c.ctx) }

func (c *consumer) remove(ctx context.Context) error {
	if len(c.unacked) == 0 {
		return nil
	}
	c.watch.Begin()
	defer c.watch.End()
	var err error
	if len(c.unacked) == 1 {
		_, err = c.from.DeleteOne(ctx, bson.D{{Key: fieldID, Value: c.unacked[0]}})
	} else {
		_, err = c.from.DeleteMany(ctx, bson.D{{Key: fieldID, Value: bson.D{{Key: "$in", Value: c.unacked}}}})
	}
	if err != nil {
		return fmt.Errorf("acknowledge %d messages of %s at %s: %w", len(c.unacked), c.from.Name(), c.link.address, err)
	}
	c.unacked = c.unacked[:0]
	return nil
}

// giveBack makes a message visible again, if the claim is still valid. count is added to its number of claims: -1 if
// the message was not handled.
func (c *consumer) giveBack(l lease, count int32) error {
	if c.link.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), grace)
	defer cancel()
	update := bson.D{{Key: "$set", Value: bson.D{{Key: fieldAt, Value: unclaimed}}}}
	if count != 0 {
		update = append(update, bson.E{Key: "$inc", Value: bson.D{{Key: fieldCount, Value: count}}})
	}
	_, err := c.from.UpdateOne(ctx, bson.D{{Key: fieldID, Value: l.id}, {Key: fieldAt, Value: l.until}}, update)
	if err != nil {
		return fmt.Errorf("give back a message of %s at %s: %w", c.from.Name(), c.link.address, err)
	}
	return nil
}

// finish acknowledges the remaining messages when the consumer is closed.
func (c *consumer) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := c.remove(ctx); err != nil {
		c.log.Debug("close consumer", "error", err)
	}
}
