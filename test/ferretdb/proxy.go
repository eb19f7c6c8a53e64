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

// proxy forwards MongoDB's messages to a server. It serialises the commands that change documents.
type proxy struct {
	upstream string
	turn     chan struct{} // has a token while no command has the turn
}

func newProxy(upstream string) *proxy {
	p := &proxy{upstream: upstream, turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	return p
}

// serve serves connections until ctx ends, and then closes them.
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
			p.pass(ctx, client) // the two ends report how a connection ended
		})
	}
}

// pass forwards the requests of one client and their responses. It returns when either side has closed.
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

// ask forwards one request and returns the response, or nil if the client expects none. The server responds
// nevertheless, and the client would use that as the response to its next request.
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

// message is a message of MongoDB's wire protocol. Its header has four fields of four bytes, little-endian: length, id,
// id of the request, and kind. A message of kind msg then has flags and sections. One section has kind 0, and is the
// command's document.
type message []byte

const (
	header      = 16
	msg         = 2013
	moreToCome  = 1 << 1 // "send no response"
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

// silence reports whether the client expects no response. It then clears that flag, so that the server responds.
func (m message) silence() bool {
	if !m.isMsg() {
		return false
	}
	flags := binary.LittleEndian.Uint32(m[header:])
	binary.LittleEndian.PutUint32(m[header:], flags&^moreToCome)
	return flags&moreToCome != 0
}

// command returns the name of the command, or "" if the message has none.
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
		// A document has its length and then elements: a type of one byte, a name that ends with a zero, and a value.
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
