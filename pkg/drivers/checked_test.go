package drivers

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// narrow is a driver that declares little, and counts the calls of its sessions.
type narrow struct{ calls int }

func (n *narrow) Info() Info {
	return Info{Name: "narrow", Declare: func(_ json.RawMessage, use Use) Declaration {
		d := Declaration{Capabilities: Capabilities{Modes: []Mode{FireAndForget}, Acks: []Ack{AckEvery, AckInterval}, Transient: true}}
		if use.Queues > 3 {
			d.Rejections = []string{"3 queues are enough"}
		}
		if use.Mode != FireAndForget || use.Ack == AckEach {
			d.Rejections = append(d.Rejections, "declared for a mode or acknowledgement that the call does not have")
		}
		return d
	}}
}

func (n *narrow) Open(context.Context, json.RawMessage, Env) (Session, error) {
	return &narrowSession{driver: n}, nil
}

type narrowSession struct {
	Session
	driver *narrow
}

func (s *narrowSession) call() error { s.driver.calls++; return nil }

func (s *narrowSession) Setup(context.Context, Topology) error    { return s.call() }
func (s *narrowSession) Teardown(context.Context, Topology) error { return s.call() }
func (s *narrowSession) Connect(context.Context, ConnSpec) (Conn, error) {
	return &narrowConn{session: s}, nil
}
func (s *narrowSession) Describe(context.Context) (Description, error) { return Description{}, nil }

// narrowConn is a connection that counts its calls.
type narrowConn struct {
	Conn
	session *narrowSession
}

func (c *narrowConn) Publisher(context.Context, PublisherSpec) (Publisher, error) {
	return nil, c.session.call()
}
func (c *narrowConn) Consumer(context.Context, ConsumerSpec, Handler) (Consumer, error) {
	return nil, c.session.call()
}
func (c *narrowConn) Close() error { return c.session.call() }

