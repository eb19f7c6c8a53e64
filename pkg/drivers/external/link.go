package external

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// limits are timeouts for a driver's process. Tests shorten them.
type limits struct {
	hello time.Duration // for the answer to hello
	call  time.Duration // for any request, in addition to its context
	close time.Duration // for closing a connection, publisher or consumer
	ping  time.Duration // interval of pings
	pings int           // intervals without an answer until the process counts as dead
}

var usual = limits{hello: 20 * time.Second, call: 5 * time.Minute, close: 5 * time.Second, ping: 2 * time.Second,
	pings: 10}

// link is the communication with one process. Three goroutines read, write, and watch the process. They end after
// conclude.
type link struct {
	name  string // name of the driver, for messages
	proc  *process
	log   *slog.Logger
	limit limits
	out   *outbox
	done  chan struct{} // closed when no more frames can arrive
	over  sync.WaitGroup

	mu         sync.Mutex
	serve      func(inbound) error // handles forwards and events; nil before a session is opened
	fault      error               // protocol error for which the process was killed
	cause      error               // why nothing can be opened any more; set before done is closed
	lastID     uint64
	lastHandle uint64
	// answers by request ID; each is called once, usually by the reader
	waiting map[uint64]func(json.RawMessage, error)
	parts   map[uint64]part // open connections, publishers and consumers, by handle
}

// part is a connection, publisher or consumer.
type part interface {
	on() *conn // its connection
	// lose ends it because of why, which wraps ErrClosed. nil: its connection or session is closed.
	lose(why error)
}

// end is the end of a part.
func end(s *kit.State, why error) {
	if why == nil {
		s.End()
	} else {
		s.Broke(why)
	}
}

// begin starts a driver's process and reads its description.
func begin(ctx context.Context, name string, c Command, limit limits, log *slog.Logger) (*link, description, error) {
	fail := func(err error) (*link, description, error) {
		return nil, description{}, fmt.Errorf("driver %s: %w", name, err)
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	log = log.With("driver", name)
	proc, err := start(c, log)
	if err != nil {
		return fail(err)
	}
	l := &link{name: name, proc: proc, log: log, limit: limit, out: newOutbox(), done: make(chan struct{}),
		waiting: map[uint64]func(json.RawMessage, error){}, parts: map[uint64]part{}}
	l.over.Go(func() {
		if err := l.out.write(proc.stdin, l.done); err != nil {
			// the process has ended or is ending: the reader reports the cause
			l.log.Debug("write to the driver", "err", err)
		}
	})
	l.over.Go(l.read)
	hello, cancel := context.WithTimeout(ctx, limit.hello)
	defer cancel()
	raw, err := l.call(hello, outbound{Type: "hello", Protocol: protocol})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("it does not answer hello within %v: %w", limit.hello, err)
	}
	var d description
	if err == nil {
		d, err = readDescription(raw)
	}
	if err == nil && d.Name != name {
		err = fmt.Errorf("it calls itself %q: use one name, in the file and in its description", d.Name)
	}
	if err != nil {
		proc.kill()
		l.end()
		return fail(err)
	}
	l.over.Go(l.watch)
	return l, d, nil
}

// end ends the process. It returns when the process and all goroutines of the link have ended.
func (l *link) end() {
	l.proc.stop()
	l.over.Wait()
	_ = l.proc.stdout.Close()
}

// fail kills a process that violated the protocol. The reader then reports err as the cause.
func (l *link) fail(err error) {
	l.mu.Lock()
	if l.fault == nil {
		l.fault = err
	}
	l.mu.Unlock()
	l.proc.kill()
}

// read processes the frames of the process until there are no more.
func (l *link) read() {
	r := bufio.NewReaderSize(l.proc.stdout, 256<<10)
	var header []byte
	for {
		f, err := readFrame(r, header)
		if err == nil {
			header = f.header
			err = l.receive(f)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
				l.fail(err)
			}
			break
		}
	}
	l.conclude()
}

