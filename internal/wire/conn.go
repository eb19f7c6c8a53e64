package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"lockstep/internal/plan"
)

// Conn is one peer's connection to the control plane. Safe for concurrent use.
type Conn struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	local    bool // the control plane lives and dies with this process, and has one follower
	files    bool // streams are kept on disk
	protocol int  // plan.Protocol, but for tests
	replicas int  // of streams that this peer makes; 0: not said

	recordLimit int64 // bytes that the streams of all runs may hold

	times   leaseTimes
	refused *denials
	holder  string // whose credentials are shown; empty: they do not say

	log      *slog.Logger
	relinked chan struct{} // holds something when a lost link is there again
	again    *lapses

	// queued and edited hold something when this peer, as the leader, has stored a message of the queue or a schedule.
	queued, edited chan struct{}
}

// signal has a channel hold something.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// lapses tells everybody who reads from a server that a lost link is there again: what they read may not be.
type lapses struct {
	mu   sync.Mutex
	next chan struct{} // closed and replaced
	last time.Time     // when a lost link was last there again; zero: none was lost
}

func (l *lapses) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = time.Now()
	close(l.next)
	l.next = make(chan struct{})
}

// within is a context that ends with ctx, or when a lost link is there again.
func (l *lapses) within(ctx context.Context) (context.Context, context.CancelFunc) {
	l.mu.Lock()
	next := l.next
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-next:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

const (
	connectTimeout = 5 * time.Second
	// storeTimeout is of one attempt, of everything that is asked of a server: of one that was killed no answer comes, and its clients' link is there again
	// long before a caller's own deadline.
	storeTimeout = 5 * time.Second
	retryWait    = 100 * time.Millisecond
)

// Dial connects to the control plane of a fleet. Lost links are opened again until Close.
func Dial(ctx context.Context, url string, auth Auth) (*Conn, error) {
	c, err := connect(ctx, url, auth, false, true)
	if errors.Is(err, nats.ErrNoServers) {
		err = errors.New("connection refused") // the library drops this error alone
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
	refused, relinked, again := &denials{}, make(chan struct{}, 1), &lapses{next: make(chan struct{})}
	shown, err := auth.options()
	if err != nil {
		return nil, err
	}
	opts := append([]nats.Option{nats.Name("lockstep"), nats.Timeout(timeout), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond),
		nats.ErrorHandler(refused.hear), nats.ReconnectHandler(func(*nats.Conn) {
			signal(relinked)
			again.tell()
		})}, more...)
	nc, err := nats.Connect(url, append(opts, shown...)...)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &Conn{nc: nc, js: js, local: local, files: files, protocol: plan.Protocol, times: usualTimes, recordLimit: recordBytes, refused: refused, holder: auth.holder(), log: slog.Default(),
		relinked: relinked, again: again, queued: make(chan struct{}, 1), edited: make(chan struct{}, 1)}, nil
}

// LogTo logs from now on when the link is lost, why it cannot be opened again, when it is there again, and what panics
// while a message is handled. It is called before anything else. A connection that is closed says nothing.
func (c *Conn) LogTo(log *slog.Logger) {
	c.log = log
	back, said := c.nc.ReconnectHandler(), "" // the last error; the library calls one handler at a time
	c.nc.SetReconnectHandler(func(nc *nats.Conn) {
		back(nc)
		said = ""
		log.Info("the link to the control plane is there again", "url", plan.Redact(nc.ConnectedUrl()))
	})
	c.nc.SetErrorHandler(func(nc *nats.Conn, s *nats.Subscription, err error) {
		c.refused.hear(nc, s, err)
		if err.Error() != said && !errors.Is(err, nats.ErrPermissionViolation) { // that ends a request
			said = err.Error()
			log.Warn("the link to the control plane reports an error", "error", err)
		}
	})
	c.nc.SetDisconnectErrHandler(func(nc *nats.Conn, err error) {
		if !nc.IsClosed() {
			log.Warn("the link to the control plane is lost; it is opened again", "error", err)
		}
	})
}

// Close ends the connection at once.
func (c *Conn) Close() { c.nc.Close() }

// Closed tells whether Close was called.
func (c *Conn) Closed() bool { return c.nc.IsClosed() }

// unlinked returns the reason for which the server closed the connection, if the server no longer accepts its
// credentials, and else err.
func (c *Conn) unlinked(err error) error {
	if last := c.nc.LastError(); c.Closed() && Unaccepted(last) {
		return fmt.Errorf("the control plane no longer accepts the credentials of %s (%w): copy the new key here "+
			"that \"ctl fleet rotate\" or \"ctl fleet agent\" made, and start again", cmp.Or(c.holder, "this program"), last)
	}
	return err
}

// Linked tells whether there is a link to the control plane at the moment.
func (c *Conn) Linked() bool { return c.nc.IsConnected() }

// Relinked receives when a link that was lost is there again. It is for one reader.
func (c *Conn) Relinked() <-chan struct{} { return c.relinked }

// Local tells whether the control plane lives and dies with this process.
func (c *Conn) Local() bool { return c.local }

// RTT measures the time to the control plane's server and back.
func (c *Conn) RTT(ctx context.Context) (time.Duration, error) {
	asked := time.Now()
	err := c.flush(ctx, 10*time.Second)
	return time.Since(asked), err
}

// LocalPort is the port of the control plane if that is on this host, else 0.
func (c *Conn) LocalPort() int {
	at, err := net.ResolveTCPAddr("tcp", c.nc.ConnectedAddr())
	if err != nil || at.IP == nil {
		return 0
	}
	if !at.IP.IsLoopback() {
		own, _ := net.InterfaceAddrs()
		if !slices.ContainsFunc(own, func(a net.Addr) bool { n, ok := a.(*net.IPNet); return ok && n.IP.Equal(at.IP) }) {
			return 0
		}
	}
	return at.Port
}

// store publishes a message and returns when it is stored; see put.
func (c *Conn) store(ctx context.Context, m *nats.Msg, id string, opts ...jetstream.PublishOpt) error {
	_, err := c.put(ctx, m, id, opts...)
	return err
}

// stream returns a stream. It waits for one that is not there until ctx ends: a server stores messages of a new stream before it finds the stream by
// its name, and a controller that is just starting makes one stream after another.
func (c *Conn) stream(ctx context.Context, name string) (jetstream.Stream, error) {
	for {
		s, err := c.js.Stream(ctx, name)
		if !errors.Is(err, jetstream.ErrStreamNotFound) || wait(ctx, retryWait) != nil {
			return s, err
		}
	}
}

// put publishes a message and returns its sequence number when it is stored. id makes it safe to try again while the
// control plane is away, lacks resources, or decides on another message of the same expectation, which put does until ctx
// ends. The error wraps ErrFull if the stream has reached its limit.
func (c *Conn) put(ctx context.Context, m *nats.Msg, id string, opts ...jetstream.PublishOpt) (uint64, error) {
	opts = append(opts, jetstream.WithMsgID(id), jetstream.WithRetryAttempts(0))
	for {
		Progress(ctx, storeTimeout)
		try, cancel := context.WithTimeout(ctx, storeTimeout)
		ack, err := c.js.PublishMsg(try, m, opts...)
		cancel()
		switch {
		case err == nil:
			return ack.Sequence, nil
		case streamFull(err):
			return 0, fmt.Errorf("store %s on the control plane: %w: %w", m.Subject, ErrFull, err)
		case final(err), errors.Is(err, nats.ErrMaxPayload), c.nc.IsClosed():
			return 0, fmt.Errorf("store %s on the control plane: %w", m.Subject, err)
		}
		if wait(ctx, retryWait) != nil {
			return 0, fmt.Errorf("store %s on the control plane: %w", m.Subject, errors.Join(context.Cause(ctx), err))
		}
	}
}

// unavailable is the code with which a cluster says that it has no leader for the moment.
const unavailable = 10008

// final reports whether the server refused a message for good.
func final(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && refused.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequenceConstant &&
		refused.ErrorCode != unavailable && !lacksResources(err)
}

// streamFull reports whether the server refused a message because its stream has reached its limit.
func streamFull(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && refused.ErrorCode == 10077 && strings.HasPrefix(refused.Description, "maximum ")
}

// lacksResources reports whether the server lacks memory or disk, its own or the account's.
func lacksResources(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && slices.Contains([]jetstream.ErrorCode{10002, 10023, 10028, 10047}, refused.ErrorCode)
}

// wait lets d pass, or returns ctx's error.
func wait(ctx context.Context, d time.Duration) error {
	Progress(ctx, d)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
