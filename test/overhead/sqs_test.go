package overhead

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"example.org/lockstep/lockstep/pkg/drivers"
	_ "example.org/lockstep/lockstep/pkg/drivers/sqs"
)

// sqsEndpoint names ElasticMQ, the stand-in for SQS.
const sqsEndpoint = "LOCKSTEP_SQS_ENDPOINT"

// BenchmarkSQS uses a standard queue. The bare loop sends text of the given size. The driver sends base64, which is a
// third larger: that is part of the overhead.
func BenchmarkSQS(b *testing.B) {
	endpoint := labAddress(b, sqsEndpoint, "elasticmq")
	o, err := json.Marshal(map[string]any{"endpoint": endpoint, "region": "elasticmq", "accessKey": "x", "secret": "x"})
	must(b, err)
	compare(b, subject{name: "sqs", options: o, pairs: 8, minMessages: 300,
		bare: func(b *testing.B, w work) sample { return bareSQS(b, endpoint, w) }})
}

// bareSQS has one client per side, like the engine.
func bareSQS(b *testing.B, endpoint string, w work) sample {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tasks++
	open := func() *sqs.Client {
		return sqs.New(sqs.Options{
			Region: "elasticmq", BaseEndpoint: &endpoint, Retryer: aws.NopRetryer{},
			HTTPClient:  &http.Client{Transport: &http.Transport{}},
			Credentials: aws.NewCredentialsCache(credentials.NewStaticCredentialsProvider("x", "x", "")),
		})
	}
	to, from := open(), open()
	made,
		err := to.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("lockstep-overhead-bare-" +
		strconv.Itoa(tasks))})
	must(b, err)
	at := made.QueueUrl
	defer func() {
		_, err := to.DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: at})
		must(b, err)
	}()
	// connects
	_,
		err = from.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("lockstep-overhead-bare-" +
		strconv.Itoa(tasks))})
	must(b, err)

	return timed(b, w, func() error { return receiveSQS(ctx, from, at, w.n) },
		func() error { return sendSQS(ctx, to, at, w) })
}

// receiveSQS receives up to ten messages at a time and deletes them singly.
func receiveSQS(ctx context.Context, from *sqs.Client, at *string, n int) error {
	for i := 0; i < n; {
		got, err := from.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: at, MaxNumberOfMessages: 10,
			WaitTimeSeconds:             1,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameApproximateReceiveCount}})
		if err != nil {
			return fmt.Errorf("the bare loop received %d of %d messages: %w", i, n, err)
		}
		for _, m := range got.Messages {
			if _, err := from.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: at,
				ReceiptHandle: m.ReceiptHandle}); err != nil {
				return err
			}
		}
		i += len(got.Messages)
	}
	return nil
}

// sendSQS sends ten messages at a time if the mode permits it.
func sendSQS(ctx context.Context, to *sqs.Client, at *string, w work) error {
	body := aws.String(strings.Repeat("x", w.size))
	for i := 0; i < w.n; {
		if w.mode == drivers.ConfirmEach {
			if _, err := to.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: at, MessageBody: body}); err != nil {
				return err
			}
			i++
			continue
		}
		var some []types.SendMessageBatchRequestEntry
		for k := range min(10, w.n-i) {
			some = append(some, types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(k)), MessageBody: body})
		}
		answer, err := to.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: at, Entries: some})
		if err != nil {
			return err
		}
		if len(answer.Failed) > 0 {
			return fmt.Errorf("%d messages were rejected", len(answer.Failed))
		}
		i += len(some)
	}
	return nil
}
