package sink

import (
	"net"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/record"
)

// BenchmarkSnapshot measures the cost of a sink per snapshot, which is once per second and agent.
func BenchmarkSnapshot(b *testing.B) {
	x := newWorld(nil)
	x.steady(time.Second)
	one := record.Snapshot{Task: x.task.ID, Epoch: x.epoch}
	for _, s := range x.snapshots {
		one.Windows = append(one.Windows, s.Windows...)
	}
	db := hanging(b)
	s := Open(targetOf(b, db), Tuning{Flush: time.Millisecond}, "test", nil)
	defer s.Close(b.Context())
	s.Begin(x.run)
	s.Start(x.start())
	for i := 0; b.Loop(); i++ {
		one.Agent, one.Seq, one.At = x.agents[i%2].name, uint64(i), int64(i)*int64(time.Second)
		for j := range one.Windows {
			w := &one.Windows[j]
			w.Index, w.Start = i, one.At
		}
		s.Snapshot(one)
	}
}

// hanging starts a server that accepts connections and never responds.
func hanging(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns = append(conns, c)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		for _, c := range conns {
			c.Close()
		}
	})
	return "http://" + l.Addr().String()
}
