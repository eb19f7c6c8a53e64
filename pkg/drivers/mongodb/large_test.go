package mongodb

import (
	"errors"
	"sync"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// A body that is too large is rejected, and the other messages of its batch are not.
func TestTooLargeBody(t *testing.T) {
	r := newRig(t, standIn(t, `{}`), nil)
	var mu sync.Mutex
	confirms := map[uint64]error{}
	p, err := r.connect().Publisher(r.context(), drivers.PublisherSpec{Topology: r.topology, Mode: drivers.ConfirmBatch,
		Batch: 4, OnConfirms: func(tokens []uint64, err error) {
			mu.Lock()
			defer mu.Unlock()
			for _, token := range tokens {
				confirms[token] = err
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	for token, size := range []int{10, maxDocument, 3 * maxDocument, 10} {
		if err := p.Publish(r.context(), drivers.Message{Token: uint64(token), Body: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(p.Flush(r.context()), p.Err(), p.Close()); err != nil {
		t.Error(err)
	}
	if len(confirms) != 4 {
		t.Errorf("%d of 4 messages are confirmed", len(confirms))
	}
	for token, err := range confirms {
		if large := token == 1 || token == 2; errors.Is(err, drivers.ErrRejected) != large || (err != nil) != large {
			t.Errorf("message %d is confirmed with %v", token, err)
		}
	}
}
