package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	kafka "github.com/segmentio/kafka-go"
)

// reader reads one partition. Bodies are copied into one block, which is reused after they were delivered.
type reader struct {
	g         *goGeneration
	index     int // index of its connection in conns
	partition int32
	conn      *kafka.Conn
	next      int64 // position
	block     []byte
	used      int
	largest   int // size of the largest body so far
	gathered  []message
	most      int // maximum length of gathered
	astray    int // consecutive times that the library lost its position in the response
}

const (
	firstBlock, maxBlock = 64 << 10, 8 << 20
	// maxAstray is the maximum of astray. Beyond it, the link breaks.
	maxAstray = 3
)

// read delivers messages until the generation or the consumer ends. It breaks the link after an error.
//
// kafka-go has a bug: it takes a fetch for empty if it started at the end of the log as the broker reported it. The
// broker determines that end shortly before it reads the log, so the response may contain messages. They remain in the
// connection, so the next response cannot be parsed, and the library gives the connection up. No message is lost,
// because another connection fetches from the same position.
func (g *goGeneration) read(index int, from kafka.PartitionAssignment) {
	c := g.source.c
	r := &reader{g: g, index: index, partition: int32(from.ID), conn: g.conns[index], next: max(from.Offset, 0),
		block: make([]byte, firstBlock), most: c.spec.Batch}
	for {
		more, err := r.fetch()
		if err != nil && more && !g.over.Load() {
			err = r.mend(err)
		} else {
			r.astray = 0
		}
		switch {
		case !more || g.over.Load():
			return
		case err != nil:
			c.link.broke(fmt.Errorf("fetch from partition %d of %s: %w", r.partition, c.topic, err))
			return
		}
	}
}

// mend handles errors for which the link need not break: a lost position, and a position that is no longer in the log.
func (r *reader) mend(err error) error {
	switch {
	case errors.Is(err, io.ErrNoProgress) && r.astray < maxAstray:
		r.astray++
		return r.redial()
	case errors.Is(err, kafka.OffsetOutOfRange):
		return r.skip()
	}
	return err
}

// skip continues at the beginning of the log if the messages at next were deleted. It needs a new connection, because
// after an error response the library leaves the rest of the response unread.
func (r *reader) skip() error {
	if err := r.redial(); err != nil {
		return err
	}
	r.extend(0)
	first, err := r.conn.ReadFirstOffset()
	if err == nil && first <= r.next {
		err = kafka.OffsetOutOfRange
	}
	r.next = max(r.next, first)
	return err
}

// redial replaces the connection.
func (r *reader) redial() error {
	g := r.g
	fresh, err := g.dial(context.Background(), int(r.partition)) // the link ends it
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = r.conn.Close()
	r.conn, g.conns[r.index] = fresh, fresh
	if g.over.Load() {
		_ = fresh.Close()
	}
	return nil
}

// fetch requests the next messages and delivers them. more is false if the consumer takes no more messages.
func (r *reader) fetch() (more bool, err error) {
	o := &r.g.source.c.session.options
	if _, err := r.conn.Seek(r.next, kafka.SeekAbsolute|kafka.SeekDontCheck); err != nil {
		return true, err
	}
	r.extend(o.FetchWait.std())
	batch := r.conn.ReadBatchWith(kafka.ReadBatchConfig{MinBytes: 1, MaxBytes: o.FetchBytes,
		MaxWait: o.FetchWait.std()})
	more, err = r.drain(batch)
	if !more {
		_ = r.conn.Close() // the rest need not be read
	}
	if closed := batch.Close(); err == nil {
		err = closed
	}
	// All was read, or there was nothing, or the block was too small for a body.
	if errors.Is(err, io.EOF) || errors.Is(err, kafka.RequestTimedOut) || errors.Is(err, io.ErrShortBuffer) {
		err = nil
	}
	return more, err
}

// extend sets the read deadline to wait + patience from now.
func (r *reader) extend(wait time.Duration) {
	_ = r.conn.SetReadDeadline(time.Now().Add(wait + patience))
}

// drain reads a batch to its end and delivers its messages.
func (r *reader) drain(batch *kafka.Batch) (more bool, err error) {
	r.used = 0
	for {
		if len(r.gathered) == r.most || (len(r.block)-r.used < r.largest && !r.enlarge()) {
			if !r.hand() {
				return false, nil
			}
			r.extend(0)
		}
		var n int
		n, err = batch.Read(r.block[r.used:])
		if err != nil {
			break
		}
		after := batch.Offset()
		if after <= r.next {
			continue // a compressed batch is returned as a whole, even if next is inside it
		}
		r.next = after
		r.gathered = append(r.gathered, message{body: r.block[r.used : r.used+n : r.used+n], next: after})
		r.used += n
		r.largest = max(r.largest, n)
	}
	switch {
	case errors.Is(err, io.EOF):
		r.next = max(r.next, batch.Offset())
	case errors.Is(err, io.ErrShortBuffer) && r.used == 0:
		r.block = make([]byte, 2*len(r.block)) // for one body, without a limit
	}
	return r.hand(), err
}

// enlarge replaces the block by an empty one of twice the size. So a block soon has space for all messages of a
// delivery. The gathered messages keep the old block. It returns false if the maximum is reached.
func (r *reader) enlarge() bool {
	if len(r.block) >= maxBlock {
		return false
	}
	r.block, r.used = make([]byte, 2*len(r.block)), 0
	return true
}

// hand delivers the gathered messages, after which the block can be reused. It returns false if the consumer takes no
// more.
func (r *reader) hand() bool {
	if len(r.gathered) > 0 && !r.g.source.c.deliver(r.partition, r.gathered, func() bool { return !r.g.over.Load() }) {
		return false
	}
	r.gathered, r.used = r.gathered[:0], 0
	return true
}
