package mongodb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	client "go.mongodb.org/mongo-driver/v2/mongo/options"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
	"example.org/lockstep/lockstep/pkg/drivers/requests"
)

// FerretDB itself responds to writes with w: 0, which would confuse the following responses. The driver detects this
// before it sends messages.
func TestAnswersToUnacknowledgedWritesAreFound(t *testing.T) {
	options := labtest.Options(t, map[string]any{"url": lab.Variable(t, "LOCKSTEP_FERRETDB_URL")}, `{}`)
	r := newRig(t, options, nil)
	_, err := r.connect().Publisher(r.context(), drivers.PublisherSpec{Topology: r.topology, Mode: drivers.FireAndForget})
	if !errors.Is(err, drivers.ErrUnsupported) || !strings.Contains(err.Error(), "unacknowledged: false") {
		t.Errorf("a publisher without confirms gives %v, want ErrUnsupported and what to set", err)
	}
}

// commands are the commands of a client.
type commands struct {
	mu   sync.Mutex
	sent []bson.Raw
}

func (c *commands) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sent = append(c.sent, slices.Clone(e.Command))
	}}
}

// of returns the commands with a name.
func (c *commands) of(name string) (some []bson.Raw) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, raw := range c.sent {
		if first, err := raw.IndexErr(0); err == nil && first.Key() == name {
			some = append(some, raw)
		}
	}
	return some
}

// watched connects a client with these options, and records its commands.
func watched(t *testing.T, o *options) (*mongo.Client, *commands) {
	t.Helper()
	c := &commands{}
	settings, err := o.client()
	if err != nil {
		t.Fatal(err)
	}
	connected, err := mongo.Connect(settings.SetMonitor(c.monitor()).SetRetryWrites(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connected.Disconnect(context.Background()) })
	return connected, c
}

// The write concern of a label is sent to the server, once, and without a transaction that the library could repeat.
func TestWriteConcernsAreSent(t *testing.T) {
	cases := []struct {
		options    string
		mode       drivers.Mode
		persistent bool
		want       string
	}{
		{`{}`, drivers.ConfirmWindow, false, `{"w": "majority"}`},
		{`{}`, drivers.ConfirmWindow, true, `{"w": "majority","j": true}`},
		{`{"w": 2, "journal": false}`, drivers.ConfirmBatch, true, `{"w": {"$numberInt":"2"},"j": false}`},
		{`{"w": 1, "journal": true, "wtimeout": "1500ms"}`, drivers.ConfirmEach, false,
			`{"w": {"$numberInt":"1"},"wtimeout": {"$numberLong":"1500"},"j": true}`},
		{`{"wtimeout": "2s"}`, drivers.FireAndForget, true, `{"w": {"$numberInt":"0"}}`},
	}
	for _, c := range cases {
		t.Run(c.options, func(t *testing.T) {
			r := newRig(t, standIn(t, c.options), nil)
			on, sent := watched(t, &r.session.options)
			spec := drivers.PublisherSpec{Topology: r.topology, Mode: c.mode, Persistent: c.persistent}
			i := &inserter{into: r.session.inserted(on, spec), ids: newIDs(),
				options: r.session.insertOptions(spec)}
			if n, err := i.send(r.context(), []drivers.Message{{Body: []byte("a")}, {Body: []byte("b")}},
				make([]error, 2)); n != 2 || err != nil {
				t.Fatalf("%d answered, error %v", n, err)
			}
			inserts := sent.of("insert")
			if len(inserts) != 1 {
				t.Fatalf("%d inserts for one batch", len(inserts))
			}
			elements, err := inserts[0].Elements()
			if err != nil {
				t.Fatal(err)
			}
			var concerns []string
			for _, e := range elements {
				switch e.Key() {
				case "writeConcern":
					concerns = append(concerns, e.Value().String())
				case "txnNumber":
					t.Error("the insert has a transaction number: the library would repeat it")
				}
			}
			if !slices.Equal(concerns, []string{c.want}) {
				t.Errorf("write concerns %v, want one %s", concerns, c.want)
			}
		})
	}
}