// What was not declared, or is invalid, is rejected before the driver is called, with all reasons. Everything else
// reaches the driver.
func TestCheckedRejectsWhatIsNotDeclared(t *testing.T) {
	const unsupported, invalid = true, false
	valid := Topology{Name: "t", Queues: 2, Subscriptions: 1, Bindings: 1, Consumers: 1}
	topology := func(change func(*Topology)) Topology {
		topology := valid
		change(&topology)
		return topology
	}
	setUp := func(change func(*Topology)) func(Session) error {
		return func(s Session) error { return s.Setup(t.Context(), topology(change)) }
	}
	connect := func(change func(*ConnSpec)) func(Session) error {
		return func(s Session) error {
			spec := ConnSpec{Role: PublisherRole, Topology: valid}
			change(&spec)
			conn, err := s.Connect(t.Context(), spec)
			if err == nil {
				err = conn.Close() // reaches the driver
			}
			return err
		}
	}
	on := func(s Session, role Role) Conn {
		conn, err := s.Connect(t.Context(), ConnSpec{Role: role, Topology: valid})
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	publish := func(change func(*PublisherSpec)) func(Session) error {
		return func(s Session) error {
			spec := PublisherSpec{Topology: valid, Queue: 2, Mode: FireAndForget} // an unroutable queue is valid
			change(&spec)
			_, err := on(s, PublisherRole).Publisher(t.Context(), spec)
			return err
		}
	}
	consume := func(change func(*ConsumerSpec)) func(Session) error {
		return func(s Session) error {
			spec := ConsumerSpec{Topology: valid, Queue: 1, Prefetch: 10, Batch: 1, Ack: AckEvery}
			change(&spec)
			_, err := on(s, ConsumerRole).Consumer(t.Context(), spec, nil)
			return err
		}
	}
	for name, c := range map[string]struct {
		call        func(Session) error
		unsupported bool
		want        string // separated by "|"; "": the driver is called
	}{
		"set up":       {setUp(func(*Topology) {}), invalid, ""},
		"no name":      {setUp(func(t *Topology) { t.Name = "" }), invalid, `topology ""`},
		"no queue":     {setUp(func(t *Topology) { t.Queues = 0 }), invalid, "0 queues"},
		"rejected":     {setUp(func(t *Topology) { t.Queues = 4 }), unsupported, "set up t: 3 queues are enough"},
		"fan-out":      {setUp(func(t *Topology) { t.Subscriptions = 2 }), unsupported, "several subscriptions"},
		"queue node":   {setUp(func(t *Topology) { t.QueueNode = "0" }), unsupported, "cannot place queues on node 0"},
		"spread queue": {setUp(func(t *Topology) { t.QueueNode = SpreadNode }), invalid, ""},
		"all at once": {setUp(func(t *Topology) { t.Bindings, t.Persistent = 3, true }), unsupported,
			"3 bindings|persistently"},

		"tear down": {func(s Session) error {
			return s.Teardown(t.Context(), topology(func(t *Topology) { t.Subscriptions = 2 }))
		}, invalid, ""},
		"tear down nothing": {func(s Session) error { return s.Teardown(t.Context(), Topology{}) }, invalid, `topology ""`},

		"publish":    {publish(func(*PublisherSpec) {}), invalid, ""},
		"mode":       {publish(func(s *PublisherSpec) { s.Mode = ConfirmEach }), unsupported, "cannot publish confirm-each"},
		"no mode":    {publish(func(s *PublisherSpec) { s.Mode = "" }), invalid, "no mode"},
		"mandatory":  {publish(func(s *PublisherSpec) { s.Mandatory = true }), unsupported, "unroutable"},
		"persistent": {publish(func(s *PublisherSpec) { s.Persistent = true }), unsupported, "persistently"},
		"keyed":      {publish(func(s *PublisherSpec) { s.Keyed = true }), unsupported, "message keys"},
		"connection of consumers": {func(s Session) error {
			_, err := on(s, ConsumerRole).Publisher(t.Context(), PublisherSpec{Topology: valid, Mode: FireAndForget})
			return err
		}, invalid, "its connection has the role consumer"},

		"connect":        {connect(func(*ConnSpec) {}), invalid, ""},
		"no role":        {connect(func(s *ConnSpec) { s.Role = "" }), invalid, `role ""`},
		"no topology":    {connect(func(s *ConnSpec) { s.Topology = Topology{} }), invalid, `topology ""`},
		"publisher node": {connect(func(s *ConnSpec) { s.Node = "1" }), unsupported, "cannot place publishers on node 1"},
		"consumer node": {connect(func(s *ConnSpec) { s.Role, s.Node = ConsumerRole, LeaderNode }), unsupported,
			"cannot place consumers on node leader"},
		"spread": {connect(func(s *ConnSpec) { s.Node = SpreadNode }), invalid, ""},

		"consume":      {consume(func(*ConsumerSpec) {}), invalid, ""},
		"ack":          {consume(func(s *ConsumerSpec) { s.Ack = AckAutomatic }), unsupported, `cannot acknowledge "automatic"`},
		"no ack":       {consume(func(s *ConsumerSpec) { s.Ack = "" }), invalid, "no acknowledgement"},
		"prefetch":     {consume(func(s *ConsumerSpec) { s.Prefetch = 0 }), unsupported, "unlimited prefetch"},
		"negative":     {consume(func(s *ConsumerSpec) { s.Prefetch = -1 }), invalid, "prefetch -1"},
		"nack":         {consume(func(s *ConsumerSpec) { s.Nack = true }), unsupported, "redeliver"},
		"queue":        {consume(func(s *ConsumerSpec) { s.Queue = 2 }), invalid, "queue 2 of 2"},
		"subscription": {consume(func(s *ConsumerSpec) { s.Subscription = 1 }), invalid, "subscription 1 of 1"},
		"batch":        {consume(func(s *ConsumerSpec) { s.Batch = 0 }), invalid, "batch 0"},
		"connection of publishers": {func(s Session) error {
			_, err := on(s, PublisherRole).Consumer(t.Context(),
				ConsumerSpec{Topology: valid, Prefetch: 1, Batch: 1, Ack: AckEvery}, nil)
			return err
		}, invalid, "its connection has the role publisher"},
		"for no consumer": {consume(func(s *ConsumerSpec) { s.Topology.Consumers = 0 }), invalid, "no consumers"},
		"both": {consume(func(s *ConsumerSpec) { s.Batch, s.Nack = 0, true }), unsupported,
			"connect consumer: batch 0|redeliver"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &narrow{}
			s, err := Checked(t.Context(), d, nil, Env{})
			if err != nil {
				t.Fatal(err)
			}
			err = c.call(s)
			if c.want == "" {
				if err != nil || d.calls != 1 {
					t.Errorf("error %v after %d calls of the driver, want none after one", err, d.calls)
				}
				return
			}
			if err == nil || errors.Is(err, ErrUnsupported) != c.unsupported || d.calls != 0 {
				t.Fatalf("error %v after %d calls of the driver; want one before it, and ErrUnsupported: %t", err, d.calls,
					c.unsupported)
			}
			for want := range strings.SplitSeq(c.want, "|") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q in it", err, want)
				}
			}
		})
	}
}

