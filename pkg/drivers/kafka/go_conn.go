package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/twmb/franz-go/pkg/kerr"
)

// goConn is one connection to one broker with kafka-go's protocol package. It is used by one goroutine, for one request
// at a time.
type goConn struct {
	*protocol.Conn
	timeout time.Duration
}

// goDial connects over the link, negotiates versions and authenticates. It fails when ctx ends.
func (s *session) goDial(ctx context.Context, l *link, address string) (*goConn, error) {
	raw, err := l.dial(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka at %s: %w", address, err)
	}
	c := &goConn{Conn: protocol.NewConn(raw, clientID), timeout: s.options.ConfirmTimeout.std()}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	err = c.checkAlive()
	if err == nil && s.sasl != nil {
		err = c.signIn(ctx, s.sasl, address)
	}
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("connect to Kafka at %s: %w", address, explain(err))
	}
	return c, nil
}

// ask sends a request, and waits for the answer if the request has one.
func (c *goConn) ask(request protocol.Message) (protocol.Message, error) {
	if err := c.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return nil, err
	}
	return c.RoundTrip(request)
}

// checkAlive requests the versions of requests that the broker supports. It also serves as a keep-alive.
func (c *goConn) checkAlive() error {
	answer, err := c.ask(&apiversions.Request{})
	if err != nil {
		return err
	}
	response := answer.(*apiversions.Response)
	if err := failure(response.ErrorCode, nil); err != nil {
		return fmt.Errorf("agree on versions: %w", err)
	}
	versions := make(map[protocol.ApiKey]int16, len(response.ApiKeys))
	for _, k := range response.ApiKeys {
		key := protocol.ApiKey(k.ApiKey)
		versions[key] = key.SelectVersion(k.MinVersion, k.MaxVersion)
	}
	c.SetVersions(versions)
	return nil
}

func (c *goConn) signIn(ctx context.Context, mechanism sasl.Mechanism, address string) error {
	answer, err := c.ask(&saslhandshake.Request{Mechanism: mechanism.Name()})
	if err != nil {
		return err
	}
	if err := failure(answer.(*saslhandshake.Response).ErrorCode, nil); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	machine, words, err := mechanism.Start(sasl.WithMetadata(ctx, &sasl.Metadata{Host: host, Port: number}))
	for done := false; err == nil && !done; {
		if answer, err = c.ask(&saslauthenticate.Request{AuthBytes: words}); err != nil {
			break
		}
		response := answer.(*saslauthenticate.Response)
		if err = failure(response.ErrorCode, &response.ErrorMessage); err == nil {
			done, words, err = machine.Next(ctx, response.AuthBytes)
		}
	}
	if errors.Is(err, io.EOF) {
		err = kerr.SaslAuthenticationFailed // brokers may close the connection after a failed authentication
	}
	return err
}
