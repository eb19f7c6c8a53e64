package rabbitmq

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// scriptedServer accepts everything, and answers messages only as its test scripts. It permits two channels.
type scriptedServer struct {
	net.Conn
	published chan byte    // channel number of each message, and bits of each basic.nack
	fails     *atomic.Bool // writes of the client fail
	opens     int          // number of channel.open to collect before they are answered, the last one first
	opened    []byte       // channel numbers of those that are not answered
	late      []byte       // written before the next channel.close-ok
}

// frame returns an AMQP frame. Methods begin with their class and number.
func frame(channel, kind byte, payload ...byte) []byte {
	f := append([]byte{kind, 0, channel}, binary.BigEndian.AppendUint32(nil, uint32(len(payload)))...)
	return append(append(f, payload...), 0xCE)
}

// ack returns a basic.ack on channel 1.
func ack(tag byte, multiple bool) []byte { return answerTo(1, 80, tag, multiple) }

// nack returns a basic.nack on channel 1.
func nack(tag byte, multiple bool) []byte { return answerTo(1, 120, tag, multiple) }

func answerTo(channel, method, tag byte, multiple bool) []byte {
	bits := byte(0)
	if multiple {
		bits = 1
	}
	return frame(channel, frameMethod, 0, 60, 0, method, 0, 0, 0, 0, 0, 0, 0, tag, bits)
}

// basicReturn returns a message to the publisher on channel 1, with the parts of its body.
func basicReturn(parts ...string) []byte {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	f := frame(1, frameMethod, 0, 60, 0, 50, 1, 56, 0, 0, 0) // reply code 312, and no text, exchange and routing key
	f = append(f, frame(1, frameHeader, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, byte(size), 0, 0)...)
	for _, part := range parts {
		f = append(f, frame(1, frameBody, []byte(part)...)...)
	}
	return f
}

func (s *scriptedServer) serve() {
	defer s.Close()
	if _, err := io.ReadFull(s, make([]byte, 8)); err != nil { // the protocol header
		return
	}
	start := []byte{0, 10, 0, 10, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5, 'P', 'L', 'A', 'I', 'N', 0, 0, 0, 5, 'e', 'n', '_', 'U', 'S'}
	s.write(0, start...)
	for {
		head := make([]byte, 7)
		if _, err := io.ReadFull(s, head); err != nil {
			return
		}
		payload := make([]byte, binary.BigEndian.Uint32(head[3:])+1)
		if _, err := io.ReadFull(s, payload); err != nil {
			return
		}
		if head[0] == frameBody {
			s.published <- head[2]
		}
		if head[0] != frameMethod {
			continue
		}
		switch channel := head[2]; [2]byte{payload[1], payload[3]} {
		case [2]byte{10, 11}: // connection.start-ok: tune
			s.write(channel, 0, 10, 0, 30, 0, 2, 0, 0, 0, 0, 0, 0)
		case [2]byte{10, 40}: // connection.open
			s.write(channel, 0, 10, 0, 41, 0)
		case [2]byte{10, 50}: // connection.close
			s.write(channel, 0, 10, 0, 51)
			return
		case [2]byte{20, 10}: // channel.open
			if s.opened = append(s.opened, channel); len(s.opened) < s.opens {
				continue
			}
			for _, number := range slices.Backward(s.opened) {
				s.write(number, 0, 20, 0, 11, 0, 0, 0, 0)
			}
			s.opens, s.opened = 1, nil
		case [2]byte{20, 40}: // channel.close
			_, _ = s.Write(s.late)
			s.write(channel, 0, 20, 0, 41)
		case [2]byte{60, 120}: // basic.nack, whose bits follow the tag
			s.published <- payload[12]
		case [2]byte{85, 10}: // confirm.select
			s.write(channel, 0, 85, 0, 11)
		}
	}
}

// write sends a method.
func (s *scriptedServer) write(channel byte, payload ...byte) {
	_, _ = s.Write(frame(channel, frameMethod, payload...))
}

// scriptedConn connects to a scripted server, for at most n messages.
func scriptedConn(t *testing.T, n int) (*scriptedServer, drivers.Conn) {
	t.Helper()
	return scriptedConnWith(t, n, `{"url": "amqp://scripted"}`)
}

