package sqs

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// bannerReader stores the Server header of the last answer.
type bannerReader struct {
	next http.RoundTripper
	mu   sync.Mutex
	read string
}

func (b *bannerReader) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.next.RoundTrip(r)
	if err == nil {
		b.mu.Lock()
		b.read = answer.Header.Get("Server")
		b.mu.Unlock()
	}
	return answer, err
}

// Describe reports the options and the Server header. SQS has no request for a version.
func (s *session) Describe(ctx context.Context) (drivers.Description, error) {
	b := &bannerReader{next: s.admin}
	_, err := s.client(b, aws.NopRetryer{}).GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("lockstep-is-there")})
	if err != nil && !missing(err) && !denied(err) {
		return drivers.Description{}, fmt.Errorf("describe SQS at %s: %w", s.options.address(), explain(err))
	}
	o := &s.options
	d := drivers.Description{Product: "Amazon SQS", Settings: map[string]string{
		"region": o.Region, "fifo": strconv.FormatBool(o.FIFO), "visibility": o.Visibility.String(), "wait_time": o.WaitTime.String(),
		"send_batch": strconv.Itoa(o.SendBatch), "encoding": "base64",
	}}
	for name, n := range map[string]*int{"requests": o.Requests, "receivers": o.Receivers, "deleters": o.Deleters} {
		if n != nil {
			d.Settings[name] = strconv.Itoa(*n)
		}
	}
	if o.WaitTime == 0 {
		d.Settings["poll_interval"] = o.PollInterval.String()
	}
	if o.FIFO {
		d.Settings["groups"] = strconv.Itoa(o.Groups)
		d.Settings["high_throughput"] = strconv.FormatBool(o.HighThroughput)
	}
	if o.Endpoint != "" && !strings.Contains(o.address(), ".amazonaws.com") && !strings.Contains(o.address(), ".api.aws") {
		d.Product, d.StandIn = "SQS-compatible server", "Amazon SQS"
		d.Settings["server"] = b.read
		d.Settings["durability"] = "unknown: the server at the endpoint does not report it"
	}
	return d, nil
}

// Probe returns the approximate depth of the task's queues. It fails if one queue cannot be read, because a partial sum
// would be wrong.
func (s *session) Probe(ctx context.Context) ([]drivers.Metric, error) {
	s.mu.Lock()
	names := slices.Clone(s.depths)
	s.mu.Unlock()
	if len(names) == 0 {
		return nil, nil
	}
	client := s.client(s.management, aws.NopRetryer{})
	var sum amounts
	for _, name := range names {
		s.mu.Lock()
		at, known := s.urls[name]
		s.mu.Unlock()
		if !known {
			found, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &name})
			if err != nil {
				return nil, fmt.Errorf("probe queue %s: %w", name, explain(err))
			}
			at = *found.QueueUrl
		}
		a, err := depth(ctx, client, &at)
		if err != nil {
			return nil, fmt.Errorf("probe queue %s: %w", name, explain(err))
		}
		sum.visible, sum.hidden, sum.delayed = sum.visible+a.visible, sum.hidden+a.hidden, sum.delayed+a.delayed
	}
	return []drivers.Metric{
		{Name: drivers.MetricQueues, Value: float64(len(names))},
		{Name: drivers.MetricQueueDepth, Value: sum.all()},
		{Name: drivers.MetricUnacked, Value: sum.hidden},
	}, nil
}
