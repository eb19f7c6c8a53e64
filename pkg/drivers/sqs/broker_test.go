package sqs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// meddler is a proxy in front of ElasticMQ, which never fails. It responds to some requests, or some messages of a
// request, itself.
type meddler struct {
	t        *testing.T
	upstream string
	// refuse reports which entries of a request are rejected; nil: none.
	refuse func(action string, id string) bool
	// answer returns the status and code with which a whole request is rejected; 0: it is forwarded.
	answer func(action string, nth int) (status int, code string)
	// together are the numbers of messages, by action, that must be in requests at the same time before the first of
	// these requests is forwarded.
	together map[string]int

	mu       sync.Mutex
	seen     map[string][]int // number of entries of the requests, by action
	held     map[string]int   // messages of the requests that arrived, by action
	complete map[string]chan struct{}
	created  map[string]any // attributes of the last CreateQueue
}

// meddle returns options that use a meddler.
func meddle(t *testing.T, more string) (*meddler, json.RawMessage) {
	t.Helper()
	m := &meddler{t: t, upstream: lab.Variable(t, "LOCKSTEP_SQS_ENDPOINT"), seen: map[string][]int{},
		held: map[string]int{}, complete: map[string]chan struct{}{}}
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)
	var o map[string]any
	if err := json.Unmarshal(standIn(t, more), &o); err != nil {
		t.Fatal(err)
	}
	o["endpoint"] = s.URL
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return m, text
}

