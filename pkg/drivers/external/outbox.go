package external

import (
	"bufio"
	"encoding/json"
	"io"
	"strconv"
	"sync"
)

// parcel is a frame on its way out. Messages and notes are added to one that waits, so that a busy driver gets few and
// large frames.
type parcel struct {
	header, body []byte
	batch, flush bool // header is of messages, and has no end yet
	note         *handled
	gone         bool // it is being written
}

// handled tells a driver what became of deliveries.
type handled struct {
	consumer                   uint64
	count, bytes, ack, refused int
}

// outbox is what is still to be written, in order. It is bounded by those who put things in: the windows of publishers
// and consumers, one request of each caller, and the forwards that a session gets. Safe for concurrent use.
type outbox struct {
	mu   sync.Mutex
	wait []*parcel
	kick chan struct{} // of capacity 1
}

func newOutbox() *outbox { return &outbox{kick: make(chan struct{}, 1)} }

func (o *outbox) signal() {
	select {
	case o.kick <- struct{}{}:
	default:
	}
}

// put adds a frame behind all that is there.
func (o *outbox) put(header asked) error {
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

// message adds a message to a batch that waits, or begins another, which it returns.
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

// flush has the driver send what it buffers, with the batch that waits if there is one.
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

// settle adds to a note that waits; a refusal ends a note, since what follows is of later deliveries.
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

// take gives all that waits.
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

// write passes on what is put in until stop is closed or w fails.
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

// finish gives the whole header.
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
