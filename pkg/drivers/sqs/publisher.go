package sqs

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/requests"
)

// maxBytes is the maximum total size of the encoded bodies in one request. It is a limit of SQS.
const maxBytes = 1 << 20

// Publisher connects a publisher.
func (c *conn) Publisher(ctx context.Context, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	s := c.session
	at, err := c.find(ctx, spec.Topology, spec.Queue, spec.Mode != drivers.ConnectionPerMessageConfirm)
	if err != nil {
		return nil, fmt.Errorf("connect publisher: %w", err)
	}
	return requests.New(requests.Plan{
		Conn: c.Conn, Spec: spec,
		Lanes:         s.options.concurrent(s.options.Requests, spec.MaxInFlight, s.options.SendBatch),
		MaxPerRequest: s.options.SendBatch, Patience: s.options.ConfirmTimeout.Std(),
		Lane: func(waiting *drivers.Waiting) requests.Publish { return c.newSender(at, spec, waiting) },
	}), nil
}

// find returns the URL of a queue. With warm, it opens an HTTP connection by requesting the queue again. Otherwise the
// first request opens it.
func (c *conn) find(ctx context.Context, t drivers.Topology, queue int, warm bool) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	at, err := c.session.find(ctx, t, queue)
	if err != nil || !warm {
		return at, err
	}
	name := c.session.queueName(t, queue)
	if _, err := c.client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &name}); err != nil {
		c.session.forget(name, err)
		return "", fmt.Errorf("find queue %s at %s: %w", name, c.session.options.address(), explain(err))
	}
	return at, nil
}

// forget removes the stored URL of a queue if err means that the queue does not exist.
func (s *session) forget(name string, err error) {
	if missing(err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.urls, name)
	}
}

// sender sends the requests of one lane of a publisher.
type sender struct {
	client *sqs.Client
	queue  string // URL
	where  string // address, for errors
	counts func(*sqs.Options)
	single bool // use SendMessage instead of SendMessageBatch
	groups []string
	prefix string // prefix of deduplication IDs
	count  uint64

	buffer  []byte
	bodies  [maxPerRequest]string
	unique  [maxPerRequest]string
	entries [maxPerRequest]types.SendMessageBatchRequestEntry
}

// entryIDs are the IDs of the messages within a request.
var entryIDs = func() (all [maxPerRequest]string) {
	for i := range all {
		all[i] = strconv.Itoa(i)
	}
	return all
}()

func (c *conn) newSender(queue string, spec drivers.PublisherSpec, waiting *drivers.Waiting) requests.Publish {
	s := c.session
	single := spec.Mode == drivers.ConfirmEach || spec.Mode == drivers.ConnectionPerMessageConfirm
	n := &sender{client: c.client, queue: queue, where: s.options.address(), single: single}
	n.counts = func(o *sqs.Options) {
		o.HTTPClient = answers{o.HTTPClient, waiting}
		if c.sending != nil {
			o.Retryer = c.sending
		}
	}
	if s.options.FIFO {
		n.groups, n.prefix = make([]string, s.options.Groups), rand.Text()[:16]+"-"
	}
	return n.send
}

// send sends one request with as many messages as the service allows.
func (n *sender) send(ctx context.Context, batch []drivers.Message, verdicts []error) (int, error) {
	some := n.prepare(batch)
	if err := n.request(ctx, some, verdicts[:some]); err != nil {
		return 0, fmt.Errorf("send to SQS at %s: %w", n.where, err)
	}
	return some, nil
}

// prepare fills entries and returns the number of messages in them.
func (n *sender) prepare(batch []drivers.Message) int {
	size := 0
	for i := range min(len(batch), maxPerRequest) {
		m := &batch[i]
		size += base64.StdEncoding.EncodedLen(len(m.Body))
		if i > 0 && size > maxBytes {
			return i
		}
		n.buffer = base64.StdEncoding.AppendEncode(n.buffer[:0], m.Body)
		n.bodies[i] = string(n.buffer)
		n.entries[i] = types.SendMessageBatchRequestEntry{Id: &entryIDs[i], MessageBody: &n.bodies[i]}
		if n.groups != nil {
			n.entries[i].MessageGroupId = n.group(m.Key)
			n.count++
			n.unique[i] = n.prefix + strconv.FormatUint(n.count, 36)
			n.entries[i].MessageDeduplicationId = &n.unique[i]
		}
	}
	return min(len(batch), maxPerRequest)
}

// group returns the name of a key's message group, which is its number.
func (n *sender) group(key uint32) *string {
	at := &n.groups[key%uint32(len(n.groups))]
	if *at == "" {
		*at = strconv.FormatUint(uint64(key%uint32(len(n.groups))), 10)
	}
	return at
}

// request sends one request. It returns an error if there was no usable answer.
func (n *sender) request(ctx context.Context, some int, verdicts []error) error {
	if n.single {
		e := &n.entries[0]
		_, err := n.client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &n.queue, MessageBody: e.MessageBody,
			MessageGroupId: e.MessageGroupId, MessageDeduplicationId: e.MessageDeduplicationId}, n.counts)
		return n.refuse(err, verdicts)
	}
	answer, err := n.client.SendMessageBatch(ctx,
		&sqs.SendMessageBatchInput{QueueUrl: &n.queue, Entries: n.entries[:some]}, n.counts)
	if err != nil {
		return n.refuse(err, verdicts)
	}
	judge(answer, verdicts)
	return nil
}

// answers is an HTTP client that reports its calls as waiting. The SDK has encoded and signed the request before.
type answers struct {
	sqs.HTTPClient
	waiting *drivers.Waiting
}

func (a answers) Do(r *http.Request) (*http.Response, error) {
	a.waiting.Begin()
	defer a.waiting.End()
	return a.HTTPClient.Do(r)
}

// refuse sets the service's error as the verdict of every message of a request. If the service failed internally, it
// returns the error, because it is unknown whether the messages were stored.
func (n *sender) refuse(err error, verdicts []error) error {
	if err == nil || !answered(err) || failedItself(err) {
		return err
	}
	rejected := fmt.Errorf("%w: %w", drivers.ErrRejected, explain(err))
	for i := range verdicts {
		verdicts[i] = rejected
	}
	return nil
}

var errUnmentioned = fmt.Errorf("%w: the answer to its request does not mention it", drivers.ErrRejected)

// judge sets the verdict of each message from the answer to its request.
func judge(answer *sqs.SendMessageBatchOutput, verdicts []error) {
	for i := range verdicts {
		verdicts[i] = errUnmentioned
	}
	for i := range answer.Successful {
		if at, ok := entry(answer.Successful[i].Id, len(verdicts)); ok {
			verdicts[at] = nil
		}
	}
	for i := range answer.Failed {
		f := &answer.Failed[i]
		if at, ok := entry(f.Id, len(verdicts)); ok {
			verdicts[at] = fmt.Errorf("%w: %s: %s", drivers.ErrRejected, aws.ToString(f.Code), aws.ToString(f.Message))
		}
	}
}

// entry returns the index of a message from its ID within the request.
func entry(id *string, n int) (int, bool) {
	at, err := strconv.Atoi(aws.ToString(id))
	return at, err == nil && at >= 0 && at < n
}