func scriptedConnWith(t *testing.T, n int, options string) (*scriptedServer, drivers.Conn) {
	t.Helper()
	var last *scriptedServer
	env := drivers.Env{Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		last = &scriptedServer{Conn: far, published: make(chan byte, n), fails: &atomic.Bool{}}
		go last.serve()
		return failingWrites{near, last.fails}, nil
	}}
	s, err := driver{}.Open(t.Context(), schematest.Fill(t, driver{}, options), env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	c, err := s.Connect(t.Context(), drivers.ConnSpec{Role: drivers.PublisherRole, Node: drivers.AnyNode})
	if err != nil {
		t.Fatal(err)
	}
	return last, c
}

// Several messages are rejected one by one with AckEach, otherwise by one answer.
func TestRejectionsOfSeveralMessages(t *testing.T) {
	const requeue, multiple = 2, 1
	for ack, want := range map[drivers.Ack][]byte{drivers.AckEach: {requeue, requeue, requeue},
		drivers.AckEvery: {requeue | multiple}} {
		s, c := scriptedConn(t, 3)
		k := &consumer{conn: c.(*conn), spec: drivers.ConsumerSpec{Ack: ack}}
		var err error
		if k.channel, err = k.conn.amqp.Channel(); err != nil {
			t.Fatal(err)
		}
		k.Nack(3)
		if err := k.channel.Close(); err != nil { // the server has read what was sent before
			t.Fatal(err)
		}
		close(s.published)
		var got []byte
		for bits := range s.published {
			got = append(got, bits)
		}
		if !slices.Equal(got, want) {
			t.Errorf("acknowledgements %s: rejections with the bits %v, want %v", ack, got, want)
		}
	}
}

// A connection over which nothing arrives ends after the time that the schema names.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := scriptedConn(t, 0)
		synctest.Wait() // the library's goroutine for deadlines runs
		_, _ = s.Write(frame(0, 8))
		begun := time.Now()
		<-c.Done()
		if took := fmt.Sprintf("with the default after %.0fs", time.Since(begun).Seconds()); !strings.Contains(schema, took) {
			t.Errorf("a silent connection ends %s, which the schema does not say", took)
		}
	})
}

// The heartbeat also ends a connection whose write is blocked. The goroutines of the library wait for locks then, so
// the test cannot use virtual time.
func TestHeartbeatEndsABlockedWrite(t *testing.T) {
	s, c := scriptedConnWith(t, 0, `{"url": "amqp://scripted", "heartbeat": "2s"}`)
	p, _ := publisherOn(t, c, drivers.ConfirmWindow)
	blocked := make(chan error)
	go func() { // the server does not read after the first message, because published has no receiver
		for token := uint64(1); ; token++ {
			if err := p.Publish(t.Context(), drivers.Message{Token: token, Body: []byte("body")}); err != nil {
				blocked <- err
				return
			}
		}
	}()
	select {
	case <-c.Done():
	case <-time.After(labtest.Wait):
		_ = s.Close()
		t.Error("the connection to a server that neither reads nor writes does not end")
	}
	<-blocked
	<-s.published
	if err := c.Err(); !strings.Contains(fmt.Sprint(err), "timeout") {
		t.Errorf("the connection ended with %v, want a timeout", err)
	}
}

// publisherOn opens a publisher of mandatory messages, and returns its callbacks.
func publisherOn(t *testing.T, c drivers.Conn, mode drivers.Mode) (drivers.Publisher, <-chan outcome) {
	t.Helper()
	callbacks := make(chan outcome, 100)
	p, err := c.Publisher(t.Context(), drivers.PublisherSpec{Mode: mode, MaxInFlight: 100, Mandatory: true,
		OnConfirms: func(tokens []uint64, err error) {
			callbacks <- outcome{tokens: slices.Clone(tokens), err: err}
		},
		OnReturn: func(body []byte) { callbacks <- outcome{returned: string(body)} },
	})
	if err != nil {
		t.Error(err)
	}
	return p, callbacks
}

// publishTo publishes a message, and returns the number of its channel.
func publishTo(t *testing.T, s *scriptedServer, p drivers.Publisher, token uint64) byte {
	t.Helper()
	if err := p.Publish(t.Context(), drivers.Message{Token: token, Body: []byte("body")}); err != nil {
		t.Fatal(err)
	}
	return <-s.published
}

