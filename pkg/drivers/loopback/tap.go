package loopback

import (
	"sync"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// StampKind is the kind of event that a Stamp records.
type StampKind uint8

// The kinds of stamps.
const (
	Accepted  StampKind = iota // Publish was called
	Confirmed                  // OnConfirms is called next, without an error
	Delivered                  // the handler is called next
)

// Stamp is the time at which the broker processed a message. Tests compare measurements with this ground truth.
type Stamp struct {
	Kind      StampKind
	At        time.Time // with Go's monotonic clock
	Publisher uint64    // Accepted, Confirmed: numbers the publishers of this process
	Token     uint64    // Accepted, Confirmed: identifies the message until it is confirmed
	Body      []byte    // Accepted, Delivered: valid until the call returns
}

var taps struct {
	sync.Mutex
	byBroker   map[string]func(Stamp)
	publishers uint64
}

// Tap calls f with the stamps of the broker of this name until stop is called. It applies to publishers and consumers
// that are opened from now on; they keep f until they are closed. f is called from several goroutines, in the path of
// every message.
func Tap(name string, f func(Stamp)) (stop func()) {
	taps.Lock()
	defer taps.Unlock()
	if taps.byBroker == nil {
		taps.byBroker = map[string]func(Stamp){}
	}
	taps.byBroker[name] = f
	return func() {
		taps.Lock()
		defer taps.Unlock()
		delete(taps.byBroker, name)
	}
}

// tapped returns the function to call for each message of the broker, or nil, and a new number for a publisher.
func (b *broker) tapped() (f func(Stamp), publisher uint64) {
	taps.Lock()
	defer taps.Unlock()
	taps.publishers++
	return taps.byBroker[b.name], taps.publishers
}

func tapConfirms(f func(Stamp), publisher uint64, onConfirms func([]uint64, error)) func([]uint64, error) {
	return func(tokens []uint64, err error) {
		if now := time.Now(); err == nil {
			for _, token := range tokens {
				f(Stamp{Kind: Confirmed, At: now, Publisher: publisher, Token: token})
			}
		}
		onConfirms(tokens, err)
	}
}

func tapDeliveries(f func(Stamp), handle drivers.Handler) drivers.Handler {
	return func(batch []drivers.Delivery) {
		now := time.Now()
		for i := range batch {
			f(Stamp{Kind: Delivered, At: now, Body: batch[i].Body})
		}
		handle(batch)
	}
}
