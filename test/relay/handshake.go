package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	protocol  = "AMQP\x00\x00\x09\x01"
	product   = "Lockstep's test relay, a stand-in for AMQProxy"
	heartbeat = 20 // seconds; what the relay asks for on both sides
	handshake = 10 * time.Second
)

// expect reads the next method on channel 0, which has to be this one.
func (l *link) expect(want method) (*fields, error) {
	for {
		f, err := l.next(l.flush)
		if err != nil {
			return nil, err
		}
		switch got := f.method(); {
		case f.kind == kindHeartbeat:
		case f.channel != 0 || got == 0:
			return nil, &fault{code: 505, text: "frame in the middle of the handshake"}
		case got == connectionClose:
			return nil, readFault(f.arguments())
		case got != want:
			return nil, &fault{code: 503, text: fmt.Sprintf("method %d.%d in the handshake, want %d.%d", got>>16, got&0xFFFF, want>>16, want&0xFFFF)}
		default:
			return f.arguments(), nil
		}
	}
}

// greet is the server's part of the handshake with a client, until connection.open: who it is, what it wants to reach, and
// how often it wants heartbeats.
func (l *link) greet() (k key, beat time.Duration, err error) {
	if err := l.conn.SetDeadline(time.Now().Add(handshake)); err != nil {
		return k, 0, err
	}
	var header [len(protocol)]byte
	if _, err := io.ReadFull(l.in, header[:]); err != nil {
		return k, 0, err
	}
	if string(header[:]) != protocol {
		_, _ = l.out.WriteString(protocol) // as section 2.2.4 says; then the connection ends
		l.flush()
		return k, 0, errors.New("client speaks another protocol")
	}
	m := appendLong(start(connectionStart, 0x0009), properties())
	l.call(appendLong(appendLong(m, "PLAIN"), "en_US"))

	a, err := l.expect(connectionStartOk)
	if err != nil {
		return k, 0, err
	}
	_, mechanism, response := a.long(), a.short(), a.long()
	who := strings.Split(response, "\x00")
	if a.bad || mechanism != "PLAIN" || len(who) != 3 {
		return k, 0, &fault{code: 403, text: "log in with PLAIN"}
	}
	if beat, err = l.offer(); err != nil {
		return k, 0, err
	}
	if a, err = l.expect(connectionOpen); err != nil {
		return k, 0, err
	}
	k = key{user: who[1], secret: who[2], vhost: a.short()}
	if a.bad {
		return k, 0, &fault{code: 502, text: "connection.open has no vhost"}
	}
	return k, beat, nil
}

// offer is tune and tune-ok. Frames pass unchanged, so clients have to take those of the size that the broker was told.
func (l *link) offer() (beat time.Duration, err error) {
	tune := start(connectionTune, channelsPerClient)
	l.call(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(tune, frameMost), heartbeat))
	a, err := l.expect(connectionTuneOk)
	if err != nil {
		return 0, err
	}
	_, most, seconds := a.u16(), a.u32(), a.u16()
	if a.bad || most != 0 && most != frameMost {
		return 0, &fault{code: 530, text: fmt.Sprintf("frame size %d: the relay passes on %d only", most, frameMost)}
	}
	return time.Duration(seconds) * time.Second, nil
}

// login is the client's part of the handshake with the broker. It returns how many channels the connection may have.
func (l *link) login(k key) (channels int, err error) {
	if err := l.conn.SetDeadline(time.Now().Add(handshake)); err != nil {
		return 0, err
	}
	_, _ = l.out.WriteString(protocol)
	l.flush()
	if _, err := l.expect(connectionStart); err != nil {
		return 0, err
	}
	m := appendShort(appendLong(start(connectionStartOk), properties()), "PLAIN")
	l.call(appendShort(appendLong(m, "\x00"+k.user+"\x00"+k.secret), "en_US"))

	a, err := l.expect(connectionTune)
	if err != nil {
		return 0, err
	}
	most, size, _ := int(a.u16()), a.u32(), a.u16()
	if a.bad || size != 0 && size < frameMost {
		return 0, fmt.Errorf("the broker takes frames of %d bytes, clients were offered %d", size, frameMost)
	}
	if most == 0 || most > channelsPerUpstream {
		most = channelsPerUpstream
	}
	tune := binary.BigEndian.AppendUint32(start(connectionTuneOk, uint16(most)), frameMost)
	l.call(binary.BigEndian.AppendUint16(tune, heartbeat))
	l.call(append(appendShort(start(connectionOpen), k.vhost), 0, 0))
	if _, err := l.expect(connectionOpenOk); err != nil {
		return 0, err
	}
	l.beat = heartbeat * time.Second
	return most, l.conn.SetDeadline(time.Time{})
}
