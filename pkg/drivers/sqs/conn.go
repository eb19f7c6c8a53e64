package sqs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"

	"lockstep/pkg/drivers/kit"
	"lockstep/pkg/drivers/requests"
)

// idleTimeout is the time after which unused connections are closed. It is shorter than any server's timeout, so that
// no server closes an idle connection, which could look like a break.
const idleTimeout = 10 * time.Second

// transport returns a transport that connects only by dial. It uses no proxy from the environment, and HTTP/1.1, the
// protocol of SQS.
func transport(dial kit.DialFunc, config *tls.Config) *http.Transport {
	return &http.Transport{
		DialContext: dial, DialTLSContext: kit.Dial(dial, config), DisableCompression: true, IdleConnTimeout: idleTimeout,
		MaxIdleConnsPerHost: 1000, ForceAttemptHTTP2: false,
	}
}

// link is the HTTP connections of one publisher or consumer, or of several that share them. Each concurrent request
// uses its own.
type link struct {
	requests.Link
	session *session
	client  *sqs.Client
	http    *http.Transport

	mu    sync.Mutex
	ended bool
	conns map[*conn]struct{}
}

// connect creates a link. Its requests open the connections.
func (s *session) connect() (*link, error) {
	l := &link{session: s, conns: map[*conn]struct{}{}}
	l.http = transport(func(ctx context.Context, network, address string) (net.Conn, error) {
		raw, err := s.env.Dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return l.watch(raw)
	}, s.tls)
	l.client = s.client(l.http, s.retryer())
	return l, nil
}

var errEnded = errors.New("the link was closed while it connected")

func (l *link) watch(raw net.Conn) (net.Conn, error) {
	c := &conn{Conn: raw, link: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		_ = raw.Close()
		return nil, errEnded
	}
	l.conns[c] = struct{}{}
	return c, nil
}

// Close closes all connections.
func (l *link) Close() {
	if first, _ := l.End(); !first {
		return
	}
	l.mu.Lock()
	l.ended = true
	all := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		all = append(all, c)
	}
	l.mu.Unlock()
	l.http.CloseIdleConnections()
	for _, c := range all {
		_ = c.Close()
	}
}

// retryer returns the SDK's default retryer, or one that makes a single attempt.
func (s *session) retryer() aws.Retryer {
	if s.options.Resilience == "none" {
		return aws.NopRetryer{}
	}
	return retry.NewStandard()
}

// countingRetryer is the SDK's default retryer. It reports each retry.
type countingRetryer struct {
	*retry.Standard
	retried func(requests int64) // may be nil
}

// RetryDelay implements aws.Retryer. It is called once before each retry.
func (r countingRetryer) RetryDelay(attempt int, err error) (time.Duration, error) {
	if r.retried != nil {
		r.retried(1)
	}
	return r.Standard.RetryDelay(attempt, err)
}

// conn breaks its link if a read fails, unless the SDK repeats the request over another connection. The orderly close of a connection by the server does not: HTTP then opens
// another one, and returns an error if that fails.
type conn struct {
	net.Conn
	link   *link
	closed atomic.Bool
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && err != io.EOF && !c.closed.Load() && c.link.session.options.Resilience == "none" {
		c.link.Broke(fmt.Errorf("connection to SQS: %w", err))
	}
	return n, err
}

func (c *conn) Close() error {
	c.closed.Store(true)
	c.link.mu.Lock()
	delete(c.link.conns, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}

// answered reports whether the error is an answer of the service. Any other error means that the link is broken.
func answered(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api)
}

// failedItself reports whether the service answered that it failed internally.
func failedItself(err error) bool {
	var response *awshttp.ResponseError
	return errors.As(err, &response) && response.HTTPStatusCode() >= http.StatusInternalServerError && !throttled(err)
}

// throttled reports whether the service rejected a request because of its rate.
func throttled(err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	_, is := retry.DefaultThrottleErrorCodes[api.ErrorCode()]
	return is || api.ErrorCode() == "OverLimit"
}

// explain adds a fix to answers of the service that lack one.
func explain(err error) error {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return kit.Explain(err)
	}
	switch api.ErrorCode() {
	case "AccessDenied", "AccessDeniedException":
		return fmt.Errorf("%w: allow these credentials sqs:* on queues named lockstep-*, and sqs:ListQueues", err)
	case "InvalidClientTokenId", "SignatureDoesNotMatch", "UnrecognizedClientException", "InvalidSignatureException",
		"ExpiredToken":
		return fmt.Errorf("%w: check accessKey, secret and region", err)
	}
	return err
}
