package drivertest

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"example.org/lockstep/lockstep/pkg/drivers"
)

const (
	headSize = 20 // magic, publisher, sequence number, size
	magic    = 0x4c535431
)

// body returns a message whose bytes are determined by its publisher, number and size.
func body(publisher uint32, seq uint64, size int) []byte {
	b := make([]byte, max(size, headSize))
	binary.LittleEndian.PutUint32(b, magic)
	binary.LittleEndian.PutUint32(b[4:], publisher)
	binary.LittleEndian.PutUint64(b[8:], seq)
	binary.LittleEndian.PutUint32(b[16:], uint32(len(b)))
	x := seq*0x9e3779b97f4a7c15 + uint64(publisher) + 1
	for i := headSize; i < len(b); i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return b
}

// id identifies a message.
type id struct {
	publisher uint32
	seq       uint64
}

// read is the inverse of body. ok reports whether all bytes are unchanged.
func read(b []byte) (m id, ok bool) {
	if len(b) < headSize || binary.LittleEndian.Uint32(b) != magic {
		return id{}, false
	}
	m = id{binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[8:])}
	return m, string(b) == string(body(m.publisher, m.seq, len(b))) && int(binary.LittleEndian.Uint32(b[16:])) == len(b)
}

// spoil overwrites a body that the driver must not use any more. If the driver still sends it, the message is invalid.
func spoil(b []byte) {
	for i := range b {
		b[i] = 0xEE
	}
}

// outcome is the state of one message at its publisher.
type outcome struct {
	body     []byte
	seq      uint64
	accepted bool
	confirms int
	err      error // of the first confirm
	returned bool
}

// sender is a publisher that records every confirm.
type sender struct {
	c         *check
	id        uint32
	confirmed bool // the mode has confirms
	copied    bool // the driver must not use bodies after Publish
	conn      drivers.Conn
	pub       drivers.Publisher
	busy      atomic.Bool // in OnConfirms

	mu    sync.Mutex
	seq   uint64
	sent  map[uint64]*outcome // by token
	bySeq map[uint64]*outcome
}

// token returns the token of a message. It is not the number, to detect drivers that count instead of returning tokens.
func token(publisher uint32, seq uint64) uint64 {
	return (seq+1)*0x9e3779b97f4a7c15 ^ uint64(publisher)
}

// spec returns spec with callbacks that record events.
func (s *sender) spec(spec drivers.PublisherSpec) drivers.PublisherSpec {
	spec.OnConfirms = s.onConfirms
	spec.OnReturn = s.onReturn
	return spec
}

func (c *check) newSender(publisher uint32, m drivers.Mode) *sender {
	copies := c.declare(c.use(m)).Capabilities.CopiesBody
	return &sender{c: c, id: publisher, confirmed: m.Confirmed(), copied: copies || !m.Confirmed(),
		sent: map[uint64]*outcome{}, bySeq: map[uint64]*outcome{}}
}

// sender connects a publisher in the rig's mode, over the connection that the rig's publishers share. edit may change
// its spec.
func (r *rig) sender(publisher uint32, edit ...func(*drivers.PublisherSpec)) *sender {
	conn, err := r.conn(drivers.PublisherRole)
	r.c.must(err, "connect publishers")
	return r.senderOn(conn, publisher, edit...)
}

// ownSender connects a publisher over a connection of its own.
func (r *rig) ownSender(publisher uint32) *sender {
	conn, err := r.connect(drivers.PublisherRole)
	r.c.must(err, "connect a publisher")
	return r.senderOn(conn, publisher)
}

func (r *rig) senderOn(conn drivers.Conn, publisher uint32, edit ...func(*drivers.PublisherSpec)) *sender {
	s := r.c.newSender(publisher, r.use.Mode)
	spec := r.publisherSpec()
	for _, e := range edit {
		e(&spec)
	}
	r.c.must(s.connect(conn, spec), "connect a publisher")
	r.c.cleanups = append(r.c.cleanups, s.close)
	return s
}

// connect connects the publisher over a connection.
func (s *sender) connect(conn drivers.Conn, spec drivers.PublisherSpec) (err error) {
	s.conn = conn
	s.pub, err = conn.Publisher(s.c.ctx, s.spec(spec))
	return err
}

