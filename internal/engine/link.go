package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
)

// closer is a publisher or consumer of a driver. The zero value means that there is no connection.
type closer interface {
	comparable
	Close() error
	Cut() // breaks its connection at once
}

// link is a sequence of publishers or consumers, of which at most one is connected to the broker. Each replaces the one
// whose connection broke. One goroutine at a time, the owner, opens and disconnects. fail, close, unblock, finish,
// lastBreak and onClosed may be called from any goroutine.
type link[C closer] struct {
	name    string // in events and errors: "publisher 3"
	dial    func(ctx context.Context, onClosed func(error)) (C, error)
	timeout time.Duration // of dial
	journal *journal
	log     *slog.Logger

	conn   C             // written under mu; the owner reads it without mu
	broken chan struct{} // closed when conn breaks; nil without a connection. The owner reads it without mu
	down   atomic.Bool   // conn broke and was not replaced yet

	turn   chan struct{} // a token while the owner may be inside a call of conn
	moving atomic.Int32  // running calls of dial and Close, which end by themselves

	mu       sync.Mutex // guards the fields below, and conn and broken against other goroutines than the owner
	number   int64      // of conn, or of the connection being opened; callbacks of other connections are ignored
	brokeAt  int64      // reading of the clock when a connection last broke; 0: never
	finished bool       // the engine closes its links: a link that ends from then on did not break
	ended    bool       // conn ended while finished was set
}

func newLink[C closer](e *Engine, name string, dial func(context.Context, func(error)) (C, error)) link[C] {
	return link[C]{name: name, dial: dial, timeout: e.work.Connect.D(), journal: e.journal, log: e.cfg.Log,
		turn: make(chan struct{}, 1)}
}

// open opens a connection, within the connect timeout of the cell.
func (l *link[C]) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	l.mu.Lock()
	l.number++
	number := l.number
	l.broken, l.ended = make(chan struct{}), false
	l.down.Store(false)
	l.mu.Unlock()
	l.moving.Add(1)
	conn, err := l.dial(ctx, func(err error) { l.onClosed(number, err) })
	l.moving.Add(-1)
	if err != nil {
		return fmt.Errorf("connect %s: %w", l.name, err)
	}
	l.mu.Lock()
	l.conn = conn
	l.mu.Unlock()
	return nil
}

// fail marks the current connection as broken.
func (l *link[C]) fail(err error) {
	l.mu.Lock()
	number := l.number
	l.mu.Unlock()
	l.onClosed(number, err)
}

// onClosed marks a connection as broken, wakes the owner and records the event. Callbacks of earlier connections are
// ignored.
func (l *link[C]) onClosed(number int64, err error) {
	l.mu.Lock()
	if number != l.number || l.broken == nil || l.down.Load() {
		l.mu.Unlock()
		return
	}
	l.ended = l.finished
	broke := !l.ended
	if broke {
		l.brokeAt = clock.Now()
	}
	l.down.Store(true)
	close(l.broken)
	l.mu.Unlock()
	if broke {
		l.journal.event(eventClosed, fmt.Sprintf("%s: %v", l.name, err))
	}
}

// reopen replaces a broken connection, with retries until ctx ends, and records the outage. brokeAt is the reading of
// the clock when the connection broke, or 0 if the engine closed it. If ok is false, there is no connection.
func (l *link[C]) reopen(ctx context.Context) (brokeAt int64, ok bool) {
	l.mu.Lock()
	ended, since := l.ended, l.brokeAt
	l.mu.Unlock()
	l.disconnect()
	if !ended {
		brokeAt, ok = since, l.openWithRetry(ctx)
		l.journal.outage(l.name, since, ok)
	}
	if !ok { // marks the link as down: nothing can be sent
		l.mu.Lock()
		l.down.Store(true)
		l.mu.Unlock()
	}
	return brokeAt, ok
}

// openWithRetry opens a connection. It retries with growing pauses until it succeeds or ctx ends.
func (l *link[C]) openWithRetry(ctx context.Context) bool {
	const minPause, maxPause = 10 * time.Millisecond, time.Second
	for pause := minPause; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		err := l.open(ctx)
		if err == nil {
			return true
		}
		l.journal.warn("reconnect", err)
		sleep(ctx, pause)
	}
	return false
}

// disconnect closes the connection, which completes all messages in flight. Later callbacks of this connection are
// ignored.
func (l *link[C]) disconnect() {
	l.mu.Lock()
	l.number++
	l.mu.Unlock()
	l.close()
	l.mu.Lock()
	l.broken = nil
	l.down.Store(false)
	l.mu.Unlock()
}

// close closes the connection, if there is one. It may be called repeatedly and from any goroutine.
func (l *link[C]) close() {
	var none C
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn == none {
		return
	}
	l.moving.Add(1)
	defer l.moving.Add(-1)
	if err := conn.Close(); err != nil {
		l.log.Debug("close link", "link", l.name, "error", err)
	}
}

// unblock cuts the connection if a call of the owner does not return within a short time, although its context has
// ended. A client library may block in a write without regard to contexts.
func (l *link[C]) unblock() {
	const patience = 200 * time.Millisecond
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case l.turn <- struct{}{}:
		<-l.turn
		return
	case <-timer.C:
	}
	var none C
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn != none && l.moving.Load() == 0 {
		conn.Cut()
	}
}

// finish marks that the engine is about to close its links.
func (l *link[C]) finish() {
	l.mu.Lock()
	l.finished = true
	l.mu.Unlock()
}

// lastBreak returns the reading of the clock when a connection last broke; 0: never.
func (l *link[C]) lastBreak() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.brokeAt
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	_ = clock.Until(ctx, clock.Now()+int64(d)) // if ctx ended early, the caller sees it in ctx
}
