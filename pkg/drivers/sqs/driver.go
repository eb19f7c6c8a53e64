// Package sqs drives Amazon SQS, and compatible servers, with the AWS SDK.
package sqs

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

func init() { drivers.Register(driver{}) }

type driver struct{}

// Open prepares a session and requests a queue that does not exist, so that an unreachable server or wrong credentials
// are reported immediately.
func (driver) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	o, err := kit.Decode[options]("sqs", raw)
	if err != nil {
		return nil, err
	}
	s := &session{options: o, env: env, urls: map[string]string{}}
	if s.tls, err = o.TLS.Config(env.Access); err != nil {
		return nil, fmt.Errorf("read sqs options: %w", err)
	}
	s.admin, s.management = transport(env.Dial, s.tls), transport(env.ManagementDialer(), s.tls)
	if err := s.configure(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	_, err = s.client(s.admin, aws.NopRetryer{}).GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("lockstep-is-there")})
	if missing(err) || denied(err) || err == nil { // a user of existing queues may have no right to others
		return s, nil
	}
	_ = s.Close()
	return nil, fmt.Errorf("connect to SQS at %s: %w", s.options.address(), explain(err))
}

// session is one agent's use of a service during one task.
type session struct {
	options    options
	env        drivers.Env
	config     aws.Config
	admin      *http.Transport // for declarations
	management *http.Transport // for probes, and for finding credentials
	tls        *tls.Config
	conns      kit.Conns

	mu     sync.Mutex
	urls   map[string]string // URLs of queues, by name
	depths []string          // names of the task's queues, for Probe
}

var _ interface {
	drivers.Describer
	drivers.Prober
	drivers.Cleaner
	drivers.Verifier
} = (*session)(nil)

// configure finds the credentials and the region that the options do not contain.
func (s *session) configure(ctx context.Context) error {
	o := &s.options
	if o.AccessKey != "" {
		s.config = aws.Config{Region: o.Region, Credentials: aws.NewCredentialsCache(
			credentials.NewStaticCredentialsProvider(o.AccessKey, o.Secret, o.SessionToken))}
		return nil
	}
	if err := s.env.Access.CloudIdentity(); err != nil {
		return fmt.Errorf("look for AWS credentials: %w", err)
	}
	client := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.DialContext,
			t.Proxy = s.management.DialContext, nil
	})
	found, err := config.LoadDefaultConfig(ctx, config.WithRegion(o.Region), config.WithHTTPClient(client))
	if err != nil {
		return fmt.Errorf("look for AWS credentials: %w", err)
	}
	if found.Region == "" {
		return errors.New("look for AWS credentials: there is no region: give options region, or set AWS_REGION on the agent's host")
	}
	o.Region = found.Region
	if with, is := found.HTTPClient.(*awshttp.BuildableClient); is && o.TLS == nil { // it has AWS_CA_BUNDLE
		s.tls = with.GetTransport().TLSClientConfig
		s.admin, s.management = transport(s.env.Dial, s.tls), transport(s.env.ManagementDialer(), s.tls)
	}
	s.config = aws.Config{Region: found.Region, Credentials: found.Credentials}
	return nil
}

// client returns a client that uses one transport, and makes one attempt per request unless there is a retryer.
// net/http repeats a request only if it has not begun to write it.
func (s *session) client(by http.RoundTripper, retryer aws.Retryer) *sqs.Client {
	return sqs.NewFromConfig(s.config, func(o *sqs.Options) {
		o.HTTPClient, o.Retryer = &http.Client{Transport: readBody{by}}, retryer
		o.AppID = "lockstep"
		if s.options.Endpoint != "" {
			o.BaseEndpoint = aws.String(s.options.Endpoint)
		}
	})
}

// Close closes all connections. Requests that wait for an answer fail.
func (s *session) Close() error {
	s.conns.Close()
	s.admin.CloseIdleConnections()
	s.management.CloseIdleConnections()
	return nil
}

// missing reports whether the error means that a queue does not exist.
func missing(err error) bool {
	var gone *types.QueueDoesNotExist
	return errors.As(err, &gone)
}