// Messages of one insert have separate results.
func TestPartOfAnInsertIsRefused(t *testing.T) {
	for _, c := range []struct {
		ordered bool
		want    []bool // rejected
	}{
		{false, []bool{false, true, true, false}},
		{true, []bool{false, true, true, true}},
	} {
		r := newRig(t, standIn(t, `{}`), nil)
		r.session.options.Ordered = c.ordered
		spec := drivers.PublisherSpec{Topology: r.topology, Mode: drivers.ConfirmBatch}
		on, _ := watched(t, &r.session.options)
		i := &inserter{into: r.session.inserted(on, spec), ids: newIDs(),
			options: r.session.insertOptions(spec), ordered: c.ordered}
		later := time.Now().Add(time.Hour).UnixNano() // the ids depend only on it
		four := []drivers.Message{{Body: []byte("a")}, {Body: []byte("b")}, {Body: []byte("c")}, {Body: []byte("d")}}
		i.ids.last = later + 1
		if _, err := i.send(r.context(), four[:2], make([]error, 2)); err != nil { // inserts the second and third id
			t.Fatal(err)
		}
		i.ids.last = later
		verdicts := make([]error, 4)
		if n, err := i.send(r.context(), four, verdicts); n != 4 || err != nil {
			t.Fatalf("%d answered, error %v", n, err)
		}
		for at, refused := range c.want {
			if got := verdicts[at]; (got != nil) != refused || (refused && !errors.Is(got, drivers.ErrRejected)) {
				t.Errorf("ordered %v: message %d: verdict %v, want refused: %v", c.ordered, at, got, refused)
			}
		}
	}
}

// If a write concern times out, all messages of the insert have an error, although they are inserted.
func TestWriteConcernErrorRejectsAll(t *testing.T) {
	i := &inserter{into: []*mongo.Collection{nil}}
	verdicts := make([]error, 2)
	c := connectionless(t)
	i.judge(c, mongo.BulkWriteException{WriteConcernError: &mongo.WriteConcernError{Code: 64,
		Message: "waiting for replication timed out"}}, verdicts)
	for _, v := range verdicts {
		if !errors.Is(v, drivers.ErrRejected) || !strings.Contains(v.Error(), "replication timed out") {
			t.Errorf("verdict %v", v)
		}
	}
	if !refused(mongo.BulkWriteException{WriteConcernError: &mongo.WriteConcernError{Code: 64}}) {
		t.Error("an answer counts as a broken connection")
	}
	if refused(mongo.BulkWriteException{WriteConcernError: &mongo.WriteConcernError{Code: 91}}) {
		t.Error("a server that shuts down is no broken connection")
	}
}

// connectionless returns a collection without a connection.
func connectionless(t *testing.T) *mongo.Collection {
	t.Helper()
	c := &conn{Conn: requests.NewConn(), dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("not to be dialled")
	}}
	none, err := mongo.Connect(client.Client().ApplyURI("mongodb://127.0.0.1:1/").SetDialer(dialer{c}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = none.Disconnect(context.Background()) })
	return none.Database("x").Collection("y")
}

// A dial of the library ends with the conn, although its own context does not.
func TestDialsEndWithTheConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &conn{Conn: requests.NewConn(), dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		ended := make(chan error, 1)
		go func() {
			_, err := dialer{c}.DialContext(context.Background(), "tcp", "127.0.0.1:1")
			ended <- err
		}()
		synctest.Wait()
		c.End()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the dial ends with %v", err)
		}
	})
}

// Claims and deletes have their own write concern.
func TestWriteConcernsOfClaims(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "majority", `{"w": 2}`: "2", `{"claimW": 1}`: "1", `{"w": 2, "claimW": "majority"}`: "majority",
	} {
		o, err := kit.Decode[options]("mongodb", schematest.Fill(t, driver{}, standIn(t, text)))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(o.claimConcern(false).W); got != want {
			t.Errorf("%s: claims have the write concern %s, want %s", text, got, want)
		}
	}
}

// turnstile counts the commands of connections, and withholds their answers until enough of them wait for one.
type turnstile struct {
	t       *testing.T
	mu      sync.Mutex
	want    map[string]int // by command
	waiting map[string]int
	open    map[string]chan struct{}
}

type turnstileConn struct {
	net.Conn
	t    *turnstile
	hold chan struct{} // not nil: the answer is withheld until it is closed
}

func (t *turnstile) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &turnstileConn{Conn: conn, t: t}, err
}