// scripted connects a publisher to a scripted server, and publishes messages with the tokens 1 to n. It returns the
// callbacks of the publisher.
func scripted(t *testing.T, n int, mode drivers.Mode) (*scriptedServer, drivers.Publisher, <-chan outcome) {
	t.Helper()
	s, c := scriptedConn(t, n)
	p, callbacks := publisherOn(t, c, mode)
	for token := range uint64(n) {
		publishTo(t, s, p, token+1)
	}
	return s, p, callbacks
}

// outcome is one call of OnConfirms or OnReturn.
type outcome struct {
	tokens   []uint64
	err      error
	returned string
}

// TestAnswersAreReportedOnArrival proves that no answer of the broker waits for that of an earlier message. Each step
// is one write of the server.
func TestAnswersAreReportedOnArrival(t *testing.T) {
	type step struct {
		write []byte
		want  []outcome
	}
	for _, c := range []struct {
		name  string
		n     int
		steps []step
	}{
		{"ack", 3, []step{
			{ack(2, false), []outcome{{tokens: []uint64{2}}}},
			{ack(3, false), []outcome{{tokens: []uint64{3}}}},
			{ack(1, false), []outcome{{tokens: []uint64{1}}}},
		}},
		{"nack", 2, []step{
			{nack(2, false), []outcome{{tokens: []uint64{2}, err: drivers.ErrRejected}}},
			{ack(1, false), []outcome{{tokens: []uint64{1}}}},
		}},
		{"multiple includes only what was not answered", 6, []step{
			{nack(2, false), []outcome{{tokens: []uint64{2}, err: drivers.ErrRejected}}},
			{ack(4, true), []outcome{{tokens: []uint64{1, 3, 4}}}},
			{nack(6, true), []outcome{{tokens: []uint64{5, 6}, err: drivers.ErrRejected}}},
		}},
		{"many before the first", 40, []step{
			{ack(40, false), []outcome{{tokens: []uint64{40}}}},
			{ack(1, false), []outcome{{tokens: []uint64{1}}}},
			{ack(39, true), []outcome{{tokens: between(2, 39)}}},
		}},
		{"together in one call", 4, []step{
			{slices.Concat(ack(3, false), ack(1, false), nack(4, false), ack(2, false)), []outcome{{tokens: []uint64{3, 1}},
				{tokens: []uint64{4}, err: drivers.ErrRejected}, {tokens: []uint64{2}}}},
		}},
		{"answered twice", 2, []step{
			{slices.Concat(ack(2, false), ack(2, false), ack(9, false)), []outcome{{tokens: []uint64{2}}}},
			{ack(9, true), []outcome{{tokens: []uint64{1}}}},
		}},
		{"returned", 2, []step{
			{slices.Concat(basicReturn("bo", "dy"), ack(2, false)), []outcome{{returned: "body"}, {tokens: []uint64{2}}}},
			{basicReturn(), []outcome{{}}},
			{ack(1, false), []outcome{{tokens: []uint64{1}}}},
		}},
	} {
		for _, piece := range []string{"whole", "in bytes"} {
			if piece != "whole" && c.name == "together in one call" {
				continue
			}
			t.Run(c.name+" "+piece, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server, _, callbacks := scripted(t, c.n, drivers.ConfirmWindow)
					for i, s := range c.steps {
						size := len(s.write)
						if piece != "whole" {
							size = 1
						}
						for part := range slices.Chunk(s.write, size) {
							if _, err := server.Write(part); err != nil {
								t.Fatal(err)
							}
						}
						synctest.Wait()
						checkCallbacks(t, i, callbacks, s.want)
					}
				})
			})
		}
	}
}

// between returns the numbers from first to last.
func between(first, last uint64) (all []uint64) {
	for n := first; n <= last; n++ {
		all = append(all, n)
	}
	return all
}

func checkCallbacks(t *testing.T, step int, callbacks <-chan outcome, want []outcome) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-callbacks:
			if !slices.Equal(got.tokens, w.tokens) || !errors.Is(got.err, w.err) || got.returned != w.returned {
				t.Errorf("step %d: callback %+v, want %+v", step, got, w)
			}
		default:
			t.Fatalf("step %d: no callback, want %+v", step, w)
		}
	}
	select {
	case got := <-callbacks:
		t.Errorf("step %d: callback %+v, want none", step, got)
	default:
	}
}

