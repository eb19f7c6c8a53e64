package eventstore

import (
	"errors"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"example.org/lockstep/lockstep/pkg/drivers/requests"
)

// The library has no dialer hook, and both the library and gRPC reconnect by themselves. But the library accepts an
// address that selects a gRPC resolver. This resolver returns the local address of the conn, names the server for TLS,
// and lets a conn connect once. It also selects a balancer, which is gRPC's own and reports the end of the connection.

// scheme is the scheme of addresses "lockstep-eventstore://SERVER/127.0.0.1#NUMBER", and the name of the balancer.
const scheme = "lockstep-eventstore"

// conns are the connections in use, by number.
var (
	conns  sync.Map
	number atomic.Uint64
)

func init() {
	resolver.Register(resolving{})
	balancer.Register(watching{})
}

type resolving struct{}

func (resolving) Scheme() string                                  { return scheme }
func (resolving) OverrideAuthority(target resolver.Target) string { return target.URL.Host }
func (resolving) ResolveNow(resolver.ResolveNowOptions)           {}
func (resolving) Close()                                          {}

func (resolving) Build(target resolver.Target, to resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver,
	error) {
	c, ok := conns.Load(target.URL.Fragment)
	if !ok || c.(*conn).used.Swap(true) {
		return nil, errors.New("a conn connects only once")
	}
	return resolving{}, to.UpdateState(resolver.State{
		Addresses:     []resolver.Address{{Addr: c.(*conn).local}},
		ServiceConfig: to.ParseServiceConfig(`{"loadBalancingConfig": [{"` + scheme + `": {}}]}`),
	})
}

type watching struct{}

func (watching) Name() string { return scheme }

func (watching) Build(to balancer.ClientConn, o balancer.BuildOptions) balancer.Balancer {
	c, ok := conns.Load(o.Target.URL.Fragment)
	if !ok {
		c = &conn{Conn: requests.NewConn(), session: &session{}} // closed meanwhile
	}
	return balancer.Get(pickfirst.Name).Build(&watched{ClientConn: to, conn: c.(*conn)}, o)
}

// watched breaks a conn when its connection ends, and lets later calls fail. gRPC calls it from one goroutine at a
// time.
type watched struct {
	balancer.ClientConn
	conn         *conn
	ready, ended bool
}

var errEnded = errors.New("connection closed")

func (w *watched) UpdateState(state balancer.State) {
	ready := state.ConnectivityState == connectivity.Ready
	if w.ready && !ready {
		w.ended = true
		w.conn.fail(errEnded)
	}
	if w.ready = ready; w.ended {
		// pickfirst would connect again with the next call, and the library after "unavailable".
		state = balancer.State{ConnectivityState: connectivity.TransientFailure,
			Picker: base.NewErrPicker(status.Error(codes.Unimplemented, errEnded.Error()))}
	}
	w.ClientConn.UpdateState(state)
}
