package relay

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// raw speaks frames.
type raw struct {
	t    *testing.T
	conn net.Conn
}

// dialRaw connects and does the handshake by hand.
func dialRaw(t *testing.T, address, user, secret string) *raw {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	r := &raw{t, conn}
	r.write([]byte(protocol))
	r.expect(kindMethod, 0)
	if user == "" {
		return r
	}
	ok := appendShort(appendLong(start(connectionStartOk), ""), "PLAIN")
	r.send(kindMethod, 0, appendShort(appendLong(ok, "\x00"+user+"\x00"+secret), "en_US"))
	r.expect(kindMethod, 0)
	tune := binary.BigEndian.AppendUint32(start(connectionTuneOk, 10), frameMost)
	r.send(kindMethod, 0, binary.BigEndian.AppendUint16(tune, 0))
	r.send(kindMethod, 0, append(appendShort(start(connectionOpen), "/"), 0, 0))
	r.expect(kindMethod, 0)
	return r
}

func (r *raw) write(b []byte) {
	r.t.Helper()
	if _, err := r.conn.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

func (r *raw) send(kind byte, channel uint16, payload []byte) {
	r.t.Helper()
	r.write(appendFrame(nil, kind, channel, payload))
}

// expect reads a frame and returns its payload.
func (r *raw) expect(kind byte, channel uint16) []byte {
	r.t.Helper()
	head := make([]byte, frameHead)
	if _, err := io.ReadFull(r.conn, head); err != nil {
		r.t.Fatal(err)
	}
	rest := make([]byte, binary.BigEndian.Uint32(head[3:])+1)
	if _, err := io.ReadFull(r.conn, rest); err != nil {
		r.t.Fatal(err)
	}
	if head[0] != kind || binary.BigEndian.Uint16(head[1:]) != channel {
		r.t.Fatalf("frame of kind %d on channel %d, want %d on %d", head[0], binary.BigEndian.Uint16(head[1:]), kind, channel)
	}
	return rest[:len(rest)-1]
}

// Nothing that a client sends may bring the relay down, and nothing of it reaches a broker: there is none here.
func TestRelayRefusesMalformedFrames(t *testing.T) {
	before := runtime.NumGoroutine()
	r, err := Start("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	frameOf := func(kind byte, payload []byte) []byte { return appendFrame(nil, kind, 0, payload) }
	login := appendShort(appendLong(appendShort(appendLong(start(connectionStartOk), ""), "PLAIN"), "\x00a\x00b"), "en_US")
	unended := frameOf(kindMethod, login)
	unended[len(unended)-1] = 0
	for name, sent := range map[string][]byte{
		"too long":             {kindMethod, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF},
		"without its end":      unended,
		"without a method":     frameOf(kindMethod, []byte{0}),
		"with nothing after":   frameOf(kindMethod, start(connectionStartOk)),
		"with a lying table":   frameOf(kindMethod, append(start(connectionStartOk), 0xFF, 0xFF, 0xFF, 0xFF, 'x')),
		"with a lying string":  frameOf(kindMethod, append(appendLong(start(connectionStartOk), ""), 200, 'P')),
		"of another mechanism": frameOf(kindMethod, appendShort(appendLong(appendShort(appendLong(start(connectionStartOk), ""), "PLAYN"), "\x00a\x00b"), "")),
		"of another time":      frameOf(kindMethod, start(connectionTuneOk)),
		"of a body":            frameOf(kindBody, []byte("body")),
	} {
		c := dialRaw(t, r.Addr(), "", "")
		c.write(sent)
		if m := (frame{kind: kindMethod, payload: c.expect(kindMethod, 0)}); m.method() != connectionClose {
			t.Errorf("a frame %s is answered with method %x, want connection.close", name, m.method())
		}
		_ = c.conn.Close()
	}
	_, err = amqp.Dial("amqp://guest:guest@" + r.Addr())
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("a broker that is not there gives %v, want its address", err)
	}
	r.Close()
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

// A client that dies in the middle of a message must not take the shared connection with it.
func TestRelaySurvivesHalfMessages(t *testing.T) {
	r := newRig(t)
	ch := r.channel(r.connect())
	queue := r.queue(ch)
	half := dialRaw(t, r.Addr(), "guest", "guest")
	half.send(kindMethod, 1, appendShort(start(channelOpen), ""))
	half.expect(kindMethod, 1)
	publish := appendShort(appendShort(start(basicPublish, 0), ""), queue)
	half.send(kindMethod, 1, append(publish, 0))
	header := []byte{0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0} // class, weight, size of the body, no properties
	half.send(kindHeader, 1, header)
	half.send(kindBody, 1, []byte("half"))
	_ = half.conn.Close()
	eventually(t, "the relay has noticed", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.conns) == 1
	})

	// The broker gets this behind whatever the relay sent it for the other client.
	r.publish(ch, queue, []byte("whole"))
	eventually(t, "the other client's message is there", func() bool {
		d, ok, err := ch.Get(queue, true)
		if err != nil {
			t.Fatal(err)
		}
		return ok && string(d.Body) == "whole"
	})
	if n := r.Stats().Upstreams; n != 1 {
		t.Errorf("%d connections to the broker: half a message ended one", n)
	}
}

// A stranger must not use what somebody else has logged in for, and learns the broker's own reason.
func TestRelayRefusesWrongPasswords(t *testing.T) {
	r := newRig(t)
	r.connect()
	_, err := amqp.Dial(strings.Replace(r.url, "guest:guest@", "guest:wrong@", 1))
	var why *amqp.Error
	if !errors.As(err, &why) || why.Code != amqp.AccessRefused {
		t.Errorf("a wrong password gives %v, want access refused", err)
	}
}
