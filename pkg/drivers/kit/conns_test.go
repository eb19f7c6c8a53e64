package kit_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// closer is a connection that counts its closes.
type closer struct {
	of     *kit.Conns
	closes atomic.Int64
}

func (c *closer) Close() error {
	c.closes.Add(1)
	c.of.Remove(c)
	return nil
}

// A session closes the connections that are open, and those that are added later.
func TestConnsOfAClosedSession(t *testing.T) {
	var s kit.Conns
	all := make([]*closer, 4)
	for i := range all {
		all[i] = &closer{of: &s}
		if i < 3 {
			if err := s.Add(all[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = all[0].Close()
	s.Close()
	if err := s.Add(all[3]); !errors.Is(err, drivers.ErrClosed) {
		t.Errorf("a closed session: %v, want ErrClosed", err)
	}
	s.Close()
	for i, c := range all {
		if n := c.closes.Load(); n != 1 {
			t.Errorf("connection %d is closed %d times", i, n)
		}
	}
}