// receive processes one frame. An error is a protocol error of the driver, which ends its process.
func (l *link) receive(f frame) error {
	var s inbound
	if err := json.Unmarshal(f.header, &s); err != nil {
		return fmt.Errorf("read header %.200q: %w", f.header, err)
	}
	if len(f.body) > 0 && s.Type != typeDeliver && s.Type != typeReturn {
		return fmt.Errorf("%s has a body of %d bytes and must have none", s.Type, len(f.body))
	}
	switch s.Type {
	case typeDone, typeFailed:
		return l.receiveAnswer(s)
	case typeForward, typeEvent, typeRetried:
		l.mu.Lock()
		serve := l.serve
		l.mu.Unlock()
		if serve == nil {
			return fmt.Errorf("%s comes before open", s.Type)
		}
		return serve(s)
	case typeTaken, typeConfirm, typeReturn:
		p, err := find[*publisher](l, s, s.Publisher)
		if p == nil || err != nil {
			return err
		}
		return p.receive(s, f.body)
	case typeDeliver:
		c, err := find[*consumer](l, s, s.Consumer)
		if c == nil || err != nil {
			return err
		}
		return c.deliver(s.Deliveries, f.body)
	case typeClosed:
		p, err := find[part](l, s, max(s.Conn, s.Publisher, s.Consumer))
		if p == nil || err != nil {
			return err
		}
		why, _ := failure("closed", s.Message)
		p.lose(why)
		return nil
	}
	return fmt.Errorf("there is no message of type %.100q", s.Type)
}

func (l *link) receiveAnswer(s inbound) error {
	answer := l.answered(s.ID)
	if answer == nil {
		return fmt.Errorf("%s answers request %d, which is not open", s.Type, s.ID)
	}
	if s.Type == typeDone {
		answer(s.Result, nil)
		return nil
	}
	err, known := failure(s.Kind, s.Message)
	if !known {
		err = errors.New(bounded(s.Message))
		answer(nil, err)
		return fmt.Errorf("failed has kind %.100q: want closed, rejected, unsupported or other", s.Kind)
	}
	answer(nil, err)
	return nil
}

// find returns the part of a frame. It returns nil for one that has ended: its late frames are ignored. A handle that
// was never used is an error.
func find[P part](l *link, s inbound, handle uint64) (P, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, _ := l.parts[handle].(P)
	if handle == 0 || handle > l.lastHandle {
		return p, fmt.Errorf("%s is of connection %d, publisher %d and consumer %d, which there never were", s.Type, s.Conn,
			s.Publisher, s.Consumer)
	}
	return p, nil
}

// conclude reports to all callers and parts that no more frames arrive, and why.
func (l *link) conclude() {
	_ = l.proc.stdin.Close()
	timer := time.AfterFunc(exitGrace, l.proc.kill) // a process that has closed its standard output is of no use
	<-l.proc.ended
	timer.Stop()
	l.mu.Lock()
	l.cause = fmt.Errorf("%w: driver %s: %w", drivers.ErrClosed, l.name, l.proc.err)
	if l.fault != nil {
		l.cause = fmt.Errorf("%w: driver %s broke the protocol: %w; %w", drivers.ErrClosed, l.name, l.fault, l.proc.err)
	}
	cause, waiting, parts := l.cause, l.waiting, l.parts
	l.waiting, l.parts = nil, nil
	l.mu.Unlock()
	close(l.done)
	for _, answer := range waiting {
		answer(nil, cause)
	}
	for _, p := range parts {
		p.lose(cause)
	}
}

// watch kills a process that does not answer. It counts intervals instead of measuring time. So a host that was
// suspended does not make a driver look dead.
func (l *link) watch() {
	ticker := time.NewTicker(l.limit.ping)
	defer ticker.Stop()
	answered, missed := make(chan struct{}, 1), 0
	answered <- struct{}{}
	for {
		select {
		case <-l.done:
			return
		case <-ticker.C:
		}
		select {
		case <-answered:
			missed = 0
			l.ask(outbound{Type: "ping"}, func(json.RawMessage, error) { answered <- struct{}{} })
		default:
			if missed++; missed == l.limit.pings {
				l.fail(fmt.Errorf("it does not answer: no word on a ping for %v", time.Duration(missed)*l.limit.ping))
			}
		}
	}
}

