package eventstore

import (
	"testing"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"example.org/lockstep/lockstep/pkg/drivers/requests"
)

// states is a gRPC connection whose states the test reads.
type states struct {
	balancer.ClientConn
	update func(balancer.State)
}

func (s states) UpdateState(state balancer.State) { s.update(state) }

// Before calls fail because the connection ended, it must be reported as broken. Otherwise the error would count
// as a rejection by the server. Calls fail with a status after which neither gRPC nor the library connects again.
func TestConnBreaksBeforeCallsFail(t *testing.T) {
	c := &conn{Conn: requests.NewConn(), session: &session{}, address: "there"}
	var got balancer.State
	w := watched{conn: c, ClientConn: states{update: func(state balancer.State) {
		if got = state; state.ConnectivityState == connectivity.TransientFailure && c.Err() == nil {
			t.Error("calls fail before the conn is broken")
		}
	}}}
	idle := base.NewErrPicker(balancer.ErrNoSubConnAvailable) // as pickfirst's, which connects again
	for _, state := range []connectivity.State{connectivity.Connecting, connectivity.Ready, connectivity.Ready} {
		if w.UpdateState(balancer.State{ConnectivityState: state, Picker: idle}); c.Err() != nil {
			t.Fatalf("the conn is broken in the state %s", state)
		}
	}
	for _, state := range []connectivity.State{connectivity.Idle, connectivity.Connecting, connectivity.Ready} {
		w.UpdateState(balancer.State{ConnectivityState: state, Picker: idle})
		_, err := got.Picker.Pick(balancer.PickInfo{})
		if c.Err() == nil || status.Code(err) != codes.Unimplemented {
			t.Errorf("after the end, in the state %s, calls return %v, want Unimplemented", state, err)
		}
	}
}
