package eventstore

import (
	"testing"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"
)

// states is a gRPC connection whose states the test sets.
type states struct {
	balancer.ClientConn
	update func()
}

func (s states) UpdateState(balancer.State) { s.update() }

// Before a call fails because the library reconnects, the link must be reported as broken. Otherwise the error would
// count as a rejection by the server.
func TestLinkBreaksBeforeCallsFail(t *testing.T) {
	told, failing := false, false
	w := newWire("127.0.0.1:1", "there", func(error) { told = true })
	defer w.release()
	w.taken = true
	s := single{conn: states{update: func() {
		failing = true
		if !told {
			t.Error("calls fail before the link is told")
		}
	}}}
	if err := s.UpdateClientConnState(balancer.ClientConnState{
		ResolverState: resolver.State{Attributes: attributes.New(wireKey{}, w)}}); err != nil || !failing {
		t.Errorf("a second connection: %v, and calls fail: %t", err, failing)
	}
}
