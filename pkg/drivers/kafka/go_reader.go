package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	kafka "github.com/segmentio/kafka-go"
)

// reader reads one partition. Bodies are copied into one block, which is used again when they were handed over.
type reader struct {
	g         *goGeneration
	index     int // of its connection
	partition int32
	conn      *kafka.Conn
	next      int64 // position
	block     []byte
	used      int
	largest   int // body seen
	gathered  []message
	most      int // of gathered
	astray    int // how often in a row the library has lost its place
}

const (
	firstBlock, maxBlock = 64 << 10, 8 << 20
	// maxAstray bounds astray, beyond which the link is taken to be at fault.
	maxAstray = 3
)

// read hands messages over until the generation or the consumer ends. When it fails the link breaks.
//
// kafka-go takes a fetch for empty if the end of the log, as the broker knew it a moment before it read the log, was
// where the fetch began. What the fetch brought all the same stands in the way of the next answer, which the library
// finds out, and gives the connection up. Nothing is lost by that: another connection is asked for the same.
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

// mend deals with what is no fault of the link.
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

// skip goes on where the log begins, if what is next has been dropped from it. Of an answer that is an error the
// library leaves the rest in the connection.
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
	fresh, err := g.dial(context.Background(), int(r.partition)) // ends with the link
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

// fetch asks for what is next and hands it over. More is false when there is nobody to hand it to any more.
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
		_ = r.conn.Close() // so that the rest need not be read
	}
	if closed := batch.Close(); err == nil {
		err = closed
	}
	// All is read; there was nothing; the block was too small for a body.
	if errors.Is(err, io.EOF) || errors.Is(err, kafka.RequestTimedOut) || errors.Is(err, io.ErrShortBuffer) {
		err = nil
	}
	return more, err
}

// extend gives the broker time from now on.
func (r *reader) extend(wait time.Duration) {
	_ = r.conn.SetReadDeadline(time.Now().Add(wait + patience))
}

// drain reads a batch to its end and hands over what is in it.
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
			continue // a compressed batch comes whole, also if only its end was asked for
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
		r.block = make([]byte, 2*len(r.block)) // for one body, without bounds
	}
	return r.hand(), err
}

// enlarge has what is gathered go on in a block twice as large, so that soon one is large enough for all that is handed
// over at a time; not beyond bounds.
func (r *reader) enlarge() bool {
	if len(r.block) >= maxBlock {
		return false
	}
	r.block, r.used = make([]byte, 2*len(r.block)), 0
	return true
}

// hand gives what was gathered to the consumer, and has the block free again.
func (r *reader) hand() bool {
	if len(r.gathered) > 0 && !r.g.source.c.deliver(r.partition, r.gathered, func() bool { return !r.g.over.Load() }) {
		return false
	}
	r.gathered, r.used = r.gathered[:0], 0
	return true
}
