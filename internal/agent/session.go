package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/internal/netsim"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// describeTimeout is the timeout of a broker's description.
const describeTimeout = 5 * time.Second

// session is a driver's session with a broker, with its resources on this host: a folder, and a forwarder for clients
// that do not dial through the agent. close releases all of them, including those that a slow open still creates. Safe
// for concurrent use.
type session struct {
	broker plan.Broker
	access drivers.Access
	parent string // parent of the folder; empty: the system's temporary folder
	log    *slog.Logger
	event  func(drivers.EventKind, string) // receives events of the driver's links
	retry  func(requests int64)            // receives the number of requests that the driver's library repeated

	network plan.Network
	seed    uint64         // for jitter and faults
	faults  *netsim.Faults // nil: the cell has no faults of connections
	delays  *netsim.Delays // nil: no network is simulated

	localBroker atomic.Bool                   // a connection leads to this host
	scrubber    atomic.Pointer[plan.Scrubber] // of the resolved options; nil before

	mu        sync.Mutex
	closed    bool
	driver    drivers.Session
	forwarder *netsim.Forwarder
	dir       string
	endpoints []string
}

var errSessionClosed = errors.New("the session was closed while it was opened")

// open opens the driver's session. If close was called meanwhile, open closes the session again and returns an error.
func (s *session) open(ctx context.Context) error {
	driver, err := drivers.Lookup(s.broker.Driver)
	if err != nil {
		return err
	}
	options, scrubber, err := plan.Resolve(s.broker.Options, s.broker.Secret, s.access)
	if err != nil {
		return err
	}
	s.scrubber.Store(scrubber)
	env, err := s.env()
	if err != nil {
		return err
	}
	opened, err := drivers.Checked(ctx, driver, options, env)
	s.mu.Lock()
	closed := s.closed
	if err == nil {
		s.driver = opened
	}
	for _, e := range plan.Endpoints(options) {
		s.endpoints = append(s.endpoints, s.clean(e))
	}
	s.mu.Unlock()
	if closed {
		return errors.Join(err, errSessionClosed, s.close())
	}
	return err
}

// env creates the resources that the driver may use on this host.
func (s *session) env() (drivers.Env, error) {
	if s.parent != "" {
		if err := os.MkdirAll(s.parent, 0o755); err != nil {
			return drivers.Env{}, fmt.Errorf("create the folder of the session: %w", err)
		}
	}
	direct := (&net.Dialer{}).DialContext
	dial := netsim.DialFunc(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := direct(ctx, network, address)
		if err == nil && s.broker.Via == "" && isLocal(conn) {
			s.localBroker.Store(true)
		}
		return conn, err
	})
	dial = netsim.Dialer(netsim.Via(dial, s.broker.Via), netsim.Conditions{Latency: s.network.Latency.D(), Jitter: s.network.Jitter.D(),
		Bandwidth: s.network.Bandwidth, Seed: s.seed, Faults: s.faults, Delays: s.delays})
	dir, err := os.MkdirTemp(s.parent, "lockstep-task-*")
	if err != nil {
		return drivers.Env{}, fmt.Errorf("create the folder of the session: %w", err)
	}
	forwarder := netsim.NewForwarder(dial)
	s.mu.Lock()
	s.dir, s.forwarder = dir, forwarder
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return drivers.Env{}, errors.Join(errSessionClosed, s.close())
	}
	forward := forwarder.Forward
	if s.delays == nil && s.faults == nil && s.broker.Via == "" {
		forward = s.direct // a relay would add costs that a network does not have
	}
	return drivers.Env{Dial: countingWrites(dial), DialManagement: direct, Forward: forward, Log: s.log, Event: s.event,
		Retried: s.retry, Dir: dir, Access: s.access}, nil
}

// direct returns the address unchanged.
func (s *session) direct(_ context.Context, address string) (string, error) {
	host, _, _ := net.SplitHostPort(address)
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		s.localBroker.Store(true)
	}
	return address, nil
}

