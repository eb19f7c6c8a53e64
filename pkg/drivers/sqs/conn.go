package sqs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
	"example.org/lockstep/lockstep/pkg/drivers/requests"
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

// readBody sends requests whose bodies net/http reads with Read. It writes a body to the connection, and then checks
// that there is no more. The response can arrive between the two. The SDK then closes the body, and WriteTo of its
// bodies returns io.EOF (smithy-go 1.28). For net/http this is an error: it closes the connection, and the rest of the
// response is lost. Read returns io.EOF, too, as it must at the end.
type readBody struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (r readBody) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Body != nil && request.Body != http.NoBody {
		request = request.WithContext(request.Context()) // a copy: a RoundTripper must not change its request
		request.Body = struct{ io.ReadCloser }{request.Body}
	}
	return r.RoundTripper.RoundTrip(request)
}

// conn is the HTTP connections of several publishers or consumers. Each concurrent request uses its own.
type conn struct {
	*requests.Conn
	session *session
	client  *sqs.Client
	http    *http.Transport
	sending aws.Retryer // of requests that send messages; nil: that of client
}

// Connect makes a connection. Its requests open the HTTP connections.
func (s *session) Connect(ctx context.Context, _ drivers.ConnSpec) (drivers.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &conn{Conn: requests.NewConn(), session: s}
	c.http = transport(func(ctx context.Context, network, address string) (net.Conn, error) {
		// In confirm-window, Publish does not wait for writes. In other modes, the whole request counts as waiting.
		raw, err := s.env.Dial(drivers.WithWaiting(ctx, nil), network, address)
		if err != nil {
			return nil, err
		}
		return &wire{Conn: raw, of: c}, nil
	}, s.tls)
	// The requests of a connection share one retryer, because it limits their retries together.
	retryer := s.retryer()
	c.client = s.client(c.http, retryer)
	if standard, is := retryer.(*retry.Standard); is {
		c.sending = countingRetryer{standard, s.env.Retried}
	}
	if err := s.conns.Add(c); err != nil {
		return nil, fmt.Errorf("connect to SQS at %s: %w", s.options.address(), err)
	}
	return c, nil
}

// Node returns "": HTTP connections may lead to several servers.
func (c *conn) Node() string { return "" }

// Close closes all connections. The end of the context closes those of running requests.
func (c *conn) Close() error {
	c.End()
	c.session.conns.Remove(c)
	c.http.CloseIdleConnections()
	return nil
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
	retried func(requests int64)
}

// RetryDelay implements aws.Retryer. It is called once before each retry.
func (r countingRetryer) RetryDelay(attempt int, err error) (time.Duration, error) {
	r.retried(1)
	return r.Standard.RetryDelay(attempt, err)
}

// wire breaks its conn if a read fails, unless the SDK repeats the request over another connection. The orderly close
// of a connection by the server does not: HTTP then opens another one, and returns an error if that fails.
type wire struct {
	net.Conn
	of     *conn
	closed atomic.Bool
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil && err != io.EOF && !w.closed.Load() && w.of.session.options.Resilience == "none" {
		w.of.Broke(fmt.Errorf("connection to SQS: %w", err))
	}
	return n, err
}

func (w *wire) Close() error {
	w.closed.Store(true)
	return w.Conn.Close()
}

// answered reports whether the error is an answer of the service. Any other error means that the connection is
// broken.
func answered(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api)
}

// failedItself reports whether the service answered that it failed internally.
func failedItself(err error) bool {
	var response *awshttp.ResponseError
	return errors.As(err, &response) && response.HTTPStatusCode() >= http.StatusInternalServerError && !throttled(err)
}

// code returns the error code of an answer of the service, otherwise "".
func code(err error) string {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return ""
	}
	return api.ErrorCode()
}

// throttled reports whether the service rejected a request because of its rate.
func throttled(err error) bool {
	_, is := retry.DefaultThrottleErrorCodes[code(err)]
	return is || code(err) == "OverLimit"
}

// denied reports whether the service rejected a request because the credentials, which are correct, do not permit it.
func denied(err error) bool {
	return code(err) == "AccessDenied" || code(err) == "AccessDeniedException"
}

// explain adds a fix to answers of the service that lack one.
func explain(err error) error {
	if !answered(err) {
		return kit.Explain(err)
	}
	switch code(err) {
	case "AccessDenied", "AccessDeniedException":
		return fmt.Errorf("%w: allow these credentials sqs:* on queues named lockstep-*, and sqs:ListQueues; for topology.existing, see its documentation", err)
	case "InvalidClientTokenId", "SignatureDoesNotMatch", "UnrecognizedClientException", "InvalidSignatureException",
		"ExpiredToken":
		return fmt.Errorf("%w: check accessKey, secret and region", err)
	}
	return err
}
