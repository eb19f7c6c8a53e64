package external

import (
	"bufio"
	"encoding/json"
	"io"
	"strconv"
	"sync"
)

// parcel is a frame that waits to be written. Messages and notes are added to a waiting parcel, so that a busy driver
// receives few and large frames.
type parcel struct {
	header, body []byte
	batch, flush bool // the header contains messages and is not complete yet
	note         *handled
	gone         bool // taken by the writer: nothing may be added
}

// handled reports the result of deliveries to a driver.
type handled struct {
	consumer                   uint64
	count, bytes, ack, refused int
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

// settle adds h to the waiting note last, or to a new note. It returns the note. A note with a rejection is never
// extended, because the order of results matters.
func (o *outbox) settle(last *parcel, h handled) *parcel {
	o.mu.Lock()
	defer o.mu.Unlock()
	if last != nil && !last.gone && last.note.refused == 0 {
		n := last.note
		n.count, n.bytes, n.ack, n.refused = n.count+h.count, n.bytes+h.bytes, n.ack+h.ack, h.refused
		return last
	}
	last = &parcel{note: &h}
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
	case p.note != nil:
		return p.note.header()
	case p.flush:
		return append(p.header, `],"flush":true}`...)
	case p.batch:
		return append(p.header, ']', '}')
	}
	return p.header
}

func (h *handled) header() []byte {
	b := append(make([]byte, 0, 96), `{"type":"handled","consumer":`...)
	b = strconv.AppendUint(b, h.consumer, 10)
	for _, x := range []struct {
		name string
		n    int
	}{{"count", h.count}, {"bytes", h.bytes}, {"ack", h.ack}, {"refuse", h.refused}} {
		b = append(b, `,"`...)
		b = append(b, x.name...)
		b = append(b, `":`...)
		b = strconv.AppendInt(b, int64(x.n), 10)
	}
	return append(b, '}')
}
