package terminal

import (
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a terminal that blocks until it is released.
type slow struct {
	mu    sync.Mutex
	held  chan struct{}
	text  strings.Builder
	count int
}

func (s *slow) Write(p []byte) (int, error) {
	<-s.held
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	return s.text.Write(p)
}

var fixed = Terminal{Size: func() (int, int) { return 80, 24 }}

// TestBoardDoesNotBlockWriters proves that writers to a blocked terminal continue at once, and that nothing is lost.
func TestBoardDoesNotBlockWriters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &slow{held: make(chan struct{})}
		b := NewBoard(out, fixed, func(int) []string { return []string{"block"} })
		began := time.Now()
		for range 100 {
			_, _ = io.WriteString(b, "line\n")
			time.Sleep(time.Second / 10)
		}
		_, _ = io.WriteString(b, "no end")
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("100 lines took %v more than they were apart", took-10*time.Second)
		}
		close(out.held)
		b.Close()
		if n := strings.Count(out.text.String(), "line"); n != 100 {
			t.Errorf("%d of 100 lines were shown", n)
		}
		if !strings.HasSuffix(out.text.String(), "no end"+eraseRight+"\n"+show) {
			t.Errorf("ends with %q", out.text.String())
		}
	})
}

// TestBoardDrawsChangesOnly proves that the block is drawn at most four times per second, and only after changes.
func TestBoardDrawsChangesOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &slow{held: make(chan struct{})}
		close(out.held)
		began := time.Now()
		b := NewBoard(out, fixed, func(int) []string {
			if now := time.Since(began); now < 10*time.Second {
				return []string{now.String()}
			}
			return []string{"still"}
		})
		time.Sleep(20*time.Second + time.Millisecond)
		b.Close()
		if out.count < 30 || out.count > 42 {
			t.Errorf("%d writes for 10 s in which all changes and 10 s in which nothing does", out.count)
		}
	})
}
