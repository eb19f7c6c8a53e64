package loopback

import (
	"sync"
	"time"

	"lockstep/pkg/drivers"
)

// StampKind says what a Stamp is of.
type StampKind uint8

// The kinds of stamps.
const (
	Accepted  StampKind = iota // Publish was called
	Confirmed                  // OnConfirm is called next, without an error
	Delivered                  // the handler is called next
)

// Stamp is when the broker saw something of a message: the truth that measurements are compared with.
type Stamp struct {
	Kind      StampKind
	At        time.Time // with Go's monotonic clock
	Publisher uint64    // Accepted, Confirmed: numbers the publishers of this process
	Token     uint64    // Accepted, Confirmed: the message's, until it is confirmed
	Body      []byte    // Accepted, Delivered: lent until the call returns
}

var taps struct {
	sync.Mutex
	byBroker   map[string]func(Stamp)
	publishers uint64
}

// Tap has f called with the stamps of the broker of this name, by publishers and consumers that are opened from now on,
// until stop is called. f is called from many goroutines, in the path of every message.
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

// tapped returns what to call for each message of the broker, nil for nothing, and a number for the publisher that
// asks.
func (b *broker) tapped() (f func(Stamp), publisher uint64) {
	taps.Lock()
	defer taps.Unlock()
	taps.publishers++
	return taps.byBroker[b.name], taps.publishers
}

func tapConfirms(f func(Stamp), publisher uint64, onConfirm func(uint64, error)) func(uint64, error) {
	return func(token uint64, err error) {
		if err == nil {
			f(Stamp{Kind: Confirmed, At: time.Now(), Publisher: publisher, Token: token})
		}
		onConfirm(token, err)
	}
}

func tapDeliveries(f func(Stamp), handle drivers.Handler) drivers.Handler {
	return func(batch []drivers.Delivery) error {
		now := time.Now()
		for i := range batch {
			f(Stamp{Kind: Delivered, At: now, Body: batch[i].Body})
		}
		return handle(batch)
	}
}
