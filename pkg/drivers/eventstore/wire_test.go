package eventstore

import (
	"testing"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"
)

// states is a connection of gRPC, of which update hears the states.
type states struct {
	balancer.ClientConn
	update func()
}

func (s states) UpdateState(balancer.State) { s.update() }

// A call that fails because the library connects again must find its link broken, or the server counts as having
// refused it.
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
