package mongodb

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

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
	c.watch.begin()
	defer c.watch.end()
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

// giveBack shows a message again, if the claim still holds. count is what to add to its claims: -1 if it was never handed over.
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

// watchdog bites when something takes longer than its patience. Between begin and end it costs two stores.
type watchdog struct {
	since    atomic.Int64
	patience time.Duration
	bite     func()
	timer    *time.Timer
	over     atomic.Bool
}

var epoch = time.Now()

func newWatchdog(patience time.Duration, bite func()) *watchdog {
	w := &watchdog{patience: patience, bite: bite}
	w.timer = time.AfterFunc(time.Hour, w.look)
	w.timer.Reset(patience / 4)
	return w
}

func (w *watchdog) begin() { w.since.Store(int64(time.Since(epoch))) }
func (w *watchdog) end()   { w.since.Store(0) }

func (w *watchdog) look() {
	if since := w.since.Load(); since > 0 && int64(time.Since(epoch))-since > int64(w.patience) {
		w.bite()
		return
	}
	if !w.over.Load() {
		w.timer.Reset(w.patience / 4)
	}
}

func (w *watchdog) close() {
	w.over.Store(true)
	w.timer.Stop()
}