// ask sends a request. It calls answer once: from the reader, or immediately if the request cannot be sent.
func (l *link) ask(request outbound, answer func(json.RawMessage, error)) uint64 {
	l.mu.Lock()
	if l.waiting == nil {
		cause := l.cause
		l.mu.Unlock()
		answer(nil, cause)
		return 0
	}
	l.lastID++
	request.ID = l.lastID
	l.waiting[request.ID] = answer
	l.mu.Unlock()
	if err := l.out.put(request); err != nil { // for example if options are not valid JSON
		if answer := l.answered(request.ID); answer != nil {
			answer(nil, err)
		}
	}
	return request.ID
}

func (l *link) answered(id uint64) func(json.RawMessage, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	answer := l.waiting[id]
	delete(l.waiting, id)
	return answer
}

// call sends a request and waits for its answer. If ctx ends first, it sends a cancel request to the driver.
func (l *link) call(ctx context.Context, request outbound) (json.RawMessage, error) {
	return l.callOr(ctx, request, func() {})
}

// callOr is like call. It calls late if a successful answer arrives after ctx has ended.
func (l *link) callOr(ctx context.Context, request outbound, late func()) (json.RawMessage, error) {
	type answer struct {
		result json.RawMessage
		err    error
	}
	ctx, cancel := context.WithTimeout(ctx, l.limit.call)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	left := false
	answers := make(chan answer, 1)
	id := l.ask(request, func(result json.RawMessage, err error) {
		mu.Lock()
		defer mu.Unlock()
		answers <- answer{result, err}
		if left && err == nil {
			late()
		}
	})
	select {
	case a := <-answers:
		return a.result, a.err
	case <-ctx.Done():
	}
	mu.Lock()
	defer mu.Unlock()
	select {
	case a := <-answers:
		return a.result, a.err
	default:
	}
	left = true
	_ = l.out.put(outbound{Type: "cancel", ID: id})
	return nil, ctx.Err()
}

// handle returns a new number for a part.
func (l *link) handle() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastHandle++
	return l.lastHandle
}

// open adds a part, and makes the driver open it. If ctx ends before the answer and the driver succeeds later, it is
// closed.
func (l *link) open(ctx context.Context, doing string, request outbound, p part) (json.RawMessage, error) {
	if err := l.add(request.handle(), p); err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	closing := outbound{Type: "close", Publisher: request.Publisher, Consumer: request.Consumer}
	if closing.handle() == 0 {
		closing.Conn = request.Conn
	}
	result, err := l.callOr(ctx, request, func() { l.ask(closing, func(json.RawMessage, error) {}) })
	if err != nil {
		l.forget(request.handle())
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return result, nil
}

// add adds a part before it is open, because its frames may arrive before the answer.
func (l *link) add(handle uint64, p part) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-p.on().Done():
		return cmp.Or(p.on().Err(), fmt.Errorf("connection: %w", drivers.ErrClosed))
	default:
	}
	if l.cause != nil {
		return l.cause
	}
	l.parts[handle] = p
	return nil
}

// of returns the publishers and consumers of a connection. The connection must have ended, so that none is added.
func (l *link) of(c *conn) (all []part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.parts {
		if p != part(c) && p.on() == c {
			all = append(all, p)
		}
	}
	return all
}

// shut ends all parts because the session is closed. None is added from then on.
func (l *link) shut() {
	l.mu.Lock()
	if l.cause == nil {
		l.cause = fmt.Errorf("session: %w", drivers.ErrClosed)
	}
	parts := slices.Collect(maps.Values(l.parts))
	clear(l.parts)
	l.mu.Unlock()
	for _, p := range parts {
		p.lose(nil)
	}
}

// close makes the driver close the part of request, within limits.close, and forgets it.
func (l *link) close(request outbound) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.limit.close)
	defer cancel()
	request.Type = "close"
	_, err := l.call(ctx, request)
	l.forget(request.handle())
	return err
}

func (l *link) forget(handle uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.parts, handle)
}
