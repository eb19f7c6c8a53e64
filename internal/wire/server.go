package wire

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"example.org/lockstep/lockstep/internal/wire/keys"
)

// ServerConfig configures an embedded control plane.
type ServerConfig struct {
	Listen string // host:port to listen on; port 0: any free port; empty: only in-process connections
	Auth   Auth   // credentials of clients; required with Listen, unless Open. With Config: those of Connect
	Open   bool   // allows clients without credentials if Listen is a loopback address
	// Shared means that the control plane has several followers and outlives its clients, although it has no port.
	Shared bool
	// Config is the path of a NATS server configuration ("ctl fleet init") with users, permissions and certificate;
	// empty: none. Its settings for the address and the storage of streams are ignored.
	Config string
	// Record is the maximum size of the streams of runs in bytes, on a server without Dir, which reserves memory for
	// it; 0: the default.
	Record int64
	Dir    string // folder of the streams; empty: in memory, lost with the server
	// Sync is the interval at which Dir is synced to the disk; 0: before each message is acknowledged.
	Sync time.Duration
	// Scratch is the folder of the server's temporary folder if there is no Dir; empty: the system's.
	Scratch string
	Log     *slog.Logger // nil: nothing is logged
}

// Server is a control plane in this process. Safe for concurrent use.
type Server struct {
	ns      *server.Server
	users   *users // nil without a configuration file
	scratch string
	cfg     ServerConfig
	broken  chan error

	mu      sync.Mutex
	conns   []*Conn // made by Connect: without the server they would reconnect forever
	pending int64   // the result of unread at the time counted
	counted time.Time
}

// unreadAge is the interval at which the unread bytes of all clients are counted.
const unreadAge = 100 * time.Millisecond

const (
	embeddedMemory = 16 << 30 // bytes that the streams of an embedded server may reserve; used only as filled
	startTimeout   = 10 * time.Second
	stopTimeout    = 10 * time.Second // of the server
)