// combined is a driver whose persistent messages need confirms, and other acknowledgements than each.
type combined struct{ narrow }

func (c *combined) Info() Info {
	return Info{Name: "combined", Declare: func(_ json.RawMessage, use Use) Declaration {
		d := Declaration{Capabilities: Capabilities{Modes: []Mode{FireAndForget, ConfirmWindow}, Acks: []Ack{AckEach, AckEvery},
			Transient: true, Persistent: use.Mode == ConfirmWindow}}
		if use.Persistent && (use.Ack == AckEach || use.Consumers > 0 && use.Prefetch < 10) {
			d.Rejections = []string{"persistent messages need ack every and a prefetch of 10"}
		}
		return d
	}}
}

// A call is not rejected by what another call decides: Setup has no mode, and Setup and Publisher have no
// acknowledgement.
func TestCheckedAllowsWhatSomeCombinationSupports(t *testing.T) {
	topology := Topology{Name: "t", Queues: 1, Subscriptions: 1, Bindings: 1, Publishers: 1, Consumers: 1, Persistent: true}
	publisher := PublisherSpec{Topology: topology, Mode: ConfirmWindow, Persistent: true}
	consumer := ConsumerSpec{Topology: topology, Prefetch: 10, Batch: 1, Ack: AckEvery}
	s, err := Checked(t.Context(), &combined{}, nil, Env{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Setup(t.Context(), topology); err != nil {
		t.Error(err)
	}
	publishers, err := s.Connect(t.Context(), ConnSpec{Role: PublisherRole, Topology: topology})
	if err != nil {
		t.Fatal(err)
	}
	consumers, err := s.Connect(t.Context(), ConnSpec{Role: ConsumerRole, Topology: topology})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := publishers.Publisher(t.Context(), publisher); err != nil {
		t.Error(err)
	}
	if _, err := consumers.Consumer(t.Context(), consumer, nil); err != nil {
		t.Error(err)
	}
	publisher.Mode, consumer.Ack = FireAndForget, AckEach
	if _, err := publishers.Publisher(t.Context(), publisher); !errors.Is(err, ErrUnsupported) {
		t.Errorf("persistent messages without confirms: %v", err)
	}
	if _, err := consumers.Consumer(t.Context(), consumer, nil); !errors.Is(err, ErrUnsupported) {
		t.Errorf("persistent messages with ack each: %v", err)
	}
}

// As finds the optional interfaces of a session, whether Checked opened it or not.
func TestAs(t *testing.T) {
	inner := &narrowSession{}
	for _, s := range []Session{inner, &checked{Session: inner}} {
		if _, is := As[Describer](s); !is {
			t.Errorf("%T: Describer is not found", s)
		}
		if _, is := As[Prober](s); is {
			t.Errorf("%T: Prober is found", s)
		}
		if got, _ := As[Session](s); got != inner {
			t.Errorf("%T: the session is %v, want that of the driver", s, got)
		}
	}
}

// existingQueues is a driver whose sessions can use existing queues.
type existingQueues struct{ narrow }

func (l *existingQueues) Info() Info {
	return Info{Name: "existing-queues", Declare: func(json.RawMessage, Use) Declaration {
		return Declaration{Capabilities: Capabilities{Modes: []Mode{FireAndForget}, Transient: true, Existing: true}}
	}}
}

func (l *existingQueues) Open(context.Context, json.RawMessage, Env) (Session, error) {
	return &existingSession{narrowSession{driver: &l.narrow}}, nil
}

type existingSession struct{ narrowSession }

func (*existingSession) Verify(_ context.Context, t Topology) error {
	return errors.New("verified " + QueueName(t.Existing, 7))
}

// An existing topology is verified, and never declared or removed. A driver that does not declare the capability is not
// called.
func TestCheckedLeavesExistingQueuesAlone(t *testing.T) {
	existing := Topology{Name: "t", Queues: 1, Subscriptions: 1, Bindings: 1, Existing: "orders-%d"}
	for _, d := range []Driver{&narrow{}, &existingQueues{}} {
		s, err := Checked(t.Context(), d, nil, Env{})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Setup(t.Context(), existing)
		switch d := d.(type) {
		case *narrow:
			if !errors.Is(err, ErrUnsupported) || d.calls != 0 {
				t.Errorf("without the capability: Setup returns %v after %d calls", err, d.calls)
			}
		case *existingQueues:
			if err == nil || err.Error() != "verified orders-7" {
				t.Errorf("Setup returns %v", err)
			}
			if err := s.Teardown(t.Context(), existing); err != nil || d.calls != 0 {
				t.Errorf("Teardown returns %v after %d calls of Setup and Teardown", err, d.calls)
			}
			several := existing
			several.Subscriptions = 2
			if err := s.Setup(t.Context(), several); err == nil || strings.Contains(err.Error(), "verified") {
				t.Errorf("Setup with two subscriptions returns %v", err)
			}
		}
	}
}

// The topology and the specs are sent to external drivers, so each field has a JSON name or is excluded.
func TestSpecsHaveJSONNames(t *testing.T) {
	for _, v := range []any{Topology{}, ConnSpec{}, PublisherSpec{}, ConsumerSpec{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if f.IsExported() && f.Tag.Get("json") == "" {
				t.Errorf("%T.%s has no JSON name", v, f.Name)
			}
		}
	}
}

// wide is a driver that needs ten messages in flight.
type wide struct{ narrow }

func (w *wide) Info() Info {
	return Info{Name: "wide", Declare: func(_ json.RawMessage, use Use) Declaration {
		d := Declaration{Capabilities: Capabilities{Modes: []Mode{ConfirmWindow, ConfirmBatch, FireAndForget}, Transient: true}}
		if use.Mode.Confirmed() && use.MaxInFlight < 10 {
			d.Rejections = []string{"fewer than 10 messages in flight"}
		}
		return d
	}}
}

// A publisher is judged by the number of messages that it has in flight.
func TestCheckedUsesTheMessagesInFlight(t *testing.T) {
	session, err := Checked(t.Context(), &wide{}, nil, Env{})
	if err != nil {
		t.Fatal(err)
	}
	topology := Topology{Name: "t", Queues: 1, Subscriptions: 1, Bindings: 1}
	conn, err := session.Connect(t.Context(), ConnSpec{Role: PublisherRole, Topology: topology})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		spec PublisherSpec
		want bool
	}{
		{PublisherSpec{Mode: ConfirmWindow, MaxInFlight: 10}, true},
		{PublisherSpec{Mode: ConfirmWindow, MaxInFlight: 9, Batch: 10}, false},
		{PublisherSpec{Mode: ConfirmBatch, Batch: 10}, true},
		{PublisherSpec{Mode: ConfirmBatch, Batch: 9, MaxInFlight: 10}, false},
		{PublisherSpec{Mode: FireAndForget}, true},
	} {
		c.spec.Topology = topology
		if _, err := conn.Publisher(t.Context(), c.spec); (err == nil) != c.want || err != nil && !errors.Is(err, ErrUnsupported) {
			t.Errorf("%+v: got %v, want it accepted: %t", c.spec, err, c.want)
		}
	}
}
