package rabbitmq

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// Frame types of AMQP 0.9.1, and the methods that an answerReader reads, as class<<16 | method.
const (
	frameMethod = 1
	frameHeader = 2
	frameBody   = 3

	frameStart    = 7 // bytes before the payload: type, channel, size of the payload
	frameOverhead = frameStart + 1

	channelOpen    = 20<<16 | 10
	channelOpenOK  = 20<<16 | 11
	channelClose   = 20<<16 | 40
	channelCloseOK = 20<<16 | 41
	basicAck       = 60<<16 | 80
	basicNack      = 60<<16 | 120
)

// answerReader is the network connection of publishers. When the library reads from it, it passes the broker's answers
// to their publishers, before the library processes them. So a confirm is reported when it arrives. Successive confirms
// of one publisher that arrive in one read are reported in one call.
//
// The library has no means for that. NotifyPublish reports confirms in the order of publishing: one that is late delays
// all after it. The same holds if a goroutine waits for one DeferredConfirmation after the other. A goroutine for each
// would cost more than the message.
type answerReader struct {
	net.Conn

	// The library does not export the number of a channel. So Write reads it from channel.open.
	announcing chan struct{}           // full while announced is set; capacity 1
	announced  atomic.Pointer[answers] // of the publisher that sends the next channel.open
	opening    sync.Map                // *answers of publishers whose channel.open is unanswered, by channel number

	// The goroutine that writes owns these fields. The library writes one frame after the other.
	start []byte // beginning of a frame
	rest  int    // bytes to come of the frame, or of the protocol header

	// The goroutine that reads owns these fields.
	channels map[uint16]*answers // of open channels, by number
	partial  []byte              // beginning of a frame
	current  *answers            // its field calls is locked; nil between reads
}

func newAnswerReader(conn net.Conn) *answerReader {
	return &answerReader{Conn: conn, announcing: make(chan struct{}, 1), channels: map[uint16]*answers{},
		rest: len("AMQP\x00\x00\x09\x01")}
}

