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
)

// The library has no dialer hook, and both the library and gRPC reconnect by themselves. But the library accepts an
// address that selects a gRPC resolver. This resolver returns the local address of the link, names the server for TLS,
// and lets a link connect once. It also selects a balancer, which is gRPC's own and reports the end of the connection.

// scheme is the scheme of addresses "lockstep-eventstore://SERVER/127.0.0.1#NUMBER", and the name of the balancer.
const scheme = "lockstep-eventstore"

// links are the links in use, by number.
var (
	links  sync.Map
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

func (resolving) Build(target resolver.Target, conn resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver,
	error) {
	l, ok := links.Load(target.URL.Fragment)
	if !ok || l.(*link).used.Swap(true) {
		return nil, errors.New("a link connects only once")
	}
	return resolving{}, conn.UpdateState(resolver.State{
		Addresses:     []resolver.Address{{Addr: l.(*link).local}},
		ServiceConfig: conn.ParseServiceConfig(`{"loadBalancingConfig": [{"` + scheme + `": {}}]}`),
	})
}

type watching struct{}

func (watching) Name() string { return scheme }

func (watching) Build(conn balancer.ClientConn, o balancer.BuildOptions) balancer.Balancer {
	l, ok := links.Load(o.Target.URL.Fragment)
	if !ok {
		l = &link{} // closed meanwhile
	}
	return balancer.Get(pickfirst.Name).Build(&watched{ClientConn: conn, link: l.(*link)}, o)
}

// watched breaks a link when its connection ends, and lets later calls fail. gRPC calls it from one goroutine at a time.
type watched struct {
	balancer.ClientConn
	link         *link
	ready, ended bool
}

var errEnded = errors.New("connection closed")

func (w *watched) UpdateState(state balancer.State) {
	ready := state.ConnectivityState == connectivity.Ready
	if w.ready && !ready {
		w.ended = true
		w.link.fail(errEnded)
	}
	if w.ready = ready; w.ended {
		// pickfirst would connect again with the next call, and the library after "unavailable".
		state = balancer.State{ConnectivityState: connectivity.TransientFailure,
			Picker: base.NewErrPicker(status.Error(codes.Unimplemented, errEnded.Error()))}
	}
	w.ClientConn.UpdateState(state)
}