// close closes the publisher.
func (s *sender) close() {
	s.c.within(s.c.wait, "Publisher.Close", func() { _ = s.pub.Close() })
	if s.pub.Done() != s.conn.Done() && !over(s.pub) {
		s.c.errorf("Done of a publisher is not closed after Close")
	}
}

// failure returns why the publisher or its connection broke, or nil.
func (s *sender) failure() error { return failure(s.pub, s.conn) }

func (s *sender) onConfirms(tokens []uint64, err error) {
	if !s.busy.CompareAndSwap(false, true) {
		s.c.errorf("OnConfirms is called twice at a time for one publisher")
		return
	}
	defer s.busy.Store(false)
	runtime.Gosched()
	if len(tokens) == 0 {
		s.c.errorf("OnConfirms is called without tokens")
	}
	for _, token := range tokens {
		s.onConfirm(token, err)
	}
}

func (s *sender) onConfirm(token uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.sent[token]
	switch {
	case !s.confirmed:
		s.c.errorf("OnConfirms is called in a mode without confirms")
	case o == nil:
		s.c.errorf("OnConfirms has token %#x, which was not sent", token)
	case o.confirms > 0:
		s.c.errorf("message %d is confirmed again (first %v, now %v)", o.seq, o.err, err)
	default:
		o.confirms, o.err = 1, err
		if err != nil && !errors.Is(err, drivers.ErrRejected) && !errors.Is(err, drivers.ErrClosed) {
			s.c.errorf("message %d: the confirm's error wraps neither ErrRejected nor ErrClosed: %v", o.seq, err)
		}
		if !s.copied { // otherwise publish overwrites it
			spoil(o.body)
		}
	}
}

func (s *sender) onReturn(b []byte) {
	m, ok := read(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.bySeq[m.seq]
	switch {
	case !ok || m.publisher != s.id || o == nil:
		s.c.errorf("OnReturn has a body that was not sent so (%d bytes)", len(b))
	case o.returned:
		s.c.errorf("message %d is returned twice", m.seq)
	case o.confirms > 0:
		s.c.errorf("message %d is returned after its confirm", m.seq)
	default:
		o.returned = true
	}
}

// publish publishes one message.
func (s *sender) publish(ctx context.Context, key uint32, size int) error {
	s.mu.Lock()
	seq := s.seq
	s.seq++
	o := &outcome{seq: seq, body: body(s.id, seq, size)}
	t := token(s.id, seq)
	s.sent[t], s.bySeq[seq] = o, o
	s.mu.Unlock()
	err := s.pub.Publish(ctx, drivers.Message{Token: t, Key: key, Body: o.body})
	s.mu.Lock()
	defer s.mu.Unlock()
	o.accepted = err == nil
	if err != nil && o.confirms > 0 {
		s.c.errorf("message %d has a confirm although Publish refused it: %v", seq, err)
	}
	if s.copied {
		spoil(o.body)
	}
	return err
}

// send publishes n small messages, flushes, and waits for their confirms.
func (s *sender) send(n int) bool {
	for range n {
		s.c.must(s.publish(s.c.ctx, uint32(s.seq), 64), "publish")
	}
	return s.settle()
}

// settle flushes and waits until every accepted message is confirmed. All confirms must be without error.
func (s *sender) settle() bool {
	ok := s.answered()
	s.each(func(o *outcome) {
		if o.err != nil {
			s.c.errorf("message %d is confirmed with %v", o.seq, o.err)
		}
	})
	return ok
}

// outstanding returns the number of accepted messages without a confirm.
func (s *sender) outstanding() (n int) {
	s.each(func(o *outcome) {
		if s.confirmed && o.accepted && o.confirms == 0 {
			n++
		}
	})
	return n
}

// kept returns the messages that must arrive: confirmed without error, or accepted in an unconfirmed mode.
func (s *sender) kept() (all []id) {
	s.each(func(o *outcome) {
		if o.accepted && o.err == nil && !o.returned && (o.confirms > 0 || !s.confirmed) {
			all = append(all, id{s.id, o.seq})
		}
	})
	return all
}

func (s *sender) each(f func(*outcome)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for seq := range s.seq {
		if o := s.bySeq[seq]; o != nil {
			f(o)
		}
	}
}