// announce makes a the publisher of the next channel.open. It waits until those announced before are being sent. After
// it, the caller opens a channel, and calls retract if that fails.
func (r *answerReader) announce(ctx context.Context, a *answers) error {
	if err := ctx.Err(); err != nil { // the select may find both ready
		return err
	}
	select {
	case r.announcing <- struct{}{}:
		r.announced.Store(a)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retract ends the announcement of a, if no channel.open followed.
func (r *answerReader) retract(a *answers) {
	if r.announced.CompareAndSwap(a, nil) {
		<-r.announcing
	}
}

func (r *answerReader) Write(b []byte) (int, error) {
	r.findOpen(b)
	return r.Conn.Write(b)
}

// findOpen finds channel.open in data, which begins where the data of the last call ended.
func (r *answerReader) findOpen(data []byte) {
	for len(data) > 0 {
		if r.rest > 0 {
			n := min(r.rest, len(data))
			data, r.rest = data[n:], r.rest-n
			continue
		}
		r.start, data = append(r.start, data[0]), data[1:]
		isMethod := r.start[0] == frameMethod
		if len(r.start) < frameStart || isMethod && len(r.start) < frameStart+4 {
			continue
		}
		if isMethod && binary.BigEndian.Uint32(r.start[frameStart:]) == channelOpen {
			if a := r.announced.Swap(nil); a != nil {
				r.opening.Store(binary.BigEndian.Uint16(r.start[1:]), a)
				<-r.announcing
			}
		}
		r.rest = int(binary.BigEndian.Uint32(r.start[3:])) + frameOverhead - len(r.start)
		r.start = r.start[:0]
	}
}

func (r *answerReader) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if n > 0 {
		r.pass(b[:n])
	}
	return n, err
}

// pass passes on the answers in data, which begins where the data of the last call ended.
func (r *answerReader) pass(data []byte) {
	if len(r.partial) > 0 {
		r.partial = append(r.partial, data...)
		data = r.partial
	}
	for len(data) >= frameOverhead {
		size := uint64(binary.BigEndian.Uint32(data[3:])) + frameOverhead
		if uint64(len(data)) < size {
			break
		}
		r.frame(data[0], binary.BigEndian.Uint16(data[1:]), data[frameStart:size-1])
		data = data[size:]
	}
	r.partial = append(r.partial[:0], data...)
	r.report()
}

// use selects the publisher whose callbacks may be called, and reports the confirms of the one before it.
func (r *answerReader) use(a *answers) {
	if r.current == a {
		return
	}
	r.report()
	r.current = a
	a.calls.Lock()
}

// report reports the confirms of the current publisher, after which there is none.
func (r *answerReader) report() {
	if r.current != nil {
		r.current.confirms.Report()
		r.current.calls.Unlock()
		r.current = nil
	}
}

func (r *answerReader) frame(kind byte, channel uint16, payload []byte) {
	if kind == frameMethod && len(payload) >= 4 {
		r.method(channel, binary.BigEndian.Uint32(payload), payload[4:])
		return
	}
	a := r.channels[channel]
	if a == nil {
		return
	}
	switch { // contents to a publisher belong to a returned message
	case kind == frameHeader && len(payload) >= 12: // class, weight, size of the body
		r.use(a)
		a.returned(binary.BigEndian.Uint64(payload[4:]), nil)
	case kind == frameBody:
		r.use(a)
		a.returned(a.missing, payload)
	}
}

func (r *answerReader) method(channel uint16, method uint32, arguments []byte) {
	switch method {
	case channelOpenOK:
		if a, ok := r.opening.LoadAndDelete(channel); ok {
			r.channels[channel] = a.(*answers)
		}
	case channelClose, channelCloseOK:
		delete(r.channels, channel)
	case basicAck, basicNack: // tag, and the bit "multiple"
		a := r.channels[channel]
		if a == nil || len(arguments) < 9 {
			return
		}
		var err error
		if method == basicNack {
			err = drivers.ErrRejected
		}
		r.use(a)
		a.answer(binary.BigEndian.Uint64(arguments), arguments[8]&1 == 1, err)
	}
}

// answers calls OnConfirms and OnReturn of one publisher. The broker answers a message by its delivery tag. Tags are 1,
// 2, 3 … in the order of publishing, because the publisher has a channel of its own.
type answers struct {
	onReturn func([]byte)

	calls    sync.Mutex // locked during callbacks, and before mu
	confirms kit.Confirms
	body     []byte // of the message that is being returned
	missing  uint64 // bytes of it that have not arrived

	mu    sync.Mutex
	ring  []published // messages first to next-1, at the tag modulo the length, which is a power of two
	first uint64      // tag of the oldest unanswered message
	next  uint64      // tag of the next message
	ended bool        // no further messages and callbacks; set with calls and mu locked, read with either
}

// published is a message whose confirm is outstanding, or that was answered before an older one.
type published struct {
	token    uint64
	answered bool
}

func newAnswers(spec drivers.PublisherSpec) *answers {
	return &answers{onReturn: spec.OnReturn, confirms: kit.Confirms{OnConfirms: spec.OnConfirms},
		ring: make([]published, 16), first: 1, next: 1}
}

// add adds a message before it is sent. It returns false after end.
func (a *answers) add(token uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return false
	}
	size := uint64(len(a.ring))
	if a.next-a.first == size {
		larger := make([]published, 2*size)
		for tag := a.first; tag < a.next; tag++ {
			larger[tag%(2*size)] = a.ring[tag%size]
		}
		a.ring, size = larger, 2*size
	}
	a.ring[a.next%size] = published{token: token}
	a.next++
	return true
}

// withdraw removes the message of the last add, because it was not sent. It returns false if that was already reported.
func (a *answers) withdraw() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ring[(a.next-1)%uint64(len(a.ring))].answered {
		return false
	}
	a.next--
	return true
}

// idle reports whether all messages are answered.
func (a *answers) idle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.first == a.next
}

// answer adds the result of message tag to confirms, or of all messages up to it. The caller has locked calls.
func (a *answers) answer(tag uint64, multiple bool, err error) {
	a.confirms.Begin(err) // calls OnConfirms, which must not happen while mu is locked
	a.mu.Lock()
	defer a.mu.Unlock()
	size, from := uint64(len(a.ring)), max(tag, a.first)
	if multiple {
		from = a.first
	}
	for t := from; t <= tag && t < a.next; t++ {
		if m := &a.ring[t%size]; !m.answered {
			m.answered = true
			a.confirms.Add(m.token, err)
		}
	}
	for a.first < a.next && a.ring[a.first%size].answered {
		a.first++
	}
}

// returned adds a part of the body of a returned message, of which missing bytes have not arrived. The broker confirms
// that message later. The caller has locked calls.
func (a *answers) returned(missing uint64, part []byte) {
	a.body = append(a.body, part...)
	a.missing = missing - min(missing, uint64(len(part)))
	if a.missing > 0 {
		return
	}
	if a.onReturn != nil && !a.ended {
		a.onReturn(a.body)
	}
	a.body = a.body[:0]
}

// end reports the unanswered messages as lost. The channel is closed, or its connection. It may be called twice.
func (a *answers) end() {
	a.calls.Lock()
	defer a.calls.Unlock()
	a.mu.Lock()
	a.ended = true
	last := a.next - 1
	a.mu.Unlock()
	a.answer(last, true, drivers.ErrClosed)
	a.confirms.Report()
}