func (c *turnstileConn) Write(b []byte) (int, error) {
	c.t.mu.Lock()
	c.hold = nil
	for command, want := range c.t.want {
		if bytes.Contains(b, []byte("\x02"+command+"\x00")) { // the command's name is the first key: a string
			c.hold = c.t.open[command]
			if c.t.waiting[command]++; c.t.waiting[command] == want {
				close(c.t.open[command])
			}
		}
	}
	c.t.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *turnstileConn) Read(b []byte) (int, error) {
	c.t.mu.Lock()
	hold := c.hold
	c.t.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-time.After(labtest.Wait):
			c.t.t.Error("fewer requests than the limit were in flight at the same time")
		}
	}
	return c.Conn.Read(b)
}

// The window and the prefetch are used by concurrent requests: none is answered before as many are in flight.
func TestLimitsAreFilled(t *testing.T) {
	stile := &turnstile{t: t, want: map[string]int{"insert": 10, "findAndModify": 20, "delete": 20}, waiting: map[string]int{},
		open: map[string]chan struct{}{"insert": make(chan struct{}), "findAndModify": make(chan struct{}),
			"delete": make(chan struct{})}}
	env := labtest.Env(nil)
	env.Dial = stile.dial
	topology := labtest.Topology(nil)
	s := labtest.Open(t, driver{}, standIn(t, `{"insertBatch": 2, "confirmTimeout": "2m", "visibility": "5m"}`), env)
	labtest.SetUp(t, s, &topology)
	p, err := connect(t, s).Publisher(labtest.Context(t), drivers.PublisherSpec{Topology: topology, Mode: drivers.ConfirmWindow,
		MaxInFlight: 20, OnConfirms: func([]uint64, error) {}})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := p.Publish(labtest.Context(t), drivers.Message{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	labtest.Eventually(t, "ten inserts of two messages at the same time", func() bool { return stile.of("insert") >= 10 })
	_ = p.Close()
	var handled atomic.Int32
	c := acknowledging(t, connect(t, s), drivers.ConsumerSpec{Topology: topology, Prefetch: 20, Batch: 5,
		Ack: drivers.AckEach}, func(batch []drivers.Delivery) { handled.Add(int32(len(batch))) })
	labtest.Eventually(t, "20 claims at the same time", func() bool { return stile.of("findAndModify") >= 20 })
	labtest.Eventually(t, "20 messages", func() bool { return handled.Load() == 20 })
	labtest.Eventually(t, "20 deletes at the same time", func() bool { return stile.of("delete") >= 20 })
	_ = c.Close()
}

func (t *turnstile) of(command string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting[command]
}

// Concurrent consumers begin their claims at different messages. A claim finds every message, wherever it begins.
func TestClaimsBeginAnywhere(t *testing.T) {
	r := newRig(t, standIn(t, `{}`), nil)
	on, sent := watched(t, &r.session.options)
	c := &consumer{visibility: time.Minute,
		from: on.Database(r.session.options.Database).Collection(collectionName(r.topology, 0, 0))}
	spec := drivers.PublisherSpec{Topology: r.topology, Mode: drivers.ConfirmBatch}
	i := &inserter{into: r.session.inserted(on, spec), ids: newIDs(), options: r.session.insertOptions(spec)}
	const n = 30
	batch := make([]drivers.Message, n)
	for at := range batch {
		batch[at].Body = []byte{byte(at)}
	}
	if _, err := i.send(r.context(), batch, make([]error, n)); err != nil {
		t.Fatal(err)
	}
	claim, found := c.receiver(), map[byte]bool{}
	for range n {
		got, _, err := claim(r.context(), 1)
		if err != nil || len(got) != 1 {
			t.Fatalf("after %d messages: %v, %v", len(found), got, err)
		}
		found[got[0].Body[0]] = true
	}
	if len(found) != n {
		t.Errorf("%d different messages, want %d", len(found), n)
	}
	if got, _, err := claim(r.context(), 1); len(got) > 0 || err != nil {
		t.Errorf("one more claim finds %v, %v", got, err)
	}
	begins := map[int32]bool{}
	for _, raw := range sent.of("findAndModify") {
		if from, is := raw.Lookup("query", fieldRandom, "$gte").Int32OK(); is {
			begins[from] = true
		}
	}
	if len(begins) < n/2 {
		t.Errorf("%d different beginnings of %d claims", len(begins), n)
	}
}

// Messages are given back by one request: the limits for an answer and for closing are those of a request. They are
// marked afterwards, also if they were not handled, because they come again after later ones.
func TestMessagesAreGivenBackTogether(t *testing.T) {
	r := newRig(t, standIn(t, `{}`), nil)
	on, sent := watched(t, &r.session.options)
	c := &consumer{visibility: time.Minute,
		from: on.Database(r.session.options.Database).Collection(collectionName(r.topology, 0, 0))}
	spec := drivers.PublisherSpec{Topology: r.topology, Mode: drivers.ConfirmBatch}
	i := &inserter{into: r.session.inserted(on, spec), ids: newIDs(), options: r.session.insertOptions(spec)}
	const n = 5
	if _, err := i.send(r.context(), make([]drivers.Message, n), make([]error, n)); err != nil {
		t.Fatal(err)
	}
	claim := c.receiver()
	hows := []requests.Settling{requests.Unhandled, requests.Rejected}
	for i, want := range []drivers.Tristate{drivers.No, drivers.Yes} {
		var leases []lease
		for range n {
			got, _, err := claim(r.context(), 1)
			if err != nil || len(got) != 1 || got[0].Redelivered != want {
				t.Fatalf("after %d messages: %+v, %v; redelivered: want %v", len(leases), got, err, want)
			}
			leases = append(leases, got[0].Key)
		}
		if err := c.settle(r.context(), leases, hows[i]); err != nil {
			t.Fatal(err)
		}
	}
	if updates := len(sent.of("update")); updates != 2 {
		t.Errorf("%d messages are given back twice by %d requests", n, updates)
	}
}

// Without confirms, each publisher of a connection has its own client. The next one uses the client of a closed one.
func TestUnconfirmedPublishersHaveTheirOwnClient(t *testing.T) {
	r := newRig(t, standIn(t, `{}`), nil)
	on := r.connect()
	var open []drivers.Publisher
	for _, c := range []struct{ closed, clients int }{{0, 1}, {0, 2}, {1, 2}, {0, 3}, {2, 3}} {
		for range c.closed {
			if err := open[0].Close(); err != nil {
				t.Fatal(err)
			}
			open = open[1:]
		}
		p, err := on.Publisher(r.context(), drivers.PublisherSpec{Topology: r.topology, Mode: drivers.FireAndForget})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Publish(r.context(), drivers.Message{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		open = append(open, p)
		if n := len(on.clients); n != c.clients {
			t.Errorf("%d publishers have %d clients, want %d", len(open), n, c.clients)
		}
	}
	for _, p := range open {
		_ = p.Close()
	}
}

// If the server does not honour the label's write concern, the description reports it, and one event.
func TestWriteConcernIsNotHonoured(t *testing.T) {
	r := newRig(t, standIn(t, `{}`), nil)
	d, err := r.session.Describe(r.context())
	if err != nil {
		t.Fatal(err)
	}
	if d.Product != "FerretDB" || d.StandIn != "MongoDB" || d.Settings["replica_set"] != "none" ||
		!strings.Contains(d.Settings["write_concern"], "w:majority: not honoured by this server") {
		t.Errorf("the server is described as %+v", d)
	}
	if retries, is := d.Settings["retries"]; is { // the cell has the resilience
		t.Errorf("the description of retries is %q", retries)
	}
	if err := r.session.Setup(r.context(), r.topology); err != nil { // again
		t.Fatal(err)
	}
	if n := len(r.notices); n != 1 {
		t.Fatalf("%d notices, want one", n)
	}
	if said := <-r.notices; !strings.HasPrefix(said, "notice: w:majority: not honoured by this server") {
		t.Errorf("the notice is %q", said)
	}
}

// TestMissingCollectionOfASubscription: no insert makes a collection without the index.
func TestMissingCollectionOfASubscription(t *testing.T) {
	r := newRig(t, standIn(t, `{}`), func(t *drivers.Topology) { t.Subscriptions = 2 })
	missing := collectionName(r.topology, 1, 0)
	if err := r.session.drop(r.context(), []string{missing}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.connect().Publisher(r.context(), drivers.PublisherSpec{Topology: r.topology,
		Mode: drivers.ConfirmEach}); !errors.Is(err, errNotSetUp) || !strings.Contains(err.Error(), missing) {
		t.Errorf("without the collection of subscription 1, a publisher gives %v", err)
	}
}

// Metrics are those of the task's collections. Claimed messages count as unacknowledged.
func TestProbeCountsMessages(t *testing.T) {
	r := newRig(t, standIn(t, `{"visibility": "1m"}`), func(t *drivers.Topology) { t.Subscriptions = 2 })
	p, err := r.connect().Publisher(r.context(), drivers.PublisherSpec{Topology: r.topology, Mode: drivers.ConfirmBatch,
		Batch: 5, OnConfirms: func([]uint64, error) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range 5 {
		if err := p.Publish(r.context(), drivers.Message{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	entered, release := make(chan struct{}), make(chan struct{})
	c := acknowledging(t, r.connect(), drivers.ConsumerSpec{Topology: r.topology, Subscription: 1, Batch: 1,
		Prefetch: 1, Ack: drivers.AckEach}, func([]drivers.Delivery) {
		select {
		case entered <- struct{}{}:
		case <-release:
		}
		<-release
	})
	<-entered
	metrics, err := r.session.Probe(r.context())
	close(release)
	_ = c.Close()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range metrics {
		got[f.Name] = f.Value
	}
	if got[drivers.MetricQueues] != 2 || got[drivers.MetricQueueDepth] != 10 || got[drivers.MetricUnacked] != 1 {
		t.Errorf("metrics %v, want 2 queues with 10 messages, 1 of them claimed", got)
	}
}

// After the visibility timeout, another consumer can claim a message, which is then marked as redelivered.
func TestVisibilityEnds(t *testing.T) {
	r := newRig(t, standIn(t, `{"visibility": "300ms"}`), nil)
	p, err := r.connect().Publisher(r.context(), drivers.PublisherSpec{Topology: r.topology, Mode: drivers.ConfirmEach,
		OnConfirms: func([]uint64, error) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Publish(r.context(), drivers.Message{Body: []byte("once")}); err != nil {
		t.Fatal(err)
	}
	release, came := make(chan struct{}), make(chan drivers.Tristate, 10)
	on := r.connect()
	consume := func() drivers.Consumer {
		return acknowledging(t, on, drivers.ConsumerSpec{Topology: r.topology, Batch: 1, Ack: drivers.AckEach},
			func(batch []drivers.Delivery) {
				came <- batch[0].Redelivered
				<-release
			})
	}
	first := consume()
	if said := <-came; said != drivers.No {
		t.Errorf("the first delivery says redelivered: %v", said)
	}
	second := consume()
	select {
	case said := <-came:
		if said != drivers.Yes {
			t.Errorf("the second delivery says redelivered: %v", said)
		}
	case <-time.After(labtest.Wait):
		t.Error("what nobody acknowledged does not come again")
	}
	close(release)
	_, _ = first.Close(), second.Close()
}

// Documents of others in an existing collection are neither changed nor received, also if they have a time field of the
// same name.
func TestDocumentsOfOthersStay(t *testing.T) {
	r := newRig(t, standIn(t, `{}`), nil)
	existing := r.topology
	existing.Existing = collectionName(r.topology, 0, 0)
	on := r.connect()
	documents := on.client.Database(r.session.options.Database).Collection(existing.Existing)
	other := bson.D{{Key: fieldID, Value: "order 1"}, {Key: fieldAt, Value: unclaimed}, {Key: fieldCount, Value: "three"}}
	if _, err := documents.InsertOne(r.context(), other); err != nil {
		t.Fatal(err)
	}
	got := make(chan []byte, 10)
	c := acknowledging(t, on, drivers.ConsumerSpec{Topology: existing, Prefetch: 10, Batch: 1, Ack: drivers.AckEach},
		func(batch []drivers.Delivery) { got <- slices.Clone(batch[0].Body) })
	p, err := r.connect().Publisher(r.context(), drivers.PublisherSpec{Topology: existing, Mode: drivers.ConfirmEach,
		OnConfirms: func([]uint64, error) {}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(r.context(), drivers.Message{Body: []byte("mine")}); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(r.context()); err != nil {
		t.Fatal(err)
	}
	select {
	case body := <-got:
		if string(body) != "mine" {
			t.Errorf("received %q", body)
		}
	case <-r.context().Done():
		t.Fatal("nothing was received")
	}
	if err := c.Close(); err != nil || c.Err() != nil {
		t.Errorf("the consumer: %v, %v", err, c.Err())
	}
	var kept bson.D
	if err := documents.FindOne(r.context(), bson.D{{Key: fieldID, Value: "order 1"}}).Decode(&kept); err != nil ||
		!reflect.DeepEqual(kept, other) {
		t.Errorf("the document of another program is %v: %v", kept, err)
	}
}
