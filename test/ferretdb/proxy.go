package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
)

// proxy passes MongoDB's messages on to a server, and of those that change documents one at a time.
type proxy struct {
	upstream string
	turn     chan struct{} // holds a token while nobody has the turn
}

func newProxy(upstream string) *proxy {
	p := &proxy{upstream: upstream, turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	return p
}

// serve serves connections until ctx ends, which ends them too.
func (p *proxy) serve(ctx context.Context, listener net.Listener) error {
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer client.Close()
			defer context.AfterFunc(ctx, func() { _ = client.Close() })()
			p.pass(ctx, client) // how a connection ends is for its two ends to say
		})
	}
}

// pass passes on what one client sends, and the answer to each. It returns when either side has closed.
func (p *proxy) pass(ctx context.Context, client net.Conn) error {
	server, err := new(net.Dialer).DialContext(ctx, "tcp", p.upstream)
	if err != nil {
		return err
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	for {
		request, err := readMessage(client)
		if err != nil {
			return err
		}
		answer, err := p.ask(ctx, server, request)
		if err != nil {
			return err
		}
		if answer == nil {
			continue
		}
		if _, err := client.Write(answer); err != nil {
			return err
		}
	}
}

// changes are the commands that read a document and then change it.
var changes = []string{"findAndModify", "findandmodify", "update", "delete"}

// ask has one request answered. The answer is nil if the client wants none: the server sends one nevertheless, which
// the client would take for that to its next request.
func (p *proxy) ask(ctx context.Context, server net.Conn, request message) (message, error) {
	silent := request.silence()
	if slices.Contains(changes, request.command()) {
		select {
		case <-p.turn:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		defer func() { p.turn <- struct{}{} }()
	}
	if _, err := server.Write(request); err != nil {
		return nil, err
	}
	answer, err := readMessage(server)
	if err != nil || silent {
		return nil, err
	}
	return answer, nil
}

// message is one of MongoDB's wire protocol: length, id, id of what it answers and kind, four bytes each, least
// significant first; then, if its kind is msg, flags and sections, of which one has kind 0 and is the command's
// document.
type message []byte

const (
	header      = 16
	msg         = 2013
	moreToCome  = 1 << 1 // "send no answer"
	longest     = 48 << 20
	bodySection = 0
)

func readMessage(from io.Reader) (message, error) {
	start := make([]byte, header)
	if _, err := io.ReadFull(from, start); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint32(start)
	if length < header || length > longest {
		return nil, fmt.Errorf("a message has %d bytes", length)
	}
	m := append(make(message, 0, length), start...)[:length]
	if _, err := io.ReadFull(from, m[header:]); err != nil {
		return nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	return m, nil
}

func (m message) isMsg() bool {
	return binary.LittleEndian.Uint32(m[12:]) == msg && len(m) >= header+4
}

// silence reports whether the client wants no answer, and makes the request one that has an answer.
func (m message) silence() bool {
	if !m.isMsg() {
		return false
	}
	flags := binary.LittleEndian.Uint32(m[header:])
	binary.LittleEndian.PutUint32(m[header:], flags&^moreToCome)
	return flags&moreToCome != 0
}

// command is the name of the command, or empty if there is none to be found.
func (m message) command() string {
	if !m.isMsg() {
		return ""
	}
	for rest := m[header+4:]; len(rest) > 5; {
		size := int(binary.LittleEndian.Uint32(rest[1:]))
		if rest[0] != bodySection {
			if size < 4 || size >= len(rest) {
				return ""
			}
			rest = rest[1+size:]
			continue
		}
		// A document is its length and then elements: one byte of type, the name with a zero at its end, the value.
		if len(rest) < 7 {
			return ""
		}
		name := rest[6:]
		if end := slices.Index(name, 0); end >= 0 {
			return string(name[:end])
		}
		return ""
	}
	return ""
}
