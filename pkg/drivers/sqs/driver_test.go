package sqs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// ElasticMQ is the stand-in for AWS. The visibility timeout is short, because one check waits for hidden messages of a
// broken connection. It is longer than a busy machine needs for a batch, to avoid redeliveries. Messages are in memory,
// so a restart would prove nothing about SQS.
func TestConformance(t *testing.T) {
	t.Run("standard", func(t *testing.T) { drivertest.Run(t, harness(standIn(t, `{"resilience": "none"}`), nil)) })
	t.Run("vendor", func(t *testing.T) {
		drivertest.Run(t, harness(standIn(t, `{}`), []string{"open/dead", "mode", "publish-blocks", "session-close", "cut"}))
	})
	t.Run("fifo", func(t *testing.T) { drivertest.Run(t, harness(standIn(t, fifo), grouped)) })
}

// While a request waits and all groups are hidden, ElasticMQ searches for messages without a pause. Even without waits,
// a shorter interval in eight concurrent checks uses most of two cores. There are enough groups for the 20 unanswered
// messages of ack/exact.
const fifo = `{"resilience": "none", "fifo": true, "groups": 32, "waitTime": "0s", "pollInterval": "100ms"}`

// grouped is the subset for ordered groups of messages: a group is hidden while one of its messages is.
var grouped = slices.Concat(drivertest.MessagePath(), []string{"close", "batch", "together", "handler-blocks", "cut"})

func TestConformanceLong(t *testing.T) {
	labtest.Long(t)
	drivertest.Run(t, harness(standIn(t, fifo), nil))
}

func harness(options json.RawMessage, subset []string) drivertest.Harness {
	fifo := bytes.Contains(options, []byte(`"fifo":true`))
	return drivertest.Harness{
		Driver: driver{}, Options: options, Subset: subset,
		DeadOptions: json.RawMessage(`{"endpoint": "http://127.0.0.1:1", "region": "nowhere", "accessKey": "x", "secret": "x"}`),
		DeadAddress: "127.0.0.1:1",
		Reject:      &drivertest.Rejection{Size: maxBytes/4*3 + 1},
		OneRequest:  fifo,
		Groups:      fifo,
		Existing: drivertest.Declared(driver{}, func(_ context.Context, s drivers.Session, t drivers.Topology,
			made *drivertest.Existing) error {
			made.Queue = s.(*session).queueName(t, 0)
			return nil
		}),
	}
}

