package kafka

import (
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// franzProducer passes records to franz-go, which builds batches itself. Records are reused, so that a message needs no
// allocation here.
type franzProducer struct {
	client     *franzClient
	topic      string
	onConfirms func([]uint64, error)
	confirms   bool
	keyed      bool
	lingers    bool // batches wait for linger or a flush
	quota      *sendQuota

	mu   sync.Mutex // locked while a record is passed to the library
	over bool
	free []*record // used only by the publisher's goroutine

	backMu sync.Mutex
	back   []*record // settled records, to be moved to free

	emptied chan struct{} // signals that no record is outstanding

	cause, reported error // last error of a record, and the error reported for it
}

// record is a message inside the library.
type record struct {
	inner    kgo.Record
	token    [1]uint64
	onResult func(*kgo.Record, error)
}

func (o *franzProducer) send(ctx context.Context, m drivers.Message) error {
	if err := o.quota.enter(ctx, len(m.Body)); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		o.exit(len(m.Body))
		return fmt.Errorf("publish: %w", drivers.ErrClosed)
	}
	r := o.take()
	r.token[0] = m.Token
	r.inner = kgo.Record{Topic: o.topic, Value: append(r.inner.Value[:0], m.Body...)}
	if o.keyed {
		r.inner.Partition = int32(m.Key % uint32(o.client.conn.session.options.Partitions))
	}
	// Not ctx: it would apply to the record while the library has it, and to the records after it.
	o.client.library.Produce(context.Background(), &r.inner, r.onResult)
	return nil
}

func (o *franzProducer) take() *record {
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
	r.onResult = func(_ *kgo.Record, err error) { o.settle(r, err) }
	return r
}

// settle is the library's callback for the result of a record. It is called from one goroutine at a time. The library
// does not report the end of a response, so each record has its own call of OnConfirms.
func (o *franzProducer) settle(r *record, err error) {
	if err != nil {
		err = o.verdict(err)
	}
	if o.confirms {
		o.onConfirms(r.token[:], err)
	}
	bytes := len(r.inner.Value)
	o.backMu.Lock()
	o.back = append(o.back, r)
	o.backMu.Unlock()
	o.exit(bytes)
}

// exit subtracts one message, and wakes end if it was the last.
func (o *franzProducer) exit(bytes int) {
	o.quota.exit(1, bytes)
	if o.quota.messages.Load() == 0 {
		select {
		case o.emptied <- struct{}{}:
		default:
		}
	}
}

// verdict computes the verdict once for all records of a batch. If a broker rejects a batch, the library also fails the
// following batches of the partition. The broker may have stored those that were already sent.
func (o *franzProducer) verdict(err error) error {
	if o.cause != err {
		o.cause, o.reported = err, verdict(o.client.conn, err)
	}
	return o.reported
}

// now is a context that has ended. With it, the library's Flush starts flushing and does not wait.
var now = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (o *franzProducer) flush() {
	if o.lingers {
		_ = o.client.library.Flush(now)
	}
}

// shut prevents further records from being passed to the library.
func (o *franzProducer) shut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
}

func (o *franzProducer) end() {
	o.shut()
	defer o.client.leave(o)
	if o.client.conn.over.Load() {
		o.client.abort()
	} else {
		o.flush()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for o.quota.messages.Load() > 0 {
			<-o.emptied
		}
	}()
	o.quota.empties(done)
}
