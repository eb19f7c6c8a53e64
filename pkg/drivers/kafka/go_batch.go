package kafka

import (
	"bytes"
	"io"
	"time"

	"github.com/segmentio/kafka-go/protocol"
)

// batch is the part of a request for one partition. The bodies are copied into one block. It is also the library's
// reader of records, so that a message needs no allocation.
type batch struct {
	partition int32
	tokens    []uint64
	block     []byte
	ends      []int     // ends of the bodies in block
	began     time.Time // time of the first message; only set with linger

	read   int // number of records returned by ReadRecord
	record protocol.Record
	value  body
}

// body is the library's view of one body.
type body struct{ bytes.Reader }

func (*body) Close() error { return nil }

func (b *batch) add(token uint64, content []byte) {
	b.tokens = append(b.tokens, token)
	b.block = append(b.block, content...)
	b.ends = append(b.ends, len(b.block))
}

// size is the approximate size of the batch in a request, before compression.
func (b *batch) size() int { return len(b.block) + len(b.ends)*recordOverhead + overhead }

// recordOverhead is an upper bound for the size of a record without its body, which is a few varints.
const recordOverhead = 16

func (b *batch) reset() {
	b.tokens, b.block, b.ends, b.read = b.tokens[:0], b.block[:0], b.ends[:0], 0
}

// ReadRecord implements protocol.RecordReader.
func (b *batch) ReadRecord() (*protocol.Record, error) {
	if b.read == len(b.ends) {
		return nil, io.EOF
	}
	from := 0
	if b.read > 0 {
		from = b.ends[b.read-1]
	}
	b.value.Reset(b.block[from:b.ends[b.read]])
	b.read++
	b.record.Value = &b.value
	return &b.record, nil
}
