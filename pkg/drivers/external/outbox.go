package external

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"sync"
)

// parcel is a frame that waits to be written. Messages and numbers are added to a waiting parcel, so that a busy driver
// receives few and large frames.
type parcel struct {
	header, body []byte
	batch, flush bool // the header contains messages and is not complete yet
	deliveries   *deliveryCount
	gone         bool // taken by the writer: nothing may be added
}

// deliveryCount is a frame about a number of deliveries of a consumer: handled, ack or nack.
type deliveryCount struct {
	kind         string
	consumer     uint64
	count, bytes int // without bytes in ack and nack
}

// outbox is the queue of frames to write, in order. Its users bound its size: by the windows of publishers and
// consumers, one request per caller, and the maximum number of forwards per session. It is safe for concurrent use.
type outbox struct {
	mu   sync.Mutex
	wait []*parcel
	kick chan struct{} // capacity 1
}

func newOutbox() *outbox { return &outbox{kick: make(chan struct{}, 1)} }

func (o *outbox) signal() {
	select {
	case o.kick <- struct{}{}:
	default:
	}
}

// put appends a frame.
func (o *outbox) put(header outbound) error {
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	o.mu.Lock()
	o.wait = append(o.wait, &parcel{header: text})
	o.mu.Unlock()
	o.signal()
	return nil
}

// message adds a message to batch if that is still waiting, or to a new batch. It returns the batch that it used.
func (o *outbox) message(batch *parcel, publisher, number uint64, key uint32, body []byte) *parcel {
	o.mu.Lock()
	defer o.mu.Unlock()
	batch = o.open(batch, publisher, number)
	if batch.header[len(batch.header)-1] != '[' {
		batch.header = append(batch.header, ',')
	}
	batch.header = append(batch.header, '[')
	batch.header = strconv.AppendUint(batch.header, uint64(key), 10)
	batch.header = append(batch.header, ',')
	batch.header = strconv.AppendInt(batch.header, int64(len(body)), 10)
	batch.header = append(batch.header, ']')
	batch.body = append(batch.body, body...)
	return batch
}

// flush makes the driver send what it buffers. It uses the waiting batch, if any.
func (o *outbox) flush(batch *parcel, publisher, number uint64) {
	o.mu.Lock()
	o.open(batch, publisher, number).flush = true
	o.mu.Unlock()
}

func (o *outbox) open(batch *parcel, publisher, number uint64) *parcel {
	if batch != nil && !batch.gone && !batch.flush {
		return batch
	}
	batch = &parcel{batch: true}
	batch.header = append(batch.header, `{"type":"publish","publisher":`...)
	batch.header = strconv.AppendUint(batch.header, publisher, 10)
	batch.header = append(batch.header, `,"first":`...)
	batch.header = strconv.AppendUint(batch.header, number, 10)
	batch.header = append(batch.header, `,"messages":[`...)
	o.wait = append(o.wait, batch)
	o.signal()
	return batch
}

// count adds t to the waiting parcel last if that has the same kind, or to a new parcel. It returns the parcel.
func (o *outbox) count(last *parcel, t deliveryCount) *parcel {
	o.mu.Lock()
	defer o.mu.Unlock()
	if last != nil && !last.gone && last.deliveries.kind == t.kind {
		last.deliveries.count, last.deliveries.bytes = last.deliveries.count+t.count, last.deliveries.bytes+t.bytes
		return last
	}
	last = &parcel{deliveries: &t}
	o.wait = append(o.wait, last)
	o.signal()
	return last
}

// take removes and returns all waiting parcels.
func (o *outbox) take() []*parcel {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.wait
	o.wait = nil
	for _, p := range all {
		p.gone = true
	}
	return all
}

// write writes parcels to w until stop is closed or w fails.
func (o *outbox) write(w io.Writer, stop <-chan struct{}) error {
	buffer := bufio.NewWriterSize(w, 64<<10)
	for {
		select {
		case <-stop:
			return nil
		case <-o.kick:
		}
		for _, p := range o.take() {
			if err := writeFrame(buffer, p.finish(), p.body); err != nil {
				return err
			}
		}
		if err := buffer.Flush(); err != nil {
			return err
		}
	}
}

// finish returns the complete header.
func (p *parcel) finish() []byte {
	switch {
	case p.deliveries != nil:
		return p.deliveries.header()
	case p.flush:
		return append(p.header, `],"flush":true}`...)
	case p.batch:
		return append(p.header, ']', '}')
	}
	return p.header
}

func (t *deliveryCount) header() []byte {
	b := fmt.Appendf(make([]byte, 0, 96), `{"type":%q,"consumer":%d,"count":%d`, t.kind, t.consumer, t.count)
	if t.kind == typeHandled {
		b = fmt.Appendf(b, `,"bytes":%d`, t.bytes)
	}
	return append(b, '}')
}
