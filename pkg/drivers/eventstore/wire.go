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

// The library has no dialer hook and takes no option of gRPC; it reconnects by itself when a connection breaks, and so
// does gRPC beneath it. What it does take is an address, in which gRPC looks for the scheme of a resolver: one that
// leads to where Env.Forward listens, names the server for TLS, and asks for a balancer that makes one connection,
// once, and says when it ends.

// scheme is of addresses "lockstep-eventstore://NUMBER/127.0.0.1:PORT". It names the balancer, too.
const scheme = "lockstep-eventstore"

func init() {
	resolver.Register(resolving{})
	balancer.Register(balancing{})
}

// wires are those in use, by number. It is written once for each connection.
var (
	wires  sync.Map
	number atomic.Uint64
)

var errSpent = errors.New("the library wants to connect again")

// wire is one connection of one client. When it is down it stays so. Its methods are safe for concurrent use.
type wire struct {
	number  string
	local   string // where Env.Forward listens
	address string // whom it leads to
	down    func(cause error)

	mu    sync.Mutex
	cause error
	ended bool // release was called: nothing is told any more
	taken bool // the one connection is being made, or was
	conn  balancer.ClientConn
}

// newWire makes a wire. down is called once, when it breaks, from any goroutine; it must not block. Release it.
func newWire(local, address string, down func(error)) *wire {
	w := &wire{number: strconv.FormatUint(number.Add(1), 10), local: local, address: address, down: down}
	wires.Store(w.number, w)
	return w
}

// target is the address for the library.
func (w *wire) target() string { return scheme + "://" + w.number + "/" + w.local }

func (w *wire) release() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	wires.Delete(w.number)
}

// broke puts the wire down. What calls over it from now on fails, with a status that has the library neither wait nor
// connect again.
func (w *wire) broke(cause error) {
	w.mu.Lock()
	first := w.cause == nil
	if first {
		w.cause = cause
	}
	conn, tell := w.conn, first && !w.ended
	w.mu.Unlock()
	if tell {
		w.down(cause) // before any call fails because of it
	}
	if first && conn != nil {
		conn.UpdateState(failing(cause))
	}
}

// take gives the one connection away: to the first that asks, unless the wire is down by then.
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

// OverrideAuthority names the server, for its certificate to be compared with.
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

// single makes one connection. gRPC calls it from one goroutine at a time.
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
		s.conn.UpdateState(failing(err))
		s.wire.broke(err)
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

// changed hears of the connection: it comes up once, and is never asked to come up again.
func (s *single) changed(now balancer.SubConnState) {
	switch now.ConnectivityState {
	case connectivity.Connecting:
	case connectivity.Ready:
		s.wire.mu.Lock()
		whole := s.wire.cause == nil
		if whole { // under the lock, so that nothing overtakes broke
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

// Close is called when the client is closed, and when gRPC gives up a connection that nobody has used for half an hour.
func (s *single) Close() {
	if s.sub != nil {
		s.sub.Shutdown()
	}
	if s.wire != nil {
		s.wire.broke(errClosedByServer)
	}
}

func (s *single) ExitIdle() {}

// UpdateSubConnState is for balancers without a StateListener.
func (s *single) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// failing is the state of a wire that is down.
func failing(cause error) balancer.State {
	return balancer.State{
		ConnectivityState: connectivity.TransientFailure,
		// Of "unavailable" the library would make a reconnection; "unimplemented" it takes for an answer, also while it
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
