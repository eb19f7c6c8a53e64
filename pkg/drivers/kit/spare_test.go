package kit

import (
	"errors"
	"testing"
)

type spareConn struct {
	State
	closed bool
}

func (c *spareConn) Close() error {
	c.closed = true
	return nil
}

// A connection is used until it ends. Then it is closed, and another one is made.
func TestSpare(t *testing.T) {
	var spare Spare[*spareConn]
	if _, err := spare.Get(func() (*spareConn, error) { return &spareConn{}, errors.New("refused") }); err == nil {
		t.Error("an error of connect is not returned")
	}
	first, second := &spareConn{}, &spareConn{}
	next := first
	get := func(want *spareConn) {
		t.Helper()
		got, err := spare.Get(func() (*spareConn, error) { return next, nil })
		if got != want || err != nil {
			t.Errorf("connection %p, %v; want %p", got, err, want)
		}
	}
	get(first)
	next = second
	get(first)
	first.Broke(errors.New("reset"))
	get(second)
	if !first.closed || second.closed {
		t.Errorf("first connection closed: %t, second: %t; want the first only", first.closed, second.closed)
	}
}
