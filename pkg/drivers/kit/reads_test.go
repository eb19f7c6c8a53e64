package kit_test

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// A read deadline ends a blocked write, with the same error.
func TestReadErrorEndsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		c := kit.CloseOnReadError(near)
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		go func() { _, _ = c.Read(make([]byte, 1)) }()
		begun := time.Now()
		if _, err := c.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the blocked write returns %v, want the error of the read", err)
		}
		if took := time.Since(begun); took != time.Second {
			t.Errorf("the blocked write returns after %v, want 1 s", took)
		}
	})
}
