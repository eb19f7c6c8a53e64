package wire

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire/keys"
	"example.org/lockstep/lockstep/internal/wire/subject"
)

// Conn is the connection of one peer to the control plane. It sends and answers requests, and reconnects after a lost
// link. Client, Agent and Store are the uses of a connection. Safe for concurrent use.
type Conn struct {
	nc    *nats.Conn
	codec codec
	local bool // the control plane ends with this process and has one follower
	files bool // streams are stored on disk

	requests sync.Map // the context.CancelCauseFunc of each waiting *nats.Msg
	holder   string   // user of the credentials; empty: unknown
	// unread returns the bytes that clients of the server in this process have not read yet; nil: another process.
	unread func() int64

	log      *slog.Logger
	links    atomic.Pointer[slog.Logger] // the log of links; nothing is logged before LogTo
	relinked chan struct{}               // has a value after a reconnect
	again    *reconnects
}

const (
	connectTimeout = 5 * time.Second
	// storeTimeout bounds one attempt of a request to a server. A server that was killed never answers.
	storeTimeout   = 5 * time.Second
	prepareTimeout = 10 * time.Second // of Store.Prepare
	retryWait      = 100 * time.Millisecond
)

// Dial connects to the control plane of a fleet. It restores lost links until Close is called.
func Dial(ctx context.Context, url string, auth Auth) (*Conn, error) {
	c, err := connect(ctx, url, auth, false, true)
	if errors.Is(err, nats.ErrNoServers) {
		err = errors.New("connection refused") // the library drops only this error
	}
	if err != nil {
		return nil, fmt.Errorf("connect to control plane %s: %w", plan.Redact(url), err)
	}
	return c, nil
}

func connect(ctx context.Context, url string, auth Auth, local, files bool, more ...nats.Option) (*Conn, error) {
	timeout := connectTimeout
	if at, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(at))
	}
	shown, err := auth.options()
	if err != nil {
		return nil, err
	}
	c := &Conn{local: local, files: files, holder: keys.Holder(auth.Creds), log: slog.Default(),
		relinked: make(chan struct{}, 1), again: &reconnects{}}
	c.again.report()
	c.links.Store(slog.New(slog.DiscardHandler))
	logged := "" // the last error; the library calls one handler at a time
	opts := append([]nats.Option{nats.Name("lockstep"), nats.Timeout(timeout), nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				c.endRefused(err)
			} else if err.Error() != logged {
				logged = err.Error()
				c.links.Load().Warn("error on the connection to the control plane", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			signal(c.relinked)
			c.again.report()
			logged = ""
			c.links.Load().Info("reconnected to the control plane", "url", plan.Redact(nc.ConnectedUrl()))
		}),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if !nc.IsClosed() {
				c.links.Load().Warn("connection to the control plane lost; reconnecting", "error", err)
			}
		})}, more...)
	if c.nc, err = nats.Connect(url, append(opts, shown...)...); err != nil {
		return nil, err
	}
	c.codec = codec{protocol: plan.Protocol, maxPayload: c.nc.MaxPayload}
	return c, nil
}

// LogTo sets the log for lost and restored links, errors of links, and panics in message handlers. It must be called
// before any other use. A closed connection logs nothing.
func (c *Conn) LogTo(log *slog.Logger) {
	c.log = log
	c.links.Store(log)
}

// Close closes the connection at once.
func (c *Conn) Close() { c.nc.Close() }

// Closed reports whether the connection was closed, by Close or for good by the server.
func (c *Conn) Closed() bool { return c.nc.IsClosed() }

// unlinked returns err, or the reason if the server closed the connection as it does not accept the credentials.
func (c *Conn) unlinked(err error) error {
	if last := c.nc.LastError(); c.Closed() && Unaccepted(last) {
		return fmt.Errorf("the control plane no longer accepts the credentials of %s (%w); copy the new key of "+
			"\"ctl fleet rotate\" or \"ctl fleet add\" to this host, and restart", cmp.Or(c.holder, "this program"), last)
	}
	return err
}

// Linked reports whether the link to the control plane is up.
func (c *Conn) Linked() bool { return c.nc.IsConnected() }

// Relinked receives after a lost link was restored. It is for one reader.
func (c *Conn) Relinked() <-chan struct{} { return c.relinked }

// Local reports whether the control plane ends with this process.
func (c *Conn) Local() bool { return c.local }

// MaxEntry returns the maximum size of a message in a run's record, in bytes. It depends on the server.
func (c *Conn) MaxEntry() int { return c.codec.entryLimit() }

// RTT measures the round-trip time to the control plane's server.
func (c *Conn) RTT(ctx context.Context) (time.Duration, error) {
	begun := time.Now()
	err := c.flush(ctx, 10*time.Second)
	return time.Since(begun), err
}

// ask sends a request and returns its answer. It fails at once with errNotAllowed if the credentials do not allow it.
func (c *Conn) ask(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	c.requests.Store(m, end)
	defer c.requests.Delete(m)
	answer, err := c.nc.RequestMsgWithContext(ctx, m)
	if err != nil && errors.Is(context.Cause(ctx), errNotAllowed) {
		return nil, fmt.Errorf("send request on %s: %w", m.Subject, errNotAllowed)
	}
	return answer, err
}

