package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"lockstep/internal/wire/keys"
)

// ServerConfig says how to embed a control plane.
type ServerConfig struct {
	Listen string // host:port to listen on; empty: in-process connections only, no port. Port 0 chooses one.
	Auth   Auth   // what clients must show; required with Listen, unless Open. With Config: what Connect shows
	Open   bool   // anybody on this host may connect if Listen is on loopback and there are no credentials
	// Shared marks a control plane that has more than one follower and outlives its clients, though it opens no port.
	// One with Listen is shared, too.
	Shared bool
	// Config is the path of a NATS server's configuration, for its users, permissions and certificate, as "ctl fleet
	// init" makes it; empty: none. Where to listen and where streams are is said here, whatever it says.
	Config string
	// Record is how many bytes the streams of runs may hold on a server without Dir, which has memory for that; 0: the
	// default.
	Record int64
	Dir    string // where streams are kept, for good; empty: in memory, gone with the server
	// Sync is how often what was written below Dir is synced to the disk; 0: before each message is acknowledged.
	Sync time.Duration
	// Scratch is where a folder is made for as long as the server lasts, without Dir; empty: in the temporary folder.
	Scratch string
	Log     *slog.Logger // nil: nothing is logged
}

// Server is a control plane in this process. Safe for concurrent use.
type Server struct {
	ns      *server.Server
	scratch string
	cfg     ServerConfig
	broken  chan error

	mu    sync.Mutex
	conns []*Conn // made by Connect: without the server they would try to reconnect for ever
}

const (
	embeddedMemory = 16 << 30 // bytes that the streams of an embedded server may reserve; used only as filled
	startTimeout   = 10 * time.Second
	stopTimeout    = 10 * time.Second // of the server
)

// Embedded starts a control plane in this process. Close ends it; ctx bounds only the start.
func Embedded(ctx context.Context, cfg ServerConfig) (*Server, error) {
	opts, err := serverOptions(cfg)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, broken: make(chan error, 1)}
	if cfg.Log == nil {
		s.cfg.Log = slog.New(slog.DiscardHandler)
	}
	if !opts.DontListen && !loopback(opts.Host) && opts.TLSConfig == nil {
		s.cfg.Log.Warn("the control plane listens beyond loopback without TLS: what agents are assigned, secrets in matrices included, "+
			"can be read on the way; \"ctl fleet init\" makes certificates", "listen", cfg.Listen)
	}
	if opts.StoreDir == "" { // JetStream wants a folder even if every stream is in memory
		if s.scratch, err = os.MkdirTemp(cfg.Scratch, "lockstep-control-*"); err != nil {
			return nil, fmt.Errorf("start control plane: %w", err)
		}
		opts.StoreDir = s.scratch
	}
	if s.ns, err = server.NewServer(opts); err != nil {
		s.Close()
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	log := serverLog{log: s.cfg.Log, fatal: make(chan string, 1), broken: s.broken}
	s.ns.SetLoggerV2(log, false, false, false)
	s.ns.Start()
	if err := s.ready(ctx, log.fatal); err != nil {
		s.Close()
		return nil, err
	}
	select {
	case log.fatal <- "": // nobody reads it any more: what comes is logged
	default:
	}
	return s, nil
}

// baseOptions are those of the configuration file, if there is one, or ask for what Auth says.
func baseOptions(cfg ServerConfig) (*server.Options, error) {
	if cfg.Config == "" {
		if cfg.Auth.Creds != "" {
			return nil,
				errors.New("start control plane: a credentials file needs the users that it belongs to (--nats-config); without, an embedded one takes a user and password, or a token")
		}
		return &server.Options{Username: cfg.Auth.User, Password: cfg.Auth.Password, Authorization: cfg.Auth.Token}, nil
	}
	opts, err := server.ProcessConfigFile(cfg.Config)
	if err != nil {
		return nil, fmt.Errorf("start control plane: read %s: %w", cfg.Config, err)
	}
	return opts, nil
}

// closedClients is how many connections that are gone a server of ours remembers, for who looks at its monitoring:
// about 1 kB each, and 10,000 if it is not said.
const closedClients = 200

// Errors of what a server was asked to do.
var (
	// ErrAsked is wrapped by the error of a configuration that cannot be served, whatever the host is like.
	ErrAsked = errors.New("start control plane")
	// ErrOpen is wrapped by the error of listening without credentials: beyond loopback always, on loopback unless
	// ServerConfig.Open.
	ErrOpen = errors.New("credentials are required")
)

func serverOptions(cfg ServerConfig) (*server.Options, error) {
	opts, err := baseOptions(cfg)
	if err != nil {
		return nil, err
	}
	opts.ServerName = cmp.Or(opts.ServerName, "lockstep")
	opts.DontListen, opts.JetStream, opts.StoreDir = cfg.Listen == "", true, cfg.Dir
	opts.JetStreamMaxMemory = embeddedMemory + max(0, cfg.Record-recordBytes)*5/2
	opts.MaxPayload, opts.MaxPending, opts.MaxControlLine = MaxMessage, keys.MaxPending, keys.MaxControlLine
	opts.MaxConn, opts.MaxSubs = cmp.Or(opts.MaxConn, keys.MaxConnections), cmp.Or(opts.MaxSubs, keys.MaxSubscriptions)
	opts.MaxClosedClients = cmp.Or(opts.MaxClosedClients, closedClients)
	opts.SyncAlways, opts.SyncInterval = cfg.Dir != "" && cfg.Sync == 0, cfg.Sync
	opts.NoSigs, opts.NoLog, opts.LogFile, opts.DisableJetStreamBanner = true, true, "", true
	if cfg.Listen == "" {
		return opts, nil
	}
	host, port, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("%w: listen on %q: %w (write it like 127.0.0.1:4222)", ErrAsked, cfg.Listen, err)
	}
	if opts.Port, err = strconv.Atoi(port); err != nil || opts.Port < 0 || opts.Port > 65535 {
		return nil, fmt.Errorf("%w: listen on %q: the port is a number from 0 to 65535", ErrAsked, cfg.Listen)
	}
	opts.Host, opts.Port = host, cmp.Or(opts.Port, server.RANDOM_PORT)
	if !guarded(opts) && !(cfg.Open && loopback(host)) {
		return nil, fmt.Errorf("%w: listen on %q: %w", ErrAsked, cfg.Listen, ErrOpen)
	}
	return opts, nil
}