func (m *meddler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		m.t.Error(err)
		return
	}
	action := r.Header.Get("X-Amz-Target")[len("AmazonSQS."):]
	var request map[string]any
	if err := json.Unmarshal(body, &request); err != nil {
		m.t.Error(err)
		return
	}
	entries, _ := request["Entries"].([]any)
	m.mu.Lock()
	m.seen[action] = append(m.seen[action], len(entries))
	nth := len(m.seen[action])
	m.mu.Unlock()
	if m.answer != nil {
		if status, code := m.answer(action, nth); status > 0 {
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"__type": "com.amazonaws.sqs#%s", "message": "the meddler says so"}`, code)
			return
		}
	}
	var failed []any
	if m.refuse != nil {
		request["Entries"] = slices.DeleteFunc(entries, func(e any) bool {
			id := e.(map[string]any)["Id"].(string)
			if m.refuse(action, id) {
				failed = append(failed, map[string]any{"Id": id, "Code": "Meddled", "Message": "not this one",
					"SenderFault": false})
				return true
			}
			return false
		})
		if len(failed) > 0 {
			body, _ = json.Marshal(request)
		}
	}
	if action == "CreateQueue" {
		m.created, _ = request["Attributes"].(map[string]any)
	}
	if n, is := request["MaxNumberOfMessages"].(float64); is {
		m.hold(action, int(n))
	} else {
		m.hold(action, max(1, len(entries)))
	}
	m.forward(w, r, body, failed)
}

// hold waits until requests with enough messages have arrived.
func (m *meddler) hold(action string, messages int) {
	m.mu.Lock()
	if m.complete[action] == nil {
		m.complete[action] = make(chan struct{})
	}
	complete, before := m.complete[action], m.held[action]
	m.held[action] += messages
	if before < m.together[action] && m.held[action] >= m.together[action] {
		close(complete)
	}
	wait := m.held[action] < m.together[action]
	m.mu.Unlock()
	if !wait {
		return
	}
	select {
	case <-complete:
	case <-time.After(labtest.Wait):
		m.t.Errorf("%s: %d messages at the same time, want %d", action, m.held[action], m.together[action])
	}
}

func (m *meddler) forward(w http.ResponseWriter, r *http.Request, body []byte, failed []any) {
	on, err := http.NewRequestWithContext(r.Context(), r.Method, m.upstream, bytes.NewReader(body))
	if err != nil {
		m.t.Error(err)
		return
	}
	on.Header = r.Header.Clone()
	answer, err := http.DefaultClient.Do(on)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway) // fails if the client has disconnected
		return
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return
	}
	if len(failed) > 0 {
		var said map[string]any
		if err := json.Unmarshal(text, &said); err != nil {
			m.t.Error(err)
			return
		}
		said["Failed"] = failed
		text, _ = json.Marshal(said)
	}
	w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
	w.WriteHeader(answer.StatusCode)
	_, _ = w.Write(text)
}

func (m *meddler) requests(action string) []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.seen[action])
}

// account records the fate of messages.
type account struct {
	mu       sync.Mutex
	confirms map[uint64]error
	received []string
	conns    []*conn
}

func (a *account) publisher(r *rig, spec drivers.PublisherSpec) drivers.Publisher {
	a.confirms = map[uint64]error{}
	spec.Topology = r.topology
	spec.OnConfirms = func(tokens []uint64, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, token := range tokens {
			a.confirms[token] = err
		}
	}
	on := r.connect()
	a.conns = append(a.conns, on)
	p, err := on.Publisher(r.context(), spec)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = p.Close() })
	return p
}

// consuming is a consumer whose Close acknowledges what was handled.
type consuming struct {
	drivers.Consumer
	held int // not acknowledged yet
	once sync.Once
}

func (c *consuming) Close() error {
	c.once.Do(func() {
		c.Stop()
		c.Ack(c.held)
	})
	return c.Consumer.Close()
}

// consumer connects a consumer. It acknowledges every messages.
func (a *account) consumer(r *rig, spec drivers.ConsumerSpec, every int) drivers.Consumer {
	spec.Topology = r.topology
	c, ready, on := &consuming{}, make(chan struct{}), r.connect()
	a.conns = append(a.conns, on)
	var err error
	c.Consumer, err = on.Consumer(r.context(), spec, func(batch []drivers.Delivery) {
		<-ready
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, d := range batch {
			a.received = append(a.received, string(d.Body))
		}
		if c.held += len(batch); c.held >= every {
			c.Ack(c.held)
			c.held = 0
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	close(ready)
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// broken returns why a connection broke, or nil.
func (a *account) broken() error {
	var errs []error
	for _, on := range a.conns {
		errs = append(errs, on.Err())
	}
	return errors.Join(errs...)
}

func (a *account) receipts() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(slices.Values(a.received))
}

func send(t *testing.T, r *rig, p drivers.Publisher, n int) {
	t.Helper()
	for i := range n {
		if err := p.Publish(r.context(), drivers.Message{Token: uint64(i), Key: uint32(i),
			Body: fmt.Appendf(nil, "%02d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(r.context()); err != nil {
		t.Fatal(err)
	}
}

// The window and the prefetch are used by concurrent requests: the service answers none of them before all messages are
// in requests.
func TestLimitsAreFilled(t *testing.T) {
	for ack, deletes := range map[drivers.Ack]string{drivers.AckEach: "DeleteMessage", drivers.AckEvery: "DeleteMessageBatch"} {
		m, options := meddle(t, `{}`)
		m.together = map[string]int{"SendMessageBatch": 100, "ReceiveMessage": 100, deletes: 50}
		r := newRig(t, options, nil)
		a := &account{}
		p := a.publisher(r, drivers.PublisherSpec{Mode: drivers.ConfirmWindow, MaxInFlight: 100})
		send(t, r, p, 100)
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		c := a.consumer(r, drivers.ConsumerSpec{Batch: 10, Prefetch: 100, Ack: ack}, 10)
		labtest.Eventually(t, "100 messages", func() bool { return len(a.receipts()) == 100 })
		_ = c.Close()
		if err := a.broken(); err != nil {
			t.Errorf("%s: connections broke: %v", ack, err)
		}
		each, batches := len(m.requests("DeleteMessage")), len(m.requests("DeleteMessageBatch"))
		if ack == drivers.AckEach && (each != 100 || batches > 0) {
			t.Errorf("%d requests to delete one message, and %d to delete several, want 100 and none", each, batches)
		}
	}
}

// A FIFO queue has one request of each kind at a time by default, and the rate limits of its message groups.
func TestFIFOQueue(t *testing.T) {
	for _, c := range []struct {
		options string
		want    map[string]any
	}{
		{`{"fifo": true}`, map[string]any{"FifoQueue": "true", "VisibilityTimeout": "10",
			"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}},
		{`{"fifo": true, "highThroughput": false}`, map[string]any{"FifoQueue": "true", "VisibilityTimeout": "10"}},
		{`{}`, map[string]any{"VisibilityTimeout": "10"}},
	} {
		m, options := meddle(t, c.options)
		newRig(t, options, nil)
		if !maps.Equal(m.created, c.want) {
			t.Errorf("%s: created with %v, want %v", c.options, m.created, c.want)
		}
	}
	fifo, three := &options{FIFO: true}, 3
	if got := fifo.concurrent(nil, 1000, 10); got != 1 {
		t.Errorf("%d concurrent requests for a FIFO queue, want 1", got)
	}
	if got := fifo.concurrent(&three, 1000, 10); got != three {
		t.Errorf("%d concurrent requests for a FIFO queue, want the 3 of the option", got)
	}
}

// A batch of 25 is three requests. Exactly the messages that the service rejects are rejected.
func TestPartOfARequestIsRefused(t *testing.T) {
	m, options := meddle(t, `{}`)
	m.refuse = func(action, id string) bool { return action == "SendMessageBatch" && (id == "3" || id == "9") }
	r := newRig(t, options, nil)
	a := &account{}
	p := a.publisher(r, drivers.PublisherSpec{Mode: drivers.ConfirmBatch, Batch: 25})
	a.consumer(r, drivers.ConsumerSpec{Batch: 10, Prefetch: 10, Ack: drivers.AckEvery}, 10)
	send(t, r, p, 25)
	if got, want := m.requests("SendMessageBatch"), []int{10, 10, 5}; !slices.Equal(got, want) {
		t.Errorf("requests of %v messages, want %v", got, want)
	}
	refused := []uint64{3, 9, 13, 19, 23}
	var want []string
	for token := range uint64(25) {
		err, confirmed := a.confirms[token]
		if bad := slices.Contains(refused, token); !confirmed || (err != nil) != bad ||
			(bad && (!errors.Is(err, drivers.ErrRejected) || !strings.Contains(err.Error(), "Meddled"))) {
			t.Errorf("message %d: confirmed %v with %v, want refused: %v", token, confirmed, err, bad)
		}
		if err == nil {
			want = append(want, fmt.Sprintf("%02d", token))
		}
	}
	labtest.Eventually(t, "the messages that were not refused", func() bool { return len(a.receipts()) >= len(want) })
	if got := a.receipts(); !slices.Equal(got, want) {
		t.Errorf("received %v, want %v", got, want)
	}
	if err := a.broken(); err != nil {
		t.Errorf("a refused message breaks the connection: %v", err)
	}
}

// If the service rejects a request, all its messages are rejected, and it is not repeated with resilience "none". If
// the service fails, it may have stored them: they are not rejected, and the connection is broken. By default, the SDK
// repeats requests after failures and throttling, and no others.
func TestRefusedRequests(t *testing.T) {
	for _, c := range []struct {
		status   int
		code     string
		refused  bool
		repeated bool // by default
	}{{400, "RequestThrottled", true, true}, {503, "ThrottlingException", true, true},
		{500, "InternalError", false, true}, {503, "ServiceUnavailable", false, true},
		{400, "InvalidAddress", true, false}} {
		testRefusedRequests(t, c.status, c.code, c.refused, `{"resilience": "none"}`)
		m, options := meddle(t, `{}`)
		m.answer = func(action string, nth int) (int, string) {
			if action == "SendMessageBatch" && nth == 1 {
				return c.status, c.code
			}
			return 0, ""
		}
		r := newRig(t, options, nil)
		a := &account{}
		send(t, r, a.publisher(r, drivers.PublisherSpec{Mode: drivers.ConfirmBatch, Batch: 12}), 12)
		want, rejected := []int{10, 2}, 10
		if c.repeated {
			want, rejected = []int{10, 10, 2}, 0
		}
		if got := m.requests("SendMessageBatch"); !slices.Equal(got, want) {
			t.Errorf("%s, repeated: requests of %v messages, want %v", c.code, got, want)
		}
		failed := 0
		for _, err := range a.confirms {
			if err != nil {
				failed++
			}
		}
		if err := a.broken(); len(a.confirms) != 12 || failed != rejected || err != nil {
			t.Errorf("%s, repeated: %d confirms, %d failed, want %d; broken: %v", c.code, len(a.confirms), failed, rejected,
				err)
		}
	}
}

func testRefusedRequests(t *testing.T, status int, code string, refused bool, with string) {
	t.Helper()
	m, options := meddle(t, with)
	m.answer = func(action string, nth int) (int, string) {
		if action == "SendMessageBatch" && nth == 1 {
			return status, code
		}
		return 0, ""
	}
	r := newRig(t, options, nil)
	a := &account{}
	send(t, r, a.publisher(r, drivers.PublisherSpec{Mode: drivers.ConfirmBatch, Batch: 12}), 12)
	want, why, failed := []int{10, 2}, drivers.ErrRejected, uint64(10)
	if !refused {
		want, why, failed = []int{10}, drivers.ErrClosed, 12
	}
	if got := m.requests("SendMessageBatch"); !slices.Equal(got, want) {
		t.Errorf("%s: requests of %v messages, want %v", code, got, want)
	}
	for token := range uint64(12) {
		if err, told := a.confirms[token]; !told || (err != nil) != (token < failed) ||
			(err != nil && !errors.Is(err, why)) {
			t.Errorf("%s: message %d is confirmed: %v, with %v", code, token, told, err)
		}
	}
	if err := a.broken(); (err == nil) != refused {
		t.Errorf("%s: the connection broke: %v", code, err)
	}
}

// Throttled consumers continue, and report it once.
func TestThrottledConsumer(t *testing.T) {
	m, options := meddle(t, `{}`)
	m.answer = func(action string, nth int) (int, string) {
		if action == "ReceiveMessage" && nth <= 3 {
			return 400, "RequestThrottled"
		}
		return 0, ""
	}
	r := newRig(t, options, nil)
	a := &account{}
	p := a.publisher(r, drivers.PublisherSpec{Mode: drivers.ConfirmEach})
	send(t, r, p, 1)
	a.consumer(r, drivers.ConsumerSpec{Batch: 10, Prefetch: 10, Ack: drivers.AckEach}, 1)
	labtest.Eventually(t, "the message", func() bool { return len(a.receipts()) == 1 })
	if n := len(r.notices); n != 1 {
		t.Errorf("%d notices, want one", n)
	}
	if err := a.broken(); err != nil {
		t.Errorf("a slow service breaks the connection: %v", err)
	}
}

// After a rejected acknowledgement, the message is redelivered. That is reported once.
func TestRefusedAcknowledgement(t *testing.T) {
	m, options := meddle(t, `{"visibility": "1s"}`)
	var once sync.Once
	m.refuse = func(action, id string) bool {
		refused := false
		if action == "DeleteMessageBatch" && id == "2" {
			once.Do(func() { refused = true })
		}
		return refused
	}
	r := newRig(t, options, nil)
	a := &account{}
	p := a.publisher(r, drivers.PublisherSpec{Mode: drivers.ConfirmBatch, Batch: 5})
	send(t, r, p, 5)
	a.consumer(r, drivers.ConsumerSpec{Batch: 10, Prefetch: 10, Ack: drivers.AckEvery}, 5)
	labtest.Eventually(t, "five messages and one of them again", func() bool {
		got := a.receipts() // it is redelivered every second, and so are other messages of a slow consumer
		return len(got) > 5 && len(slices.Compact(slices.Clone(got))) == 5
	})
	select {
	case said := <-r.notices:
		if !strings.Contains(said, "1 of 5 messages rejected") {
			t.Errorf("the notice is %q", said)
		}
	default:
		t.Error("a refused acknowledgement is not said")
	}
}

// The service's limit applies to text. That of a body is three quarters of it. Only bodies beyond it are rejected.
func TestLargestBody(t *testing.T) {
	m, options := meddle(t, `{}`)
	r := newRig(t, options, nil)
	a := &account{}
	p := a.publisher(r, drivers.PublisherSpec{Mode: drivers.ConfirmBatch, Batch: 4})
	largest := maxBytes / 4 * 3
	for i, size := range []int{10, largest, largest + 1, 10} {
		if err := p.Publish(r.context(), drivers.Message{Token: uint64(i),
			Body: bytes.Repeat([]byte{byte(i)}, size)}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := m.requests("SendMessageBatch"), []int{1, 1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("requests of %v messages, want %v: no two of these fit into one", got, want)
	}
	for token := range uint64(4) {
		if err := a.confirms[token]; (err != nil) != (token == 2) ||
			(token == 2 && !errors.Is(err, drivers.ErrRejected)) {
			t.Errorf("message %d is confirmed with %v", token, err)
		}
	}
}

// If its queue is removed, a consumer ends, and a new one gets an error at once.
func TestQueueIsGone(t *testing.T) {
	options := standIn(t, `{"waitTime": "0s"}`) // ElasticMQ leaves a waiting request open when its queue is removed
	r := newRig(t, options, nil)
	a := &account{}
	c := a.consumer(r, drivers.ConsumerSpec{Batch: 1, Prefetch: 1, Ack: drivers.AckEach}, 1)
	other := newRig(t, options, nil)
	if err := other.session.Teardown(other.context(), r.topology); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, "the end of the consumer", func() bool { return c.Err() != nil })
	_ = c.Close()
	_, err := r.connect().Consumer(r.context(), drivers.ConsumerSpec{Topology: r.topology, Batch: 1, Prefetch: 1,
		Ack: drivers.AckEach}, nil)
	if !missing(err) || !strings.Contains(err.Error(), "find queue "+r.topology.Name) {
		t.Errorf("connecting again gives %v", err)
	}
}

// An existing queue with a wait time of its own has long polling. So waitTime "0s" is an error there.
func TestWaitTimeOfAnExistingQueue(t *testing.T) {
	r := newRig(t, standIn(t, `{"waitTime": "0s"}`), nil)
	existing := r.topology
	existing.Existing = r.session.queueName(r.topology, 0)
	if err := r.session.Verify(r.context(), existing); err != nil {
		t.Errorf("a queue without a wait time: %v", err)
	}
	at, err := r.session.find(r.context(), r.topology, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.connect().client.SetQueueAttributes(r.context(), &sqs.SetQueueAttributesInput{QueueUrl: &at,
		Attributes: map[string]string{"ReceiveMessageWaitTimeSeconds": "5"}}); err != nil {
		t.Fatal(err)
	}
	err = r.session.Verify(r.context(), existing)
	if err == nil || !strings.Contains(err.Error(), "set waitTime to 1s or more") {
		t.Errorf("a queue that waits 5 s: %v", err)
	}
	publishing := existing
	publishing.Consumers = 0
	if err := r.session.Verify(r.context(), publishing); err != nil {
		t.Errorf("a queue that waits 5 s, without consumers: %v", err)
	}
}

// Messages of a FIFO queue's group are in order, with any consumers. Streams are groups.
func TestGroupsAreStreams(t *testing.T) {
	r := newRig(t, standIn(t, `{"fifo": true, "groups": 4}`), nil)
	a := &account{}
	p := a.publisher(r, drivers.PublisherSpec{Mode: drivers.ConfirmBatch, Batch: 40})
	var mu sync.Mutex
	streams := map[uint32][]string{}
	var c drivers.Consumer
	ready := make(chan struct{})
	c, err := r.connect().Consumer(r.context(), drivers.ConsumerSpec{Topology: r.topology, Batch: 10, Prefetch: 10,
		Ack: drivers.AckEach}, func(batch []drivers.Delivery) {
		<-ready
		mu.Lock()
		defer mu.Unlock()
		for _, d := range batch {
			streams[d.Stream] = append(streams[d.Stream], string(d.Body))
		}
		c.Ack(len(batch))
	})
	if err != nil {
		t.Fatal(err)
	}
	close(ready)
	defer c.Close()
	send(t, r, p, 40)
	labtest.Eventually(t, "40 messages", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(streams[0])+len(streams[1])+len(streams[2])+len(streams[3]) == 40
	})
	mu.Lock()
	defer mu.Unlock()
	for group := range uint32(4) {
		var want []string
		for i := group; i < 40; i += 4 {
			want = append(want, fmt.Sprintf("%02d", i))
		}
		if !slices.Equal(streams[group], want) {
			t.Errorf("group %d has %v, want %v", group, streams[group], want)
		}
	}
}

func TestDescription(t *testing.T) {
	r := newRig(t, standIn(t, `{}`), nil)
	d, err := r.session.Describe(r.context())
	if err != nil {
		t.Fatal(err)
	}
	if d.Product != "SQS-compatible server" || d.StandIn != "Amazon SQS" || d.Settings["server"] == "" || d.Settings["encoding"] != "base64" {
		t.Errorf("described as %+v", d)
	}
	if retries, is := d.Settings["retries"]; is { // the cell has the resilience
		t.Errorf("the description of retries is %q", retries)
	}
	if u, _ := url.Parse(r.session.options.Endpoint); r.session.options.address() != u.Host {
		t.Errorf("the address is %s", r.session.options.address())
	}
}

// Without credentials in the options, the host's environment provides them and the region.
func TestCredentialsOfTheEnvironment(t *testing.T) {
	endpoint := lab.Variable(t, "LOCKSTEP_SQS_ENDPOINT")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	options := schematest.Fill(t, driver{}, fmt.Sprintf(`{"endpoint": %q}`, endpoint))
	if _, err := (driver{}).Open(t.Context(), options,
		drivers.Env{Dial: new(net.Dialer).DialContext, Access: drivers.FullAccess()}); err == nil ||
		!strings.Contains(err.Error(), "AWS_REGION") {
		t.Errorf("without a region: %v", err)
	}
	t.Setenv("AWS_REGION", "elsewhere")
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	r := newRig(t, options, nil)
	if r.session.options.Region != "elsewhere" {
		t.Errorf("the region is %q", r.session.options.Region)
	}
}
