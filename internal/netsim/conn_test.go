package netsim

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
)

const oneWay = 15 * time.Millisecond

// hang is the time limit of waits: it ends a test that hangs.
const hang = 2 * time.Minute

var slow = Conditions{Latency: 2 * oneWay}

func since(begin int64) time.Duration { return time.Duration(clock.Now() - begin) }

// In virtual time, delays are exact to the nanosecond.
func TestTimingIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, peer := net.Pipe()
		c := Conditions{Latency: 10 * time.Millisecond, Bandwidth: 1_000_000}
		near := newConn(inner, newPath(c, 1), newPath(c, 2), c)
		begin := clock.Now()
		got := make(chan time.Duration, 2)
		go func() {
			_, _ = io.ReadFull(peer, make([]byte, 3000))
			got <- since(begin)
			_, _ = peer.Write(make([]byte, 1000))
			peer.Close()
		}()
		if _, err := near.Write(make([]byte, 3000)); err != nil || since(begin) != 0 {
			t.Errorf("Write: %v after %v, want at once", err, since(begin))
		}
		if at, want := <-got, 8*time.Millisecond; at != want { // 3 ms of bandwidth, 5 ms of latency
			t.Errorf("3000 bytes were there after %v, want %v", at, want)
		}
		if _, err := io.ReadFull(near, make([]byte, 1000)); err != nil || since(begin) != 14*time.Millisecond {
			t.Errorf("answer: %v after %v, want after 8+1+5 ms", err, since(begin))
		}
		if n, err := near.Read(make([]byte, 1)); n != 0 || err != io.EOF || since(begin) != 14*time.Millisecond {
			t.Errorf("end: %d, %v after %v, want EOF with the last byte", n, err, since(begin))
		}
		near.Close()
		time.Sleep(time.Second) // a bubble's time stands still when its function returns
	})
}

func TestEndsArriveAsLateAsBytes(t *testing.T) {
	near, far := connect(t, slow)
	begin := clock.Now()
	far.CloseWrite()
	if _, err := near.Read(make([]byte, 1)); err != io.EOF || since(begin) < oneWay {
		t.Errorf("end of the peer: %v after %v, want EOF after %v", err, since(begin), oneWay)
	}
	begin = clock.Now()
	closeWrite(t, near)
	if _, err := far.Read(make([]byte, 1)); err != io.EOF || since(begin) < oneWay {
		t.Errorf("our end: %v after %v, want EOF after %v", err, since(begin), oneWay)
	}
	if _, err := near.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("Write after CloseWrite: %v, want EPIPE", err)
	}
}

func TestResetArrivesBehindTheBytes(t *testing.T) {
	near, far := connect(t, slow)
	if _, err := far.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	in := near.(halfCloser).in
	// The reset makes the kernel drop bytes that were not read yet.
	for handedOver := 0; handedOver < len("last words"); time.Sleep(time.Millisecond) {
		in.mu.Lock()
		handedOver = in.bytes.n
		in.mu.Unlock()
	}
	begin := clock.Now()
	far.SetLinger(0)
	far.Close()
	got, err := io.ReadAll(near)
	if string(got) != "last words" || !errors.Is(err, syscall.ECONNRESET) || since(begin) < oneWay {
		t.Errorf("read %q, %v after %v, want the words, then a reset, one way later", got, err, since(begin))
	}
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("second read after the reset: %v, want it again", err)
	}
	for begin := clock.Now(); ; time.Sleep(time.Millisecond) { // accepted until the reset arrives, then an error
		if _, err := near.Write([]byte("x")); err != nil {
			if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("Write after the reset: %v, want EPIPE or ECONNRESET", err)
			}
			break
		}
		if since(begin) > hang {
			t.Fatalf("writes to a reset connection still succeed after %v", hang)
		}
	}
}

func TestHalfClosedConnectionStillReceives(t *testing.T) {
	near := dialTo(t, serve(t, func(c *net.TCPConn) {
		all, _ := io.ReadAll(c)
		fmt.Fprintf(c, "%d bytes", len(all))
		c.Close()
	}), slow)
	if _, err := near.Write(make([]byte, 300_000)); err != nil {
		t.Fatal(err)
	}
	closeWrite(t, near)
	if got, err := io.ReadAll(near); string(got) != "300000 bytes" || err != nil {
		t.Errorf("answer after our end: %q, %v", got, err)
	}
}