// guarded reports whether a server wants to know who connects.
func guarded(o *server.Options) bool {
	return o.Authorization != "" || o.Username != "" && o.Password != "" ||
		len(o.Users)+len(o.Nkeys)+len(o.TrustedOperators) > 0
}

// Reload reads the configuration file again: users, permissions, certificate. Users that are gone are disconnected, the
// others stay. A file with errors changes nothing and is an error; without one Reload does nothing.
func (s *Server) Reload() error {
	if s.cfg.Config == "" {
		return nil
	}
	opts, err := serverOptions(s.cfg)
	if err != nil {
		return err
	}
	opts.StoreDir = cmp.Or(opts.StoreDir, s.scratch)
	if err := s.ns.ReloadOptions(opts); err != nil {
		return fmt.Errorf("reload control plane: %w", err)
	}
	return nil
}

// loopback reports whether listening on host reaches this machine only. A name other than localhost may resolve to
// anything.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// ready waits for the server, at most startTimeout, and turns its failure to listen into an error.
func (s *Server) ready(ctx context.Context, fatal <-chan string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !s.ns.ReadyForConnections(20 * time.Millisecond) {
		select {
		case why := <-fatal:
			return fmt.Errorf("start control plane on %q: %s; end what listens there, or give another --listen",
				s.cfg.Listen, why)
		case <-ctx.Done():
			return fmt.Errorf("start control plane on %q: %w", s.cfg.Listen, ctx.Err())
		default:
		}
	}
	return nil
}

// Broken receives why the control plane cannot keep messages any more: its disk is full or fails. Nothing that it took
// is lost, and it continues when it is started again and there is room. It is for one reader.
func (s *Server) Broken() <-chan error { return s.broken }

// URL is where to Dial; empty without Listen.
func (s *Server) URL() string {
	if s.cfg.Listen == "" {
		return ""
	}
	return s.ns.ClientURL()
}

// Connect makes a connection within the process. The caller closes it; the server's Close does so, too.
func (s *Server) Connect(ctx context.Context) (*Conn, error) {
	auth := s.cfg.Auth
	auth.CA, auth.Cert, auth.Key = "", "", "" // no network between
	c, err := connect(ctx, "", auth, s.cfg.Listen == "" && !s.cfg.Shared, s.cfg.Dir != "", nats.InProcessServer(s.ns))
	if err != nil {
		return nil, fmt.Errorf("connect to the control plane of this process: %w", err)
	}
	c.LogTo(s.cfg.Log)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
	return c, nil
}

// Client connects a client within the process. The caller closes it; the server's Close does so, too.
func (s *Server) Client(ctx context.Context) (*Client, error) { return NewClient(ctx, s.Connect) }

// InProcessConn is a connection within the process for a plain client of NATS: see nats.InProcessServer.
func (s *Server) InProcessConn() (net.Conn, error) { return s.ns.InProcessConn() }

// Close ends the server and every connection to it, and waits until it is gone, for 10 s at most: a server whose
// storage is stuck never is, and goes with the process.
func (s *Server) Close() {
	s.mu.Lock()
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	if s.ns != nil {
		s.shut(func() { s.ns.Shutdown(); s.ns.WaitForShutdown() }, stopTimeout)
	}
	if s.scratch != "" {
		_ = os.RemoveAll(s.scratch) // a leftover in the temporary folder is no failure
	}
}

// shut calls shutdown, which returns when the server is gone, and leaves it alone when it does not in time.
func (s *Server) shut(shutdown func(), limit time.Duration) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		shutdown()
	}()
	select {
	case <-gone:
	case <-time.After(limit):
		s.cfg.Log.Error("the control plane does not end: leaving without it", "waited", limit)
	}
}

// serverLog passes the server's warnings and errors on; the rest says nothing about a run.
type serverLog struct {
	log    *slog.Logger
	fatal  chan string // the first reason for which the server cannot go on
	broken chan error  // the first reason for which it cannot keep messages
}

// unkept begin what the server says when it could not keep a message, and will not keep another one in that stream
// until it is started again: it says so nowhere else, and leaves who sent the message without an answer.
var unkept = []string{"JetStream failed to store a msg", "JetStream out of"}

func (l serverLog) Noticef(string, ...any) {}
func (l serverLog) Debugf(string, ...any)  {}
func (l serverLog) Tracef(string, ...any)  {}
func (l serverLog) Warnf(format string, v ...any) {
	l.log.Debug("control plane: " + fmt.Sprintf(format, v...))
}
func (l serverLog) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.log.Warn("control plane: " + text)
	if !slices.ContainsFunc(unkept, func(u string) bool { return strings.HasPrefix(text, u) }) {
		return
	}
	select {
	case l.broken <- errors.New(text):
	default:
	}
}

// Fatalf does not end the program, as the server's own logger would.
func (l serverLog) Fatalf(format string, v ...any) {
	select {
	case l.fatal <- fmt.Sprintf(format, v...): // the first is what ready returns
	default:
		l.log.Error("control plane: " + fmt.Sprintf(format, v...))
	}
}