// Messages that the broker did not answer are reported as lost, in one call, when the connection breaks or the
// publisher is closed. A message that Publish did not accept is not reported, nor is any in unconfirmed modes.
func TestUnansweredMessagesAreReportedAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(*scriptedServer, drivers.Publisher){
		"broken": func(s *scriptedServer, _ drivers.Publisher) {
			_ = s.Close()
			synctest.Wait()
		},
		"closed": func(_ *scriptedServer, p drivers.Publisher) { _ = p.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, p, callbacks := scripted(t, 4, drivers.ConfirmWindow)
				if _, err := server.Write(ack(2, false)); err != nil {
					t.Fatal(err)
				}
				end(server, p)
				checkCallbacks(t, 0, callbacks, []outcome{{tokens: []uint64{2}},
					{tokens: []uint64{1, 3, 4}, err: drivers.ErrClosed}})
				if err := p.Publish(t.Context(), drivers.Message{Token: 5}); !errors.Is(err, drivers.ErrClosed) {
					t.Errorf("Publish after the end returns %v, want ErrClosed", err)
				}
				checkCallbacks(t, 1, callbacks, nil)
			})
		})
	}
	t.Run("not sent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server, p, callbacks := scripted(t, 2, drivers.ConfirmWindow)
			server.fails.Store(true)
			if err := p.Publish(t.Context(), drivers.Message{Token: 3}); !errors.Is(err, drivers.ErrClosed) {
				t.Errorf("Publish over a broken connection returns %v, want ErrClosed", err)
			}
			_ = p.Close()
			checkCallbacks(t, 0, callbacks, []outcome{{tokens: []uint64{1, 2}, err: drivers.ErrClosed}})
		})
	})
	t.Run("unconfirmed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server, p, callbacks := scripted(t, 2, drivers.FireAndForget)
			if _, err := server.Write(basicReturn("body")); err != nil {
				t.Fatal(err)
			}
			_ = p.Close()
			checkCallbacks(t, 0, callbacks, []outcome{{returned: "body"}})
		})
	})
}

// Publishers of one connection open their channels at the same time, and each gets the answers to its own messages.
// This holds for a publisher that reuses the channel number of another, too.
func TestAnswersReachTheirPublisher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, c := scriptedConn(t, 10)
		server.opens = 2
		var publishers [3]drivers.Publisher
		var callbacks [3]<-chan outcome
		var opened sync.WaitGroup
		for i := range 2 {
			opened.Go(func() { publishers[i], callbacks[i] = publisherOn(t, c, drivers.ConfirmWindow) })
		}
		opened.Wait()
		if t.Failed() {
			return
		}
		first, second := publishTo(t, server, publishers[0], 10), publishTo(t, server, publishers[1], 20)
		for token := range uint64(3) {
			publishTo(t, server, publishers[0], 11+token)
		}
		acks := slices.Concat(answerTo(first, 80, 1, false), answerTo(second, 80, 1, false), answerTo(first, 80, 2, false))
		if _, err := server.Write(acks); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		checkCallbacks(t, 0, callbacks[0], []outcome{{tokens: []uint64{10}}, {tokens: []uint64{11}}})
		checkCallbacks(t, 1, callbacks[1], []outcome{{tokens: []uint64{20}}})

		server.late = answerTo(first, 80, 3, false)
		if err := publishers[0].Close(); err != nil {
			t.Fatal(err)
		}
		checkCallbacks(t, 2, callbacks[0], []outcome{{tokens: []uint64{12}}, {tokens: []uint64{13}, err: drivers.ErrClosed}})

		publishers[2], callbacks[2] = publisherOn(t, c, drivers.ConfirmWindow)
		if third := publishTo(t, server, publishers[2], 30); third != first {
			t.Fatalf("the third publisher has channel %d, want that of the first, %d", third, first)
		}
		if _, err := server.Write(answerTo(first, 80, 4, true)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		checkCallbacks(t, 3, callbacks[0], nil)
		checkCallbacks(t, 4, callbacks[1], nil)
		checkCallbacks(t, 5, callbacks[2], []outcome{{tokens: []uint64{30}}})
	})
}

