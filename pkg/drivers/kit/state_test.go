package kit_test

import (
	"errors"
	"sync"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// over reports whether something has ended.
func over(x drivers.Ended) bool {
	select {
	case <-x.Done():
		return true
	default:
		return false
	}
}

// The first end counts. Its reason wraps ErrClosed, or is nil after Close.
func TestStateEndsOnce(t *testing.T) {
	cause := errors.New("reset by peer")
	for name, c := range map[string]struct {
		end   func(*kit.State) (first, second bool)
		cause error
	}{
		"broken, then closed": {func(s *kit.State) (bool, bool) { return s.Broke(cause), s.End() }, cause},
		"closed, then broken": {func(s *kit.State) (bool, bool) { return s.End(), s.Broke(cause) }, nil},
		"broken twice":        {func(s *kit.State) (bool, bool) { return s.Broke(cause), s.Broke(errors.New("later")) }, cause},
	} {
		for _, asked := range []bool{false, true} { // Done was called before the end
			var s kit.State
			if asked && over(&s) || s.Err() != nil {
				t.Errorf("%s: it has ended with %v before its end", name, s.Err())
			}
			if first, second := c.end(&s); !first || second {
				t.Errorf("%s: the first end reports %t, the second %t", name, first, second)
			}
			if err := s.Err(); !over(&s) || !errors.Is(err, c.cause) || (err != nil) != errors.Is(err, drivers.ErrClosed) {
				t.Errorf("%s: over %t with %v, want the cause %v and ErrClosed", name, over(&s), err, c.cause)
			}
		}
	}
}

// Done of all callers is closed, also if it is called while the end comes.
func TestStateWakesAll(t *testing.T) {
	var s kit.State
	var waiting sync.WaitGroup
	for range 8 {
		waiting.Go(func() { <-s.Done() })
	}
	s.Broke(drivers.ErrClosed)
	waiting.Wait()
}

// The reason of the connection takes precedence, if that has ended.
func TestStateEndWith(t *testing.T) {
	own, lost := errors.New("own"), errors.New("lost")
	for name, c := range map[string]struct {
		end  func(conn *kit.State)
		want error // nil: closed
	}{
		"open":   {func(*kit.State) {}, own},
		"broken": {func(conn *kit.State) { conn.Broke(lost) }, lost},
		"closed": {func(conn *kit.State) { conn.End() }, nil},
	} {
		var conn, part kit.State
		c.end(&conn)
		if !part.EndWith(&conn, own) || !errors.Is(part.Err(), c.want) || (c.want == nil) != (part.Err() == nil) {
			t.Errorf("%s connection: %v, want %v", name, part.Err(), c.want)
		}
		if part.EndWith(&conn, own) {
			t.Errorf("%s connection: it ends twice", name)
		}
	}
}