// current returns the driver's session; nil before it is open.
func (s *session) current() drivers.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.driver
}

// describe returns the broker's description without secrets. On an error, the subject has the fields that need no
// answer.
func (s *session) describe(ctx context.Context) (plan.Subject, error) {
	s.mu.Lock()
	driver, endpoints := s.driver, s.endpoints
	s.mu.Unlock()
	subject := plan.Subject{Label: s.broker.Version, Endpoints: endpoints}
	if s.broker.Via != "" {
		subject.Endpoints = append(subject.Endpoints[:len(endpoints):len(endpoints)], "via "+s.broker.Via)
	}
	describer, can := drivers.As[drivers.Describer](driver)
	if !can {
		return subject, nil
	}
	d, err := describer.Describe(ctx)
	if err != nil {
		return subject, s.cleanError(err)
	}
	subject.Product, subject.Version = s.clean(d.Product), s.clean(d.Version)
	for _, name := range d.Members {
		subject.Members = append(subject.Members, s.clean(name))
	}
	subject.StandIn = s.clean(d.StandIn)
	size := 0
	for name, value := range d.Settings {
		size += len(name) + len(value)
	}
	if size > maxSettings {
		return subject, fmt.Errorf("the driver reports %d bytes of settings: want at most %d", size, maxSettings)
	}
	for name, value := range d.Settings {
		if subject.Settings == nil {
			subject.Settings = make(map[string]string, len(d.Settings))
		}
		subject.Settings[name] = s.clean(value)
	}
	return subject, nil
}

// maxSettings is the maximum size of a broker's settings in bytes, with their names.
const maxSettings = 64 << 10

// clientProcesses returns the processes of the driver's client, except this one.
func (s *session) clientProcesses() []int {
	if o, is := drivers.As[drivers.ClientProcesses](s.current()); is {
		return o.Processes()
	}
	return nil
}

// clean removes secrets from text that leaves the agent.
func (s *session) clean(text string) string { return s.scrubber.Load().Scrub(text) }

// cleanNodes removes secrets from the names of nodes, which may be addresses.
func (s *session) cleanNodes(nodes map[string]int) map[string]int {
	if nodes == nil {
		return nil
	}
	clean := make(map[string]int, len(nodes))
	for name, n := range nodes {
		clean[s.clean(name)] += n
	}
	return clean
}

// cleanError removes secrets from the text of an error, which may be nil.
func (s *session) cleanError(err error) error {
	if err == nil {
		return nil
	}
	return cleanedError{err, s.clean(err.Error())}
}

// cleanedError is an error with a text without secrets.
type cleanedError struct {
	error
	text string
}

func (c cleanedError) Error() string { return c.text }

func (c cleanedError) Unwrap() error { return c.error }

// close closes and removes the resources that exist now; open removes those that it still creates. A driver that does
// not close within closeTimeout is left behind.
func (s *session) close() error {
	s.mu.Lock()
	s.closed = true
	driver, forwarder, dir := s.driver, s.forwarder, s.dir
	s.mu.Unlock()
	var errs []error
	if driver != nil {
		closed := make(chan error, 1)
		go func() { closed <- driver.Close() }()
		select {
		case err := <-closed:
			if err != nil {
				errs = append(errs, fmt.Errorf("close session: %w", s.cleanError(err)))
			}
		case <-time.After(closeTimeout):
			errs = append(errs, fmt.Errorf("close session: driver %s did not close it within %v; it is abandoned",
				s.broker.Driver, closeTimeout))
		}
	}
	if forwarder != nil {
		if err := forwarder.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close forwarder: %w", s.cleanError(err)))
		}
	}
	if dir != "" {
		if err := os.RemoveAll(dir); err != nil {
			errs = append(errs, fmt.Errorf("remove the folder of the session: %w", err))
		}
	}
	return errors.Join(errs...)
}