// Embedded starts a control plane in this process. Close ends it. ctx bounds only the start.
func Embedded(ctx context.Context, cfg ServerConfig) (*Server, error) {
	opts, err := serverOptions(cfg)
	if err != nil {
		return nil, err
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	s := &Server{cfg: cfg, broken: make(chan error, 1)}
	if !opts.DontListen && !loopback(opts.Host) && opts.TLSConfig == nil {
		s.cfg.Log.Warn("the control plane listens beyond loopback without TLS: assignments, with the secrets of matrices, "+
			"can be read on the network; create certificates with \"ctl fleet init\"", "listen", cfg.Listen)
	}
	if opts.StoreDir == "" { // JetStream needs a folder even if all streams are in memory
		if s.scratch, err = os.MkdirTemp(cfg.Scratch, "lockstep-control-*"); err != nil {
			return nil, fmt.Errorf("start control plane: %w", err)
		}
		opts.StoreDir = s.scratch
	}
	if cfg.Config != "" {
		s.users = newUsers(opts)
	}
	s.ns, err = server.NewServer(opts)
	if err == nil && s.users != nil {
		s.users.ns = s.ns
		err = s.users.set(s.ns, opts)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	log := serverLog{log: s.cfg.Log, fatal: make(chan string, 1), broken: s.broken}
	s.ns.SetLoggerV2(log, false, false, false)
	s.ns.Start()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !s.ns.ReadyForConnections(20 * time.Millisecond) {
		select {
		case why := <-log.fatal:
			err = fmt.Errorf("%s; stop the program that listens there, or pass another --listen", why)
		case <-ctx.Done():
			err = ctx.Err()
		default:
			continue
		}
		s.Close()
		return nil, fmt.Errorf("start control plane on %q: %w", cfg.Listen, err)
	}
	select {
	case log.fatal <- "": // nothing reads it any more: later errors are logged
	default:
	}
	return s, nil
}

// baseOptions returns the options of the configuration file, or, without one, options for the credentials in Auth.
func baseOptions(cfg ServerConfig) (*server.Options, error) {
	if cfg.Config == "" {
		if cfg.Auth.Creds != "" {
			return nil,
				errors.New("--creds without --nats-config; pass --nats-config, or use a user and password or a token")
		}
		return &server.Options{Username: cfg.Auth.User, Password: cfg.Auth.Password, Authorization: cfg.Auth.Token}, nil
	}
	opts, err := server.ProcessConfigFile(cfg.Config)
	if err == nil {
		err = allKeyed(opts)
	}
	return opts, wrap(err, "read %s", cfg.Config)
}

// closedClients is the number of closed connections, of 1 kB each, that a server keeps (the library's default: 10,000).
const closedClients = 200

// Errors of invalid configurations.
var (
	// ErrAsked is wrapped by the error of a configuration that is invalid on every host.
	ErrAsked = errors.New("start control plane")
	// ErrOpen is wrapped by the error of listening without credentials. See ServerConfig.Open.
	ErrOpen = errors.New("credentials are required")
)

func serverOptions(cfg ServerConfig) (*server.Options, error) {
	opts, err := baseOptions(cfg)
	if err != nil {
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	opts.ServerName = cmp.Or(opts.ServerName, "lockstep")
	opts.DontListen, opts.JetStream, opts.StoreDir = cfg.Listen == "", true, cfg.Dir
	opts.JetStreamMaxMemory = embeddedMemory + max(0, cfg.Record-recordBytes)*5/2
	opts.MaxPayload, opts.MaxPending, opts.MaxControlLine = MaxMessage, keys.MaxPending, keys.MaxControlLine
	opts.MaxConn, opts.MaxSubs = cmp.Or(opts.MaxConn, keys.MaxConnections), cmp.Or(opts.MaxSubs, keys.MaxSubscriptions)
	opts.AuthTimeout = cmp.Or(opts.AuthTimeout, keys.AuthTimeout)
	opts.MaxClosedClients = cmp.Or(opts.MaxClosedClients, closedClients)
	opts.SyncAlways, opts.SyncInterval = cfg.Dir != "" && cfg.Sync == 0, cfg.Sync
	opts.NoSigs, opts.NoLog, opts.LogFile, opts.DisableJetStreamBanner = true, true, "", true
	if cfg.Listen == "" {
		return opts, nil
	}
	host, port, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("%w: listen on %q: %w; use HOST:PORT, such as 127.0.0.1:4222", ErrAsked, cfg.Listen, err)
	}
	if opts.Port, err = strconv.Atoi(port); err != nil || opts.Port < 0 || opts.Port > 65535 {
		return nil, fmt.Errorf("%w: listen on %q: invalid port; use a number from 0 to 65535", ErrAsked, cfg.Listen)
	}
	opts.Host, opts.Port = host, cmp.Or(opts.Port, server.RANDOM_PORT)
	guarded := opts.Authorization != "" || opts.Username != "" && opts.Password != "" ||
		len(opts.Users)+len(opts.Nkeys)+len(opts.TrustedOperators) > 0
	if !guarded && !(cfg.Open && loopback(host)) {
		return nil, fmt.Errorf("%w: listen on %q: %w", ErrAsked, cfg.Listen, ErrOpen)
	}
	return opts, nil
}

// Reload reads the users, their permissions and the certificate from the configuration file again. Removed and changed
// users are disconnected, others are not. An invalid file is an error and changes nothing.
func (s *Server) Reload() error {
	if s.users == nil {
		return nil
	}
	opts, err := baseOptions(s.cfg)
	if err == nil {
		err = s.users.replace(s.ns, opts)
	}
	return wrap(err, "load users of the control plane")
}

// loopback reports whether an address reaches only this host. Names other than localhost may resolve to any address.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Broken receives the reason if the control plane can no longer store messages, as its disk is full or fails.
// Acknowledged messages are not lost. A restart repairs it when there is space again. It is for one reader.
func (s *Server) Broken() <-chan error { return s.broken }

// URL returns the address for Dial; empty without Listen.
func (s *Server) URL() string {
	if s.cfg.Listen == "" {
		return ""
	}
	return s.ns.ClientURL()
}

// Connect returns a connection within the process. The caller closes it; Server.Close also does.
func (s *Server) Connect(ctx context.Context) (*Conn, error) {
	auth := s.cfg.Auth
	auth.CA, auth.Cert, auth.Key = "", "", "" // no network in between
	c, err := connect(ctx, "", auth, s.cfg.Listen == "" && !s.cfg.Shared, s.cfg.Dir != "", nats.InProcessServer(s.ns))
	if err != nil {
		return nil, fmt.Errorf("connect to the control plane of this process: %w", err)
	}
	c.LogTo(s.cfg.Log)
	if s.cfg.Listen != "" {
		c.unread = s.unread
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
	return c, nil
}

// unread returns the number of bytes that clients have not read yet, as of at most unreadAge ago.
func (s *Server) unread() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.counted) < unreadAge {
		return s.pending
	}
	s.counted, s.pending = time.Now(), 0
	z, err := s.ns.Connz(&server.ConnzOptions{Sort: server.ByPending, Limit: 256})
	if err == nil {
		for _, c := range z.Conns {
			s.pending += int64(c.Pending)
		}
	}
	return s.pending
}

// Client returns a client within the process. The caller closes it; Server.Close also does.
func (s *Server) Client(ctx context.Context) (*Client, error) { return NewClient(ctx, s.Connect) }

// InProcessConn returns a connection within the process for any NATS client: see nats.InProcessServer.
func (s *Server) InProcessConn() (net.Conn, error) { return s.ns.InProcessConn() }

// Close closes all connections and stops the server. It waits for at most 10 s, as a stuck server never stops.
func (s *Server) Close() {
	s.mu.Lock()
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	if s.ns != nil {
		s.shut(func() { s.ns.Shutdown(); s.ns.WaitForShutdown() })
	}
	if s.scratch != "" {
		_ = os.RemoveAll(s.scratch) // an error is ignored: it is a temporary folder
	}
}

// shut calls shutdown and waits for it, but no longer than stopTimeout.
func (s *Server) shut(shutdown func()) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		shutdown()
	}()
	select {
	case <-gone:
	case <-time.After(stopTimeout):
		s.cfg.Log.Error("the control plane does not stop; exiting without waiting for it", "waited", stopTimeout)
	}
}

