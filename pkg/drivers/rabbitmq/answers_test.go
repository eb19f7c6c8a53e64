package rabbitmq

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// scriptedServer accepts everything, and answers messages only as its test says.
type scriptedServer struct {
	net.Conn
	published chan struct{} // one value per message
	fails     *atomic.Bool  // writes of the client fail
}

// frame returns an AMQP frame on channel 1. Methods begin with their class and number.
func frame(kind byte, payload ...byte) []byte {
	f := append([]byte{kind, 0, 1}, binary.BigEndian.AppendUint32(nil, uint32(len(payload)))...)
	return append(append(f, payload...), 0xCE)
}

// ack returns a basic.ack.
func ack(tag byte, multiple bool) []byte { return answerTo(80, tag, multiple) }

// nack returns a basic.nack.
func nack(tag byte, multiple bool) []byte { return answerTo(120, tag, multiple) }

func answerTo(method, tag byte, multiple bool) []byte {
	bits := byte(0)
	if multiple {
		bits = 1
	}
	return frame(frameMethod, 0, 60, 0, method, 0, 0, 0, 0, 0, 0, 0, tag, bits)
}

// basicReturn returns a message to its publisher, with the parts of its body.
func basicReturn(parts ...string) []byte {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	f := frame(frameMethod, 0, 60, 0, 50, 1, 56, 0, 0, 0) // reply code 312, and no text, exchange and routing key
	f = append(f, frame(frameHeader, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, byte(size), 0, 0)...)
	for _, part := range parts {
		f = append(f, frame(frameBody, []byte(part)...)...)
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
			s.published <- struct{}{}
		}
		if head[0] != frameMethod {
			continue
		}
		switch channel := head[2]; [2]byte{payload[1], payload[3]} {
		case [2]byte{10, 11}: // connection.start-ok: tune
			s.write(channel, 0, 10, 0, 30, 0, 0, 0, 0, 0, 0, 0, 0)
		case [2]byte{10, 40}: // connection.open
			s.write(channel, 0, 10, 0, 41, 0)
		case [2]byte{10, 50}: // connection.close
			s.write(channel, 0, 10, 0, 51)
			return
		case [2]byte{20, 10}: // channel.open
			s.write(channel, 0, 20, 0, 11, 0, 0, 0, 0)
		case [2]byte{20, 40}: // channel.close
			s.write(channel, 0, 20, 0, 41)
		case [2]byte{85, 10}: // confirm.select
			s.write(channel, 0, 85, 0, 11)
		}
	}
}

// write sends a method.
func (s *scriptedServer) write(channel byte, payload ...byte) {
	f := frame(frameMethod, payload...)
	f[2] = channel
	_, _ = s.Write(f)
}

// scripted connects a publisher of mandatory messages to a scripted server, and publishes messages with the tokens 1 to
// n. It returns the callbacks of the publisher.
func scripted(t *testing.T, n int, mode drivers.Mode) (*scriptedServer, drivers.Publisher, <-chan outcome) {
	t.Helper()
	callbacks := make(chan outcome, 100)
	var last *scriptedServer
	env := drivers.Env{Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		last = &scriptedServer{Conn: far, published: make(chan struct{}, n), fails: &atomic.Bool{}}
		go last.serve()
		return failingWrites{near, last.fails}, nil
	}}
	s, err := driver{}.Open(t.Context(), schematest.Fill(t, driver{}, `{"url": "amqp://scripted"}`), env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	c, err := s.Connect(t.Context(), drivers.ConnSpec{Role: drivers.PublisherRole, Node: drivers.AnyNode})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Publisher(t.Context(), drivers.PublisherSpec{Mode: mode, MaxInFlight: n, Mandatory: true,
		OnConfirms: func(tokens []uint64, err error) {
			callbacks <- outcome{tokens: slices.Clone(tokens), err: err}
		},
		OnReturn: func(body []byte) { callbacks <- outcome{returned: string(body)} },
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := p.Publish(t.Context(), drivers.Message{Token: uint64(i + 1), Body: []byte("body")}); err != nil {
			t.Fatal(err)
		}
		<-last.published
	}
	return last, p, callbacks
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

// A message and its confirm cost no memory.
func TestAnswersDoNotAllocate(t *testing.T) {
	confirmed := 0
	a := newAnswers(drivers.PublisherSpec{OnConfirms: func(tokens []uint64, _ error) { confirmed += len(tokens) }})
	r := &answerReader{channels: map[uint16]*answers{1: a}}
	const n = 100
	frames := make([]byte, 0, n*(frameAround+13))
	chunk := func() {
		for range n {
			a.add(7)
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
