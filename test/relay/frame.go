package relay

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// Frames, after section 2.3.5 of the AMQP 0-9-1 specification: kind, channel, size, payload, end.
const (
	kindMethod    = 1
	kindHeader    = 2
	kindBody      = 3
	kindHeartbeat = 8

	frameHead = 7
	frameEnd  = 0xCE
	frameMost = 131072 // bytes of one frame, head and end included; both sides are held to it
)

// method is a method's class and number.
type method uint32

// The methods that the relay knows; it passes on all others.
const (
	connectionStart     method = 10<<16 | 10
	connectionStartOk   method = 10<<16 | 11
	connectionTune      method = 10<<16 | 30
	connectionTuneOk    method = 10<<16 | 31
	connectionOpen      method = 10<<16 | 40
	connectionOpenOk    method = 10<<16 | 41
	connectionClose     method = 10<<16 | 50
	connectionCloseOk   method = 10<<16 | 51
	connectionBlocked   method = 10<<16 | 60
	connectionUnblocked method = 10<<16 | 61
	channelOpen         method = 20<<16 | 10
	channelClose        method = 20<<16 | 40
	channelCloseOk      method = 20<<16 | 41
	basicPublish        method = 60<<16 | 40
)

// frame is one frame. Its payload is valid until the next one is read.
type frame struct {
	kind    byte
	channel uint16
	payload []byte
}

// method is 0 for what is not a method.
func (f frame) method() method {
	if f.kind != kindMethod || len(f.payload) < 4 {
		return 0
	}
	return method(binary.BigEndian.Uint32(f.payload))
}

// arguments are what follows a method's number.
func (f frame) arguments() *fields { return &fields{rest: f.payload[4:]} }

// appendFrame writes a frame behind raw.
func appendFrame(raw []byte, kind byte, channel uint16, payload []byte) []byte {
	raw = append(raw, kind)
	raw = binary.BigEndian.AppendUint16(raw, channel)
	raw = binary.BigEndian.AppendUint32(raw, uint32(len(payload)))
	raw = append(raw, payload...)
	return append(raw, frameEnd)
}

// errSilent is the end of a peer that sends nothing, not even heartbeats.
var errSilent = errors.New("peer is silent")

// link is the wire of one connection. One goroutine reads; any may write.
type link struct {
	conn net.Conn

	// The reader's.
	in     *bufio.Reader
	beat   time.Duration // 0: no heartbeats
	beaten time.Time     // when the last one was sent
	silent int           // half beats without a byte

	mu  sync.Mutex
	out *bufio.Writer // its errors stay; flush sees them
}

func newLink(conn net.Conn, patience time.Duration) *link {
	return &link{
		conn: conn,
		in:   bufio.NewReaderSize(conn, frameMost),
		out:  bufio.NewWriterSize(patient{conn, patience}, 1<<16),
	}
}

// patient writes to a connection whose peer has a limited time to take it; 0 is as long as it likes.
type patient struct {
	net.Conn
	limit time.Duration
}

func (p patient) Write(b []byte) (int, error) {
	if p.limit > 0 {
		if err := p.SetWriteDeadline(time.Now().Add(p.limit)); err != nil {
			return 0, err
		}
	}
	return p.Conn.Write(b)
}

// next reads a frame. Before it has to wait for the peer it calls idle, so that what was passed on is flushed.
func (l *link) next(idle func()) (frame, error) {
	head, err := l.need(frameHead, idle)
	if err != nil {
		return frame{}, err
	}
	f := frame{kind: head[0], channel: binary.BigEndian.Uint16(head[1:])}
	size := binary.BigEndian.Uint32(head[3:])
	if size > frameMost-frameHead-1 {
		return frame{}, &fault{code: 501, text: fmt.Sprintf("frame of %d bytes is too long", size)}
	}
	whole := frameHead + int(size) + 1
	raw, err := l.need(whole, idle)
	if err != nil {
		return frame{}, err
	}
	if raw[whole-1] != frameEnd {
		return frame{}, &fault{code: 501, text: "frame does not end where it says"}
	}
	f.payload = raw[frameHead : whole-1]
	if f.kind == kindMethod && size < 4 {
		return frame{}, &fault{code: 502, text: "method frame without a method"}
	}
	_, err = l.in.Discard(whole) // the bytes stay until the next read
	return f, err
}

// need waits until n bytes are there, and keeps the connection alive meanwhile.
func (l *link) need(n int, idle func()) ([]byte, error) {
	for {
		before := l.in.Buffered()
		if before >= n {
			return l.in.Peek(n)
		}
		idle()
		if err := l.keepAlive(); err != nil {
			return nil, err
		}
		raw, err := l.in.Peek(n)
		switch {
		case err == nil:
			l.silent = 0
			return raw, nil
		case l.beat == 0 || !errors.Is(err, os.ErrDeadlineExceeded):
			return nil, err
		case l.in.Buffered() > before:
			l.silent = 0
		case l.silent == 4: // two beats, with some mercy
			return nil, errSilent
		default:
			l.silent++
		}
	}
}

// keepAlive sends a heartbeat if one is due, and bounds the next read.
func (l *link) keepAlive() error {
	if l.beat == 0 {
		return nil
	}
	now := time.Now()
	if now.Sub(l.beaten) >= l.beat/2 {
		l.beaten = now
		l.write(kindHeartbeat, 0, nil)
		l.flush()
	}
	return l.conn.SetReadDeadline(now.Add(l.beat / 2))
}

func (l *link) write(kind byte, channel uint16, payload []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var head [frameHead]byte
	_, _ = l.out.Write(appendFrame(head[:0], kind, channel, payload)) // flush sees the error
}

// flush sends what was written; a link that cannot ends its reader too.
func (l *link) flush() {
	l.mu.Lock()
	err := l.out.Flush()
	l.mu.Unlock()
	if err != nil {
		_ = l.conn.Close()
	}
}

// call writes a method on channel 0 and flushes it.
func (l *link) call(payload []byte) {
	l.write(kindMethod, 0, payload)
	l.flush()
}

// fault is why a connection is closed: a reply code of the specification, and words.
type fault struct {
	code uint16
	text string
}

func (f *fault) Error() string { return fmt.Sprintf("%s (code %d)", f.text, f.code) }

func (f *fault) method() []byte {
	m := appendShort(start(connectionClose, f.code), f.text)
	return append(m, 0, 0, 0, 0) // of no method in particular
}

// readFault reads the arguments of a connection.close or channel.close.
func readFault(a *fields) *fault { return &fault{code: a.u16(), text: a.short()} }