// subscribe calls handle for each message on a subject, one at a time, until stop is called. It sends the answer that
// handle returns, or a refusal with the text of its error. If handle returns neither, it sends nothing. Messages beyond
// pending bytes that wait, and messages with large headers, are dropped: decoded headers take a multiple of their size.
func (c *Conn) subscribe(to string, pending int, handle func(m *nats.Msg) (answer *nats.Msg,
	err error)) (stop func(), err error) {
	sub, err := c.nc.Subscribe(to, func(m *nats.Msg) {
		if m.Size()-len(m.Data) > maxHeaders {
			return
		}
		var answer *nats.Msg
		err := Guard(c.log, m.Subject, func() (err error) { answer, err = handle(m); return err })
		if err != nil {
			answer = c.codec.refusal(m.Reply, err)
		}
		c.reply(m.Reply, answer)
	})
	if err == nil {
		err = sub.SetPendingLimits(nats.DefaultSubPendingMsgsLimit, pending)
	}
	if err == nil {
		err = c.flush(context.Background(), connectTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", to, err)
	}
	return func() { _ = sub.Unsubscribe() }, nil // fails only when the connection is closed
}

// reply sends an answer, if there is one. It replies only to inboxes, and to the subjects by which the server replaces
// inboxes of other accounts. A peer may name any reply subject, such as one of the JetStream API. The server would
// accept that reply with the controller's permissions. All replies of a controller must be sent here.
func (c *Conn) reply(inbox string, answer *nats.Msg) {
	if answer != nil && (strings.HasPrefix(inbox, subject.Inboxes) || strings.HasPrefix(inbox, subject.BorderReplies)) {
		_ = c.nc.PublishMsg(answer)
	}
}

// awaitReaders waits while clients of the server in this process have not read maxUnread bytes of answers, as these use
// memory of this process. The server disconnects a client that does not read for 10 s.
func (c *Conn) awaitReaders(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, slowTimeout)
	defer cancel()
	for c.unread != nil && c.unread() > maxUnread {
		if err := Wait(ctx, retryWait); err != nil {
			return err
		}
	}
	return nil
}

// flush waits until the server has received everything that was sent. nats.Conn.FlushTimeout is not used: its timers
// are shared by the whole process, and tests in virtual time cannot share timers.
func (c *Conn) flush(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.nc.FlushWithContext(ctx)
}

// signal puts a value into a channel, if the channel is empty.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// reconnects ends waits for answers that may be lost: after a restored link, and when a new leader is known.
type reconnects struct {
	mu   sync.Mutex
	next context.Context // ends, and is replaced, at each report
	end  context.CancelFunc
}

func (r *reconnects) report() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		r.end()
	}
	r.next, r.end = context.WithCancel(context.Background())
}

// within returns a context that ends with ctx, or at the next report.
func (r *reconnects) within(ctx context.Context) (context.Context, context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Either(ctx, r.next)
}

// Auth has the credentials for a control plane, and the authority that must have signed the server's certificate. At
// most one kind of credentials is used, in this order: creds file, token, user and password. The zero value has no
// credentials and trusts the authorities of the host.
type Auth struct {
	User, Password string
	Token          string
	Creds          string // path of the seed of an nkey ("ctl fleet init"), or of a NATS credentials file
	CA             string // path of the authority's certificates (PEM); empty: those of the host
	Cert, Key      string // paths of a client certificate and its key (PEM), for servers that require one
}

// Unaccepted reports whether an error of Dial means that the control plane does not accept the credentials.
func Unaccepted(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAuthRevoked)
}

// Check returns the errors of all files. Dial stops at the first one.
func (a Auth) Check() error {
	opts, err := a.options()
	for _, use := range opts {
		err = errors.Join(err, use(&nats.Options{}))
	}
	return err
}

func (a Auth) options() (opts []nats.Option, err error) {
	if a.CA != "" {
		opts = append(opts, nats.RootCAs(a.CA))
	}
	if (a.Cert == "") != (a.Key == "") {
		return nil, errors.New("only one of client certificate and key given; pass both")
	}
	if a.Cert != "" {
		opts = append(opts, nats.ClientCert(a.Cert, a.Key))
	}
	switch {
	case a.Creds != "":
		more, err := credentials(a.Creds)
		return append(opts, more...), err
	case a.Token != "":
		opts = append(opts, nats.Token(a.Token))
	case a.User != "":
		opts = append(opts, nats.UserInfo(a.User, a.Password))
	}
	return opts, nil
}

// credentials reads a file of either kind. A seed stays in memory; a NATS credentials file is read at every reconnect.
func credentials(path string) ([]nats.Option, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	defer clear(text)
	if bytes.Contains(text, []byte("NATS USER JWT")) {
		return []nats.Option{nats.UserCredentials(path)}, nil
	}
	pair, err := nkeys.ParseDecoratedUserNKey(text)
	key := ""
	if err == nil {
		key, err = pair.PublicKey()
	}
	if err != nil {
		return nil, fmt.Errorf("read credentials %s: neither an nkey seed nor a NATS credentials file: %w", path, err)
	}
	return []nats.Option{nats.Nkey(key, pair.Sign), nats.CustomInboxPrefix(keys.InboxPrefix(key))}, nil
}

// errNotAllowed means that the credentials do not allow a request. It wraps nats.ErrPermissionViolation.
var errNotAllowed = fmt.Errorf("the credentials of this program do not allow this: %w", nats.ErrPermissionViolation)

// endRefused ends the waiting requests that a permission error of the server names. The server sends no answer to them.
func (c *Conn) endRefused(err error) {
	c.requests.Range(func(m, end any) bool {
		if strings.Contains(err.Error(), strconv.Quote(m.(*nats.Msg).Subject)) {
			end.(context.CancelCauseFunc)(errNotAllowed)
		}
		return true
	})
}
