package eventstore

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
)

// The library has no dialler hook and no gRPC options. Both the library and gRPC reconnect by themselves when a
// connection breaks. But the library accepts an address that selects a gRPC resolver. The resolver of this file returns
// the local address of Env.Forward, sets the server name for TLS, and selects a balancer. That balancer makes one
// connection, once, and reports its end.

// scheme is the scheme of addresses "lockstep-eventstore://NUMBER/127.0.0.1:PORT", and the name of the balancer.
const scheme = "lockstep-eventstore"

func init() {
	resolver.Register(resolving{})
	balancer.Register(balancing{})
}

// wires are the wires in use, by number.
var (
	wires  sync.Map
	number atomic.Uint64
)

var errSpent = errors.New("the library wants to connect again")

// wire is one connection of one client. A broken wire is never reconnected. Its methods are safe for concurrent use.
type wire struct {
	number  string
	local   string // where Env.Forward listens
	address string // address of the server
	down    func(cause error)

	mu    sync.Mutex
	cause error
	ended bool // release was called: down is not called any more
	taken bool // the connection is being made, or was made
	conn  balancer.ClientConn
}

// newWire creates a wire. It calls down at most once, from any goroutine, when the wire breaks. down must not block.
// The caller must call release.
func newWire(local, address string, down func(error)) *wire {
	w := &wire{number: strconv.FormatUint(number.Add(1), 10), local: local, address: address, down: down}
	wires.Store(w.number, w)
	return w
}

// target returns the address for the library.
func (w *wire) target() string { return scheme + "://" + w.number + "/" + w.local }

func (w *wire) release() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	wires.Delete(w.number)
}

// broke breaks the wire. Later calls fail with a status after which the library neither waits nor reconnects.
func (w *wire) broke(cause error) {
	w.mu.Lock()
	first := w.cause == nil
	if first {
		w.cause = cause
		if !w.ended {
			w.down(cause) // before any call fails because of it
		}
	}
	conn := w.conn
	w.mu.Unlock()
	if first && conn != nil {
		conn.UpdateState(failing(cause))
	}
}

// take reserves the connection for the first caller. It fails for later callers, and if the wire is broken.
func (w *wire) take(conn balancer.ClientConn) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.taken {
		return errSpent
	}
	w.taken, w.conn = true, conn
	return w.cause
}

type resolving struct{}

func (resolving) Scheme() string { return scheme }

// OverrideAuthority returns the server name that TLS verifies.
func (resolving) OverrideAuthority(target resolver.Target) string {
	if w, ok := wires.Load(target.URL.Host); ok {
		return w.(*wire).address
	}
	return target.Endpoint()
}

func (resolving) Build(target resolver.Target, conn resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver,
	error) {
	found, ok := wires.Load(target.URL.Host)
	if !ok {
		return nil, fmt.Errorf("no connection %q", target.URL.Host)
	}
	w := found.(*wire)
	err := conn.UpdateState(resolver.State{
		Addresses:     []resolver.Address{{Addr: w.local}},
		ServiceConfig: conn.ParseServiceConfig(`{"loadBalancingConfig": [{"` + scheme + `": {}}]}`),
		Attributes:    attributes.New(wireKey{}, w),
	})
	return resolving{}, err
}

type wireKey struct{}

func (resolving) ResolveNow(resolver.ResolveNowOptions) {}
func (resolving) Close()                                {}

type balancing struct{}

func (balancing) Name() string { return scheme }

func (balancing) Build(conn balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return &single{conn: conn}
}

// single is a balancer that makes one connection. gRPC calls it from one goroutine at a time.
type single struct {
	conn balancer.ClientConn
	wire *wire
	sub  balancer.SubConn
}

func (s *single) UpdateClientConnState(state balancer.ClientConnState) error {
	if s.wire != nil {
		return nil
	}
	s.wire, _ = state.ResolverState.Attributes.Value(wireKey{}).(*wire)
	if s.wire == nil {
		return errors.New("a target without a connection")
	}
	if err := s.wire.take(s.conn); err != nil {
		s.wire.broke(err)
		s.conn.UpdateState(failing(err))
		return nil
	}
	//lint:ignore SA1019 there is no other way; what is announced is that it will take one address alone
	sub, err := s.conn.NewSubConn(state.ResolverState.Addresses, balancer.NewSubConnOptions{StateListener: s.changed})
	if err != nil {
		s.wire.broke(err)
		return nil
	}
	s.sub = sub
	s.conn.UpdateState(balancer.State{ConnectivityState: connectivity.Connecting,
		Picker: pickNone{balancer.ErrNoSubConnAvailable}})
	sub.Connect()
	return nil
}

var errClosedByServer = errors.New("connection closed")

// changed handles a state change of the connection. It never reconnects.
func (s *single) changed(now balancer.SubConnState) {
	switch now.ConnectivityState {
	case connectivity.Connecting:
	case connectivity.Ready:
		s.wire.mu.Lock()
		whole := s.wire.cause == nil
		if whole { // locked, so that this state cannot overtake that of broke
			s.conn.UpdateState(balancer.State{ConnectivityState: connectivity.Ready, Picker: pickOne{s.sub}})
		}
		s.wire.mu.Unlock()
	default:
		cause := now.ConnectionError
		if cause == nil {
			cause = errClosedByServer
		}
		s.wire.broke(cause)
	}
}

func (s *single) ResolverError(err error) {
	if s.wire == nil {
		s.conn.UpdateState(failing(err))
	}
}

// Close is called when the client is closed, and when gRPC closes a connection that was unused for half an hour.
func (s *single) Close() {
	if s.sub != nil {
		s.sub.Shutdown()
	}
	if s.wire != nil {
		s.wire.broke(errClosedByServer)
	}
}

func (s *single) ExitIdle() {}

// UpdateSubConnState is used only without a StateListener.
func (s *single) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// failing is the state of a broken wire.
func failing(cause error) balancer.State {
	return balancer.State{
		ConnectivityState: connectivity.TransientFailure,
		// After "unavailable" the library would reconnect. It takes "unimplemented" for an answer, even while it
		// connects.
		Picker: pickNone{status.Error(codes.Unimplemented, "connection is down: "+cause.Error())},
	}
}

type pickNone struct{ err error }

func (p pickNone) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{}, p.err
}

type pickOne struct{ sub balancer.SubConn }

func (p pickOne) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{SubConn: p.sub}, nil
}