// A channel number belongs to the publisher that was announced before its channel.open. Another publisher waits until
// then, or until its context ends.
func TestAnnouncedPublisherOpensTheNextChannel(t *testing.T) {
	near, far := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	defer near.Close()
	r := newAnswerReader(near)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	refused, first, second := &answers{}, &answers{}, &answers{}
	announce := func(a *answers) {
		t.Helper()
		if err := r.announce(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	announce(refused)
	if err := r.announce(ended, first); !errors.Is(err, context.Canceled) {
		t.Fatalf("announce returns %v while another publisher is announced, want the end of its context", err)
	}
	r.retract(refused)
	for range 100 {
		if err := r.announce(ended, first); !errors.Is(err, context.Canceled) {
			t.Fatalf("announce returns %v after the end of its context, want that", err)
		}
	}
	announce(first)
	open := func(channel byte) []byte { return frame(channel, frameMethod, 0, 20, 0, 10, 0) }
	sent := slices.Concat([]byte("AMQP\x00\x00\x09\x01"), frame(0, 8), // heartbeat
		frame(3, frameMethod, 0, 60, 0, 40, 0, 0, 0, 0, 0), frame(3, frameBody, open(4)...), frame(3, frameBody), open(1))
	for part := range slices.Chunk(sent, 1) {
		if _, err := r.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	r.retract(first) // has no effect any more
	announce(second)
	r.retract(first)
	if _, err := r.Write(open(2)); err != nil {
		t.Fatal(err)
	}
	for _, channel := range []byte{1, 2, 4} {
		r.pass(frame(channel, frameMethod, 0, 20, 0, 11, 0, 0, 0, 0))
	}
	if len(r.channels) != 2 || r.channels[1] != first || r.channels[2] != second {
		t.Errorf("channels %v, want 1 of %p and 2 of %p", r.channels, first, second)
	}
}

// A message that was answered or reported as lost cannot be withdrawn, and is reported once. Nothing is reported after
// the end.
func TestReportedMessagesAreNotWithdrawn(t *testing.T) {
	for name, report := range map[string]func(*answers){
		"end": func(a *answers) { a.end() },
		"answer": func(a *answers) {
			a.answer(1, false, nil)
			a.confirms.Report()
		},
	} {
		t.Run(name, func(t *testing.T) {
			confirmed, returned := 0, 0
			a := newAnswers(drivers.PublisherSpec{
				OnConfirms: func(tokens []uint64, _ error) { confirmed += len(tokens) },
				OnReturn:   func([]byte) { returned++ },
			})
			a.add(1)
			report(a)
			if a.withdraw() {
				t.Error("withdraw returns true")
			}
			a.end()
			a.answer(1, true, nil)
			a.confirms.Report()
			a.returned(4, []byte("body"))
			if confirmed != 1 || returned != 0 {
				t.Errorf("%d confirms and %d returned messages, want 1 and 0", confirmed, returned)
			}
		})
	}
}

// OnConfirms may use the publisher, also when successive results differ.
func TestCallbacksMayUseThePublisher(t *testing.T) {
	var a *answers
	var pending []bool
	a = newAnswers(drivers.PublisherSpec{OnConfirms: func([]uint64, error) { pending = append(pending, !a.idle()) }})
	a.add(1)
	a.add(2)
	a.answer(1, false, nil)
	a.answer(2, false, drivers.ErrRejected)
	a.confirms.Report()
	if !slices.Equal(pending, []bool{true, false}) {
		t.Errorf("messages were pending in the callbacks: %v", pending)
	}
}

// A message and its confirm cost no memory.
func TestAnswersDoNotAllocate(t *testing.T) {
	confirmed := 0
	a := newAnswers(drivers.PublisherSpec{OnConfirms: func(tokens []uint64, _ error) { confirmed += len(tokens) }})
	r := newAnswerReader(nil)
	r.channels[1], r.rest = a, 0
	message := slices.Concat(frame(1, frameMethod, 0, 60, 0, 40, 0, 0, 0, 0, 0), frame(1, frameBody, 1))
	const n = 100
	frames := make([]byte, 0, n*(frameOverhead+13))
	chunk := func() {
		for range n {
			a.add(7)
			r.findOpen(message)
		}
		frames = frames[:0]
		for i := range uint64(n) {
			frames = append(frames, frameMethod, 0, 1, 0, 0, 0, 13, 0, 60, 0, 80)
			frames = append(binary.BigEndian.AppendUint64(frames, a.next-1-i), 0, 0xCE) // the last one first
		}
		r.pass(frames[:1000]) // ends within a frame
		r.pass(frames[1000:])
	}
	chunk() // buffers grow
	if allocations := testing.AllocsPerRun(10, chunk); allocations > 0 {
		t.Errorf("%v allocations for %d messages", allocations, n)
	}
	if confirmed != 12*n || !a.idle() {
		t.Errorf("%d messages confirmed, want %d", confirmed, 12*n)
	}
}
