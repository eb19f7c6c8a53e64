package kafka

import (
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/pkg/drivers"
)

// franzOutlet hands records to franz-go, which batches them itself. Its records are used again, so that a message costs
// no allocation here.
type franzOutlet struct {
	client  *franzClient
	tell    func(uint64, error)
	tells   bool
	lingers bool // batches wait for time or a flush
	room    *room

	mu   sync.Mutex // held while a record is handed over
	over bool
	free []*record // the publisher's own

	backMu sync.Mutex
	back   []*record // on their way to free

	emptied chan struct{} // nothing is outstanding

	cause, said error // of the last promise that was broken, and what was made of it
}

// record is a message on its way through the library.
type record struct {
	kgo.Record
	token   uint64
	promise func(*kgo.Record, error)
}

func (o *franzOutlet) send(ctx context.Context, partition int32, m drivers.Message) error {
	if err := o.room.enter(ctx, o.client.link, len(m.Body)); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		o.room.exit(1, len(m.Body))
		return fmt.Errorf("publish: %w", drivers.ErrClosed)
	}
	r := o.take()
	r.token = m.Token
	r.Record = kgo.Record{Value: append(r.Value[:0], m.Body...), Partition: partition}
	// Not ctx: it would go for the record as long as the library has it, and for those behind it.
	o.client.library.Produce(context.Background(), &r.Record, r.promise)
	return nil
}

func (o *franzOutlet) take() *record {
	if len(o.free) == 0 {
		o.backMu.Lock()
		o.free, o.back = o.back, o.free
		o.backMu.Unlock()
	}
	if n := len(o.free); n > 0 {
		r := o.free[n-1]
		o.free = o.free[:n-1]
		return r
	}
	r := &record{}
	r.promise = func(_ *kgo.Record, err error) { o.settle(r, err) }
	return r
}

// settle is the library's last word on a record. It is called from one goroutine at a time.
func (o *franzOutlet) settle(r *record, err error) {
	if err != nil {
		err = o.verdict(err)
	}
	if o.tells {
		o.tell(r.token, err)
	}
	bytes := len(r.Value)
	o.backMu.Lock()
	o.back = append(o.back, r)
	o.backMu.Unlock()
	o.room.exit(1, bytes)
	if o.room.messages.Load() == 0 {
		select {
		case o.emptied <- struct{}{}:
		default:
		}
	}
}

// verdict is made once for all records of a batch. With a batch that a broker refused, the library fails all that
// follows it in the partition: what of that was under way may have been kept all the same.
func (o *franzOutlet) verdict(err error) error {
	if o.cause != err {
		o.cause, o.said = err, verdict(o.client.link, err)
	}
	return o.said
}

// now is a context whose time is over: the library's Flush begins with it, and does not wait.
var now = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (o *franzOutlet) flush() {
	if o.lingers {
		_ = o.client.library.Flush(now)
	}
}

// shut has nothing more handed to the library.
func (o *franzOutlet) shut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over {
		o.over = true
		close(o.room.shut)
	}
}

func (o *franzOutlet) end() {
	o.shut()
	defer o.client.leaveOutlet(o)
	if o.client.link.over.Load() {
		o.client.abort()
	} else {
		o.flush()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for o.room.messages.Load() > 0 {
			<-o.emptied
		}
	}()
	o.room.empties(done, func() { o.client.link.broke(errNoAnswer) })
}
