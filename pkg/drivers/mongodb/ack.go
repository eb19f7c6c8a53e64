package mongodb

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// inOrder is the order of the index: what nobody has claimed comes first, by its id.
var inOrder = bson.D{{Key: fieldAt, Value: 1}, {Key: fieldID, Value: 1}}

// acknowledge deletes what was accepted until now, by id alone: it was handled, whoever may have claimed it since.
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

// giveBack shows a message again, if the claim still holds. count is what to add to its claims: -1 if it was never
// handed over.
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

// finish acknowledges what is left when the consumer closes.
func (c *consumer) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := c.remove(ctx); err != nil {
		c.log.Debug("close consumer", "error", err)
	}
}