func TestCloseDeliversWhatWasWritten(t *testing.T) {
	for name, c := range map[string]Conditions{"latency": slow,
		"bandwidth": {Latency: 2 * oneWay, Bandwidth: 20_000_000}} {
		t.Run(name, func(t *testing.T) {
			near, far := connect(t, c)
			sent := make([]byte, 3<<20)
			rand.Read(sent)
			if _, err := near.Write(sent); err != nil {
				t.Fatal(err)
			}
			_, _ = far.Write([]byte("never read")) // unread bytes must not turn the close of this end into a reset
			near.Close()
			if got, err := io.ReadAll(far); err != nil || sha256.Sum256(got) != sha256.Sum256(sent) {
				t.Errorf("peer got %d of %d bytes (or others), %v", len(got), len(sent), err)
			}
			if err := near.Close(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("second Close: %v, want net.ErrClosed", err)
			}
		})
	}
}

// slowReader is a real connection whose bytes are read only after it was closed in at least one direction.
type slowReader struct {
	net.Conn
	ended func()
	ready <-chan struct{}
}

func (c slowReader) Read(b []byte) (int, error) { <-c.ready; return c.Conn.Read(b) }
func (c slowReader) Close() error               { defer c.ended(); return c.Conn.Close() }
func (c slowReader) CloseWrite() error {
	defer c.ended()
	return c.Conn.(*net.TCPConn).CloseWrite()
}

// The kernel resets a connection that is closed with unread bytes, and loses what it still has to send.
func TestUnreadBytesAtTheCloseLoseNothing(t *testing.T) {
	const size = 256 << 10
	fars := make(chan *net.TCPConn, 1)
	address := serve(t, func(c *net.TCPConn) { fars <- c })
	inner, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	far := <-fars
	if _, err := far.Write([]byte("unread")); err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	near := newConn(slowReader{inner, sync.OnceFunc(func() { close(ready) }), ready}, newPath(slow, 1),
		newPath(slow, 2), slow)
	if _, err := near.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	near.Close()
	if _, err := io.ReadFull(far, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	<-ready // what the kernel of the peer has no memory for is still to be sent
	if n, err := io.Copy(io.Discard, far); n != size-1000 || err != nil {
		t.Errorf("the peer got %d of %d bytes after the close, %v", n, size-1000, err)
	}
	far.Close()
}

func TestCloseDoesNotWaitForTheBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 3 << 20
		near, far := pipe(Conditions{Latency: 2 * oneWay, Bandwidth: bandwidth})
		if _, err := near.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		begin := clock.Now()
		near.Close()
		if took := since(begin); took != 0 {
			t.Errorf("Close took %v, want it not to wait for the bytes", took)
		}
		if n, err := io.CopyN(io.Discard, far, size); err != nil || since(begin) < transferTime(size, 2*oneWay) {
			t.Errorf("the peer got %d of %d bytes %v after Close, %v", n, size, since(begin), err)
		}
		closeBoth(near, far)
	})
}

// A peer that does not read must not keep the goroutines of a closed connection for ever.
func TestCloseGivesUpOnAPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, peer := net.Pipe()
		near := newConn(inner, newPath(slow, 1), newPath(slow, 2), slow)
		_, _ = near.Write(make([]byte, 1000))
		time.Sleep(time.Minute) // the write is blocked in the pipe by now
		near.Close()
		begin := clock.Now()
		time.Sleep(linger + time.Second)
		synctest.Wait()
		if _, err := peer.Write([]byte("x")); err == nil {
			t.Errorf("the real connection is still open %v after Close", since(begin))
		}
	})
}

// halfOpen is a connection whose peer never closes its end.
type halfOpen struct {
	net.Conn
	ends *int // calls of CloseWrite
}

func (c halfOpen) CloseWrite() error { *c.ends++; return nil }

func TestCloseGivesUpOnAPeerThatDoesNotClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, peer := net.Pipe()
		ends := 0
		near := newConn(halfOpen{inner, &ends}, newPath(slow, 1), newPath(slow, 2), slow)
		near.Close()
		time.Sleep(linger + time.Second)
		synctest.Wait()
		if _, err := peer.Write([]byte("x")); err == nil || ends != 1 {
			t.Errorf("the peer wrote with error %v and got %d ends, want a closed connection after one end", err, ends)
		}
	})
}

func TestEndOfResetConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, _ := net.Pipe()
		ends := 0
		newConn(halfOpen{inner, &ends}, newPath(slow, 1), newPath(slow, 2), slow).(halfCloser).reset()
		time.Sleep(time.Second)
		synctest.Wait()
		if ends != 0 {
			t.Error("the peer of a reset connection got an orderly end")
		}
	})
}

func TestCloseEndsBlockedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pipe(Conditions{Latency: 2 * oneWay, Buffer: 1000})
		errs := make(chan error, 4)
		for range 2 {
			go func() { _, err := near.Read(make([]byte, 1)); errs <- err }()
			go func() { _, err := near.Write(make([]byte, 10_000)); errs <- err }()
		}
		time.Sleep(2 * oneWay)
		if len(errs) > 0 {
			t.Fatalf("a call ended with %v before Close", <-errs)
		}
		near.Close()
		synctest.Wait()
		if len(errs) < 4 {
			t.Errorf("%d of 4 calls still block after Close", 4-len(errs))
		}
		for range len(errs) {
			if err := <-errs; !errors.Is(err, net.ErrClosed) {
				t.Errorf("blocked call: %v, want net.ErrClosed", err)
			}
		}
		if err := near.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("SetDeadline after Close: %v, want net.ErrClosed", err)
		}
		closeBoth(near, far)
	})
}

func TestBytesInFlightAreBounded(t *testing.T) {
	const buffer = 50_000
	synctest.Test(t, func(t *testing.T) {
		near, far := pipe(Conditions{Latency: 300 * time.Millisecond, Buffer: buffer})
		begin := clock.Now()
		_ = near.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := near.Write(make([]byte, 3*buffer)); n != buffer || !errors.Is(err, os.ErrDeadlineExceeded) ||
			since(begin) != 50*time.Millisecond {
			t.Errorf("Write: %d, %v after %v; want %d bytes and then the deadline", n, err, since(begin), buffer)
		}
		closeBoth(near, far)
	})
}

func TestDeadlineSetWhileBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pipe(slow)
		begin := clock.Now()
		_ = near.SetReadDeadline(time.Now().Add(time.Hour))
		go func() {
			time.Sleep(10 * time.Millisecond)
			_ = near.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		}()
		if _, err := near.Read(make([]byte, 1)); !isTimeout(err) || since(begin) != 20*time.Millisecond {
			t.Errorf("Read: %v after %v, want a timeout after 20 ms", err, since(begin))
		}
		closeBoth(near, far)
	})
}

func TestDeadlineOfARealConnection(t *testing.T) {
	near, _ := connect(t, slow)
	begin := clock.Now()
	_ = near.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := near.Read(make([]byte, 1)); !isTimeout(err) || since(begin) < 20*time.Millisecond {
		t.Errorf("Read: %v after %v, want a timeout after 20 ms", err, since(begin))
	}
	if near.LocalAddr().Network() != "tcp" || near.RemoteAddr().String() == near.LocalAddr().String() {
		t.Errorf("addresses %v, %v are not those of the real connection", near.LocalAddr(), near.RemoteAddr())
	}
}

// Bytes keep their order, for any sizes of the calls and wherever the ring buffer wraps and grows.
func TestBytesStayInOrder(t *testing.T) {
	near := dialTo(t, serve(t, echo), Conditions{Latency: time.Millisecond, Jitter: time.Millisecond, Buffer: 70_001})
	sent := make([]byte, 4<<20)
	rand.Read(sent)
	var group sync.WaitGroup
	group.Go(func() {
		for at, k := 0, 1; at < len(sent); k = k*7%60_013 + 1 {
			n, err := near.Write(sent[at:min(at+k, len(sent))])
			if at += n; err != nil {
				t.Errorf("Write: %v", err)
				return
			}
		}
		closeWrite(t, near)
	})
	got, err := io.ReadAll(near)
	group.Wait()
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("got %d of %d bytes (or others), %v", len(got), len(sent), err)
	}
}

func TestHTTPOverTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	defer server.Close()
	client := server.Client()
	transport := client.Transport.(*http.Transport)
	transport.DialContext = Dialer(bare, slow)
	defer transport.CloseIdleConnections()
	begin := clock.Now()
	for i := range 2 {
		body := bytes.Repeat([]byte("lockstep "), 50_000)
		answer, err := client.Post(server.URL, "text/plain", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("request %d: %d bytes, %v; want %d", i, len(got), err, len(body))
		}
	}
	if wanted := 8 * oneWay; since(begin) < wanted { // connect, TLS, two requests: four round trips
		t.Errorf("two requests took %v, want the round trips of %v at least", since(begin), wanted)
	}
}