// serverLog logs the server's warnings and errors, and drops other messages.
type serverLog struct {
	log    *slog.Logger
	fatal  chan string // the first reason why the server cannot start
	broken chan error  // the first reason why it cannot store messages
}

// unkept are the beginnings of errors that the server logs when it could not store a message. It then stores no further
// message in that stream until it is restarted. It reports this nowhere else, and the sender gets no answer.
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

// Fatalf reports the error. It does not end the process, unlike the server's own logger.
func (l serverLog) Fatalf(format string, v ...any) {
	select {
	case l.fatal <- fmt.Sprintf(format, v...): // Embedded returns the first one
	default:
		l.log.Error("control plane: " + fmt.Sprintf(format, v...))
	}
}

// users authenticate the connections of an embedded server with the users and the TLS settings of a NATS configuration
// file. They can be replaced while connections are in use. The library's reload cannot: requests fail meanwhile
// (https://github.com/nats-io/nats-server/issues/8499). Safe for concurrent use.
type users struct {
	byKey atomic.Pointer[map[string]*server.NkeyUser]
	tls   atomic.Pointer[tls.Config]
	ns    *server.Server // set before it starts
}

// allKeyed returns an error if a configuration has no users, or users that authenticate with anything else than an
// nkey. Without users, a reload would disconnect everyone, the controller included.
func allKeyed(opts *server.Options) error {
	if len(opts.Users)+len(opts.TrustedOperators) > 0 || opts.Username != "" || opts.Authorization != "" ||
		opts.NoAuthUser != "" || opts.AuthCallout != nil {
		return errors.New("a user has no nkey; remove it, and create users with \"ctl fleet\"")
	}
	if len(opts.Nkeys) == 0 {
		return errors.New("there are no users; create them with \"ctl fleet init\"")
	}
	for _, user := range opts.Nkeys {
		if len(user.AllowedConnectionTypes) > 0 {
			return fmt.Errorf("allowed_connection_types is not supported (user %s); remove it", user.Nkey)
		}
	}
	return nil
}