// TestRightsForOneQueue opens a session with credentials that permit nothing but one queue, which has no rights to look
// for the queue of Open. A queue that is denied is an error with its name.
func TestRightsForOneQueue(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		if text, _ := io.ReadAll(r.Body); bytes.Contains(text, []byte(`"orders"`)) {
			_, _ = io.WriteString(w, `{"QueueUrl": "http://nowhere/orders"}`)
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"__type": "com.amazon.coral.service#AccessDeniedException", "message": "no"}`)
	}))
	defer server.Close()
	s := labtest.Open(t, driver{}, json.RawMessage(`{"endpoint": "`+server.URL+`", "region": "x", "accessKey": "x", "secret": "x"}`),
		labtest.Env(nil)).(*session)
	existing := labtest.Topology(func(topology *drivers.Topology) { topology.Existing = "orders" })
	if err := s.Verify(t.Context(), existing); err != nil {
		t.Error(err)
	}
	if d, err := s.Describe(t.Context()); err != nil || d.Product == "" {
		t.Errorf("described as %+v: %v", d, err)
	}
	existing.Existing = "invoices"
	if err := s.Verify(t.Context(), existing); !denied(err) || !strings.Contains(err.Error(), "invoices") {
		t.Errorf("a queue without rights: %v", err)
	}
}

// service responds to every request after 5 ms, and needs 3 ms to provide the credentials.
type service struct{}

func (service) Retrieve(context.Context) (aws.Credentials, error) {
	time.Sleep(3 * time.Millisecond)
	return aws.Credentials{AccessKeyID: "x", SecretAccessKey: "x"}, nil
}

func (service) Do(*http.Request) (*http.Response, error) {
	time.Sleep(5 * time.Millisecond)
	return &http.Response{StatusCode: http.StatusOK,
		Body: io.NopCloser(strings.NewReader(`{"Successful":[{"Id":"0"}]}`))}, nil
}

// TestTheSDKsWorkIsNotWaitedFor proves that only the wait for the response counts as waiting, not the SDK's work before
// the request.
func TestTheSDKsWorkIsNotWaitedFor(t *testing.T) {
	for _, mode := range []drivers.Mode{drivers.ConfirmEach, drivers.ConfirmBatch} {
		synctest.Test(t, func(t *testing.T) {
			client := sqs.New(sqs.Options{Region: "nowhere", BaseEndpoint: aws.String("http://nowhere"),
				Credentials: service{}, HTTPClient: service{},
				Retryer: aws.NopRetryer{}})
			var waiting drivers.Waiting
			send := (&conn{session: &session{}, client: client}).newSender("http://nowhere/queue",
				drivers.PublisherSpec{Mode: mode}, &waiting)
			began, verdicts := time.Now(), make([]error, 1)
			if n, err := send(t.Context(), []drivers.Message{{Body: []byte("x")}}, verdicts); n != 1 || err != nil ||
				verdicts[0] != nil {
				t.Fatalf("%s: %d, %v, %v", mode, n, err, verdicts[0])
			}
			if took, waited := time.Since(began), time.Duration(waiting.Nanos()); took != 8*time.Millisecond ||
				waited != 5*time.Millisecond {
				t.Errorf("%s: waited for %v of %v, want 5 of 8 ms", mode, waited, took)
			}
		})
	}
}

// failing answers every request with an internal error.
type failing struct{}

func (failing) Do(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusInternalServerError, Body: io.NopCloser(strings.NewReader(`{}`))}, nil
}

// The SDK limits the retries of all requests together, by a quota of 500 tokens, of which each retry costs 5.
func TestRetriesHaveAQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retried := int64(0)
		s := &session{env: drivers.Env{Retried: func(n int64) { retried += n }}}
		opened, err := s.Connect(t.Context(), drivers.ConnSpec{})
		if err != nil {
			t.Fatal(err)
		}
		c := opened.(*conn)
		c.client = sqs.New(sqs.Options{Region: "nowhere", BaseEndpoint: aws.String("http://nowhere"),
			Credentials: service{}, HTTPClient: failing{}})
		for range 3 {
			send := c.newSender("http://nowhere/queue", drivers.PublisherSpec{Mode: drivers.ConfirmEach}, &drivers.Waiting{})
			for range 100 {
				_, err := send(t.Context(), []drivers.Message{{Body: []byte("x")}}, make([]error, 1))
				if !failedItself(err) {
					t.Fatalf("the error is %v, want that of the service", err)
				}
			}
		}
		if want := int64(retry.DefaultRetryRateTokens / retry.DefaultRetryCost); retried != want {
			t.Errorf("%d retries of 300 messages, want %d", retried, want)
		}
	})
}

// slowConn blocks the goroutine that writes the body of a request until release is closed. The body has been sent.
type slowConn struct {
	net.Conn
	release chan struct{}
}

func (c slowConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if bytes.Contains(p, []byte("QueueUrl")) {
		<-c.release
	}
	return n, err
}

// A response that begins before net/http has finished its work on the request is received completely.
func TestResponseBeforeTheEndOfTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		release := make(chan struct{})
		go func() {
			defer close(release)
			r, err := http.ReadRequest(bufio.NewReader(far))
			if err == nil {
				_, err = io.ReadAll(r.Body)
			}
			if err != nil {
				t.Errorf("read the request: %v", err)
				return
			}
			body := `{"Messages":[]}`
			_, _ = fmt.Fprintf(far, "HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:8])
			synctest.Wait() // the SDK waits for the rest of the response
			release <- struct{}{}
			synctest.Wait() // net/http has finished its work on the request
			_, _ = io.WriteString(far, body[8:])
		}()
		dial := func(context.Context, string, string) (net.Conn, error) { return slowConn{near, release}, nil }
		over := transport(dial, nil)
		defer over.CloseIdleConnections()
		s := &session{options: options{Endpoint: "http://nowhere"},
			config: aws.Config{Region: "nowhere", Credentials: service{}}}
		at := "http://nowhere/queue"
		_, err := s.client(over, aws.NopRetryer{}).ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &at})
		if err != nil {
			t.Error(err)
		}
		_ = far.Close()
	})
}

// TestTLS reaches the stand-in through a proxy, because it has no TLS.
func TestTLS(t *testing.T) {
	files := drivertest.NewCertificates(t)
	address := strings.TrimPrefix(lab.Variable(t, "LOCKSTEP_SQS_ENDPOINT"), "http://")
	drivertest.Run(t, drivertest.Harness{Driver: driver{}, Subset: []string{"tls"}, TLS: &drivertest.TLS{
		Options: standIn(t, `{"endpoint": "https://`+drivertest.TLSProxy(t, files, address)+`"}`), Certificates: files}})
}
