package eventstore

import (
	"testing"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// states is a gRPC connection whose states the test reads.
type states struct {
	balancer.ClientConn
	update func(balancer.State)
}

func (s states) UpdateState(state balancer.State) { s.update(state) }

// Before calls fail because the connection ended, the link must be reported as broken. Otherwise the error would count
// as a rejection by the server. Calls fail with a status after which neither gRPC nor the library connects again.
func TestLinkBreaksBeforeCallsFail(t *testing.T) {
	l := &link{address: "there"}
	var got balancer.State
	w := watched{link: l, ClientConn: states{update: func(state balancer.State) {
		if got = state; state.ConnectivityState == connectivity.TransientFailure && l.Err() == nil {
			t.Error("calls fail before the link is broken")
		}
	}}}
	idle := base.NewErrPicker(balancer.ErrNoSubConnAvailable) // as pickfirst's, which connects again
	for _, state := range []connectivity.State{connectivity.Connecting, connectivity.Ready, connectivity.Ready} {
		if w.UpdateState(balancer.State{ConnectivityState: state, Picker: idle}); l.Err() != nil {
			t.Fatalf("the link is broken in the state %s", state)
		}
	}
	for _, state := range []connectivity.State{connectivity.Idle, connectivity.Connecting, connectivity.Ready} {
		w.UpdateState(balancer.State{ConnectivityState: state, Picker: idle})
		_, err := got.Picker.Pick(balancer.PickInfo{})
		if l.Err() == nil || status.Code(err) != codes.Unimplemented {
			t.Errorf("after the end, in the state %s, calls return %v, want Unimplemented", state, err)
		}
	}
}
