package rabbitmq

import (
	"bytes"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// heldWrites is a connection whose writes wait for a value of results.
type heldWrites struct {
	net.Conn
	writes  [][]byte
	results chan error
}

func (h *heldWrites) Write(b []byte) (int, error) {
	h.writes = append(h.writes, bytes.Clone(b))
	return len(b), <-h.results
}

func held() *heldWrites {
	near, _ := net.Pipe()
	return &heldWrites{Conn: near, results: make(chan error)}
}

// Data that is written while the previous write is running is written together, and nothing waits for more.
func TestCoalescedWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := held()
		c := newCoalescer(conn, conn, nil)
		for _, text := range []string{"a", "b", "c", "d"} {
			if n, err := c.Write([]byte(text)); n != 1 || err != nil {
				t.Fatalf("Write returns %d, %v", n, err)
			}
			if text == "a" {
				synctest.Wait()
			}
		}
		conn.results <- nil
		synctest.Wait()
		conn.results <- nil
		synctest.Wait()
		if _, err := c.Write([]byte("e")); err != nil {
			t.Fatal(err)
		}
		go func() { conn.results <- nil }()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if got := string(bytes.Join(conn.writes, []byte("|"))); got != "a|bcd|e" {
			t.Errorf("written: %q, want %q", got, "a|bcd|e")
		}
		if _, err := c.Write([]byte("f")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write after Close returns %v", err)
		}
	})
}

// A full buffer blocks Write, which counts as a wait for the broker. A failed write ends the wait and the
// connection, whose Read returns the reason.
func TestCoalescerIsBounded(t *testing.T) {
	for _, result := range []error{nil, os.ErrDeadlineExceeded} {
		synctest.Test(t, func(t *testing.T) {
			conn := held()
			var waiting drivers.Waiting
			c := newCoalescer(conn, conn, &waiting)
			for range 2 { // the first is being written
				if _, err := c.Write(make([]byte, maxCoalesced)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			third := make(chan error, 1)
			go func() {
				_, err := c.Write([]byte("x"))
				third <- err
			}()
			synctest.Wait()
			select {
			case err := <-third:
				t.Fatalf("Write to a full buffer returns %v", err)
			default:
			}
			time.Sleep(time.Second)
			conn.results <- result
			if err := <-third; !errors.Is(err, result) {
				t.Errorf("Write returns %v, want %v", err, result)
			}
			if waited := time.Duration(waiting.Nanos()); waited != time.Second {
				t.Errorf("the wait for the broker is %v, want 1s", waited)
			}
			if result == nil {
				conn.results <- nil
				conn.results <- nil
			} else if _, err := c.Read(make([]byte, 1)); !errors.Is(err, result) {
				t.Errorf("Read after a failed write returns %v, want %v", err, result)
			}
			_ = c.Close()
		})
	}
}

// slowClose is a connection whose Close sends a last message, as that of tls.Conn.
type slowClose struct{ net.Conn }

func (s slowClose) Close() error {
	_ = s.SetWriteDeadline(time.Now().Add(5 * time.Second))
	_, _ = s.Write([]byte("close_notify"))
	return s.Conn.Close()
}

// Close ends within a second if the peer reads nothing, also if a last message follows.
func TestCoalescerClosesAtADeadPeer(t *testing.T) {
	for name, sent := range map[string]string{"data": "a", "nothing": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				raw, far := net.Pipe()
				defer far.Close()
				c := newCoalescer(slowClose{raw}, raw, nil)
				if _, err := c.Write([]byte(sent)); err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				_ = c.Close()
				if took := time.Since(begun); took != time.Second {
					t.Errorf("Close took %v, want 1s", took)
				}
			})
		})
	}
}

// The table shows that writes are coalesced.
func TestCoalescingIsLabelled(t *testing.T) {
	for options, want := range map[string]string{
		`{"url": "amqp://h"}`: "classic, transient messages, confirm: in memory of one node",
		`{"url": "amqp://h", "coalesceWrites": true}`: "classic, transient messages, confirm: in memory of one node" +
			", coalesced writes",
	} {
		use := drivers.Use{Mode: drivers.ConfirmEach, Ack: drivers.AckEach}
		if got := declare(schematest.Fill(t, driver{}, options), use).Label; got != want {
			t.Errorf("%s has the label %q, want %q", options, got, want)
		}
	}
}