// newUsers makes a server with the options of a configuration file authenticate with users; none before set.
func newUsers(opts *server.Options) *users {
	u := &users{}
	u.byKey.Store(&map[string]*server.NkeyUser{})
	opts.CustomClientAuthentication, opts.AlwaysEnableNonce = u, true
	if opts.TLSConfig != nil {
		u.tls.Store(opts.TLSConfig)
		opts.TLSConfig = opts.TLSConfig.Clone()
		opts.TLSConfig.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return u.tls.Load(), nil }
	}
	return u
}

// set replaces all users by those of opts. An error changes nothing.
func (u *users) set(ns *server.Server, opts *server.Options) error {
	byKey := make(map[string]*server.NkeyUser, len(opts.Nkeys))
	for _, user := range opts.Nkeys {
		if user.Account != nil {
			account, err := ns.LookupAccount(user.Account.GetName())
			if err != nil {
				return fmt.Errorf("the account %s is new; restart the controller", user.Account.GetName())
			}
			user.Account = account // until now that of the options
		}
		byKey[user.Nkey] = user
	}
	u.byKey.Store(&byKey)
	return nil
}

// Check implements server.Authentication: a client must have signed the server's nonce with the key of a user. An agent
// with too many connections is refused.
func (u *users) Check(c server.ClientAuthentication) bool {
	offered := c.GetOpts()
	user := (*u.byKey.Load())[offered.Nkey]
	if user == nil || c.Kind() != server.CLIENT {
		return false
	}
	key, err := nkeys.FromPublicKey(user.Nkey)
	if err != nil {
		return false
	}
	signature, err := base64.RawURLEncoding.DecodeString(offered.Sig)
	if err != nil || key.Verify(c.GetNonce(), signature) != nil {
		return false
	}
	if user.Account != nil && user.Account.GetName() == keys.AgentsAccount {
		open, err := u.ns.Connz(&server.ConnzOptions{Username: true, User: user.Nkey, Account: keys.AgentsAccount,
			Limit: keys.MaxAgentConnections})
		if err != nil || len(open.Conns) == keys.MaxAgentConnections {
			return false
		}
	}
	c.RegisterUser(&server.User{Permissions: user.Permissions, Account: user.Account})
	return true
}

// replace sets the users and TLS settings of new options, and disconnects all connections of users that were removed or
// changed. An error changes nothing, unless the list of connections cannot be read.
func (u *users) replace(ns *server.Server, opts *server.Options) error {
	if (opts.TLSConfig == nil) != (u.tls.Load() == nil) {
		return errors.New("TLS was added or removed; restart the controller")
	}
	before := *u.byKey.Load()
	if err := u.set(ns, opts); err != nil {
		return err
	}
	u.tls.Store(opts.TLSConfig)
	now := *u.byKey.Load()
	connections, err := ns.Connz(&server.ConnzOptions{Username: true, Limit: keys.MaxConnections})
	if err != nil {
		return err
	}
	for _, c := range connections.Conns {
		was, is := before[c.AuthorizedUser], now[c.AuthorizedUser]
		if was != nil && (is == nil || is.Account != was.Account || !reflect.DeepEqual(is.Permissions, was.Permissions)) {
			_ = ns.DisconnectClientByID(c.Cid) // an error means that it left
		}
	}
	return nil
}
