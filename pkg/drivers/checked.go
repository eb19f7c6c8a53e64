package drivers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Unsupported returns the requirements of a use that the configuration does not support, in words, besides Rejections.
// An empty Mode or Ack is not checked.
func (d Declaration) Unsupported(driver string, use Use) []string {
	has := d.Capabilities
	var out []string
	rejectIf := func(missing bool, format string, args ...any) {
		if missing {
			out = append(out, driver+" with these options "+fmt.Sprintf(format, args...))
		}
	}
	rejectIf(use.Mode != "" && !slices.Contains(has.Modes, use.Mode), "cannot publish %s (it can: %s)", use.Mode,
		list(has.Modes))
	rejectIf(use.Mandatory && !has.Mandatory, "does not return unroutable messages (mandatory)")
	rejectIf(use.Persistent && !has.Persistent, "cannot store messages persistently (persistent: true)")
	rejectIf(!use.Persistent && !has.Transient, "always stores messages persistently (persistent: false)")
	rejectIf(use.Subscriptions > 1 && !has.Subscriptions, "does not support several subscriptions")
	rejectIf(use.Bindings > 1 && !has.Bindings, "does not support %d bindings per queue", use.Bindings)
	rejectIf(use.Existing && !has.Existing, "cannot use existing queues (topology.existing)")
	rejectIf(use.Churn && !has.Churn, "does not support churn of bindings (topology.churn)")
	rejectIf(use.Keys && !has.Keys, "does not use message keys (message.keys)")
	if use.Consumers > 0 {
		rejectIf(use.Nack && !has.Redelivery, "does not redeliver rejected messages (consumers.nack)")
		rejectIf(use.Ack != "" && !slices.Contains(has.Acks, use.Ack), "cannot acknowledge %q (it can: %s)", use.Ack,
			list(has.Acks))
		rejectIf(use.Prefetch == 0 && !has.UnlimitedPrefetch, "has no unlimited prefetch (prefetch: 0)")
		rejectIf(use.ConsumerNode.Chosen() && !has.Nodes, "cannot place consumers on node %s", use.ConsumerNode)
	}
	rejectIf(use.PublisherNode.Chosen() && !has.Nodes, "cannot place publishers on node %s", use.PublisherNode)
	rejectIf(use.QueueNode.Chosen() && !has.Nodes, "cannot place queues on node %s", use.QueueNode)
	return out
}

func list[T ~string](all []T) string {
	out := make([]string, len(all))
	for i, x := range all {
		out[i] = string(x)
	}
	return strings.Join(out, ", ")
}

// Checked opens a session that rejects topologies and specs that are invalid, or that the driver did not declare for
// the options, before the driver is called. The error has all reasons, and wraps ErrUnsupported if one of them is a
// missing declaration. As returns the optional interfaces of the session. The Env of the driver has Event and Retried.
func Checked(ctx context.Context, d Driver, options json.RawMessage, env Env) (Session, error) {
	if env.Event == nil {
		env.Event = func(EventKind, string) {}
	}
	if env.Retried == nil {
		env.Retried = func(int64) {}
	}
	s, err := d.Open(ctx, options, env)
	if err != nil {
		return nil, err
	}
	info := d.Info()
	c := &checked{Session: s, driver: info.Name, known: map[Use][]string{},
		declare: func(u Use) Declaration { return info.Declare(options, u) }}
	use := useOf(Topology{Queues: 1, Subscriptions: 1, Bindings: 1, Publishers: 1})
	use.Mode, use.Ack = ConfirmWindow, AckEach
	c.modes = c.declare(use).Capabilities.Modes
	return c, nil
}

// As returns an optional interface of a session, which may be one that Checked opened.
func As[T any](s Session) (T, bool) {
	var inner any = s
	if c, is := inner.(*checked); is {
		inner = c.Session
	}
	x, is := inner.(T)
	return x, is
}

// checked is a session that checks the arguments of all calls.
type checked struct {
	Session
	driver  string // its name
	declare func(Use) Declaration
	modes   []Mode // the declared modes, for calls that have none

	mu    sync.Mutex
	known map[Use][]string // results of reasons: modes with a connection per message call Connect for each
}

// reasons returns why a use is not supported. Without a mode, the use is supported if it is in any declared mode;
// otherwise the reasons are those of the mode with the fewest.
func (c *checked) reasons(use Use) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out, known := c.known[use]
	if known {
		return out
	}
	modes := []Mode{use.Mode}
	if use.Mode == "" && len(c.modes) > 0 {
		modes = c.modes
	}
	for i, mode := range modes {
		full := use
		full.Mode = mode
		d := c.declare(full)
		if why := append(d.Unsupported(c.driver, use), d.Rejections...); i == 0 || len(why) < len(out) {
			out = why
		}
	}
	c.known[use] = out
	return out
}

// refuse returns an error if an argument is invalid, or there are reasons why the use is not supported.
func refuse(doing string, invalid, reasons []string) error {
	switch {
	case len(reasons) > 0:
		return fmt.Errorf("%s: %s: %w", doing, strings.Join(append(invalid, reasons...), "; "), ErrUnsupported)
	case len(invalid) > 0:
		return errors.New(doing + ": " + strings.Join(invalid, "; "))
	}
	return nil
}

// useOf returns the use of a topology by the simplest publishers, without consumers, whose acknowledgements and
// prefetch are not known.
func useOf(t Topology) Use {
	return Use{Persistent: t.Persistent, Prefetch: 1, Queues: t.Queues, Subscriptions: t.Subscriptions,
		Bindings: t.Bindings, Publishers: t.Publishers, Existing: t.Existing != "", PublisherNode: AnyNode,
		ConsumerNode: AnyNode, QueueNode: cmp.Or(t.QueueNode, AnyNode)}
}

func invalidTopology(t Topology) []string {
	if t.Name == "" || t.Queues < 1 || t.Subscriptions < 1 || t.Bindings < 1 {
		return []string{fmt.Sprintf("topology %q with %d queues, %d subscriptions and %d bindings: give a name, and 1 "+
			"or more of each", t.Name, t.Queues, t.Subscriptions, t.Bindings)}
	}
	if t.Existing != "" && (t.Subscriptions > 1 || t.Bindings > 1) {
		return []string{fmt.Sprintf("existing queue %q with %d subscriptions and %d bindings: give 1 of each", t.Existing,
			t.Subscriptions, t.Bindings)}
	}
	return nil
}

func (c *checked) Setup(ctx context.Context, t Topology) error {
	if err := refuse("set up "+t.Name, invalidTopology(t), c.reasons(useOf(t))); err != nil {
		return err
	}
	if t.Existing == "" {
		return c.Session.Setup(ctx, t)
	}
	v, is := c.Session.(Verifier)
	if !is {
		return fmt.Errorf("verify %s: %w", t.Existing, ErrUnsupported)
	}
	return v.Verify(ctx, t)
}

// Teardown also removes what the driver does not support any more. It leaves existing queues alone.
func (c *checked) Teardown(ctx context.Context, t Topology) error {
	if invalid := invalidTopology(t); len(invalid) > 0 {
		return errors.New("tear down: " + invalid[0])
	}
	if t.Existing != "" {
		return nil
	}
	return c.Session.Teardown(ctx, t)
}

func (c *checked) Connect(ctx context.Context, spec ConnSpec) (Conn, error) {
	use := useOf(spec.Topology)
	invalid := invalidTopology(spec.Topology)
	if spec.Role != PublisherRole && spec.Role != ConsumerRole {
		invalid = append(invalid, fmt.Sprintf("role %q: give publisher or consumer", spec.Role))
	}
	if spec.Role == PublisherRole {
		use.PublisherNode = cmp.Or(spec.Node, AnyNode)
	}
	reasons := c.reasons(use)
	if spec.Role == ConsumerRole && spec.Node.Chosen() && !c.declare(use).Capabilities.Nodes {
		reasons = append(slices.Clip(reasons), fmt.Sprintf("%s cannot place consumers on node %s", c.driver, spec.Node))
	}
	if err := refuse("connect", invalid, reasons); err != nil {
		return nil, err
	}
	conn, err := c.Session.Connect(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &checkedConn{conn, c, spec}, nil
}

// checkedConn is a connection that checks the arguments of all calls.
type checkedConn struct {
	Conn
	session *checked
	spec    ConnSpec
}

// misused returns why a connection cannot have a publisher or a consumer.
func (c *checkedConn) misused(role Role) []string {
	if role != c.spec.Role {
		return []string{fmt.Sprintf("its connection has the role %s", c.spec.Role)}
	}
	return nil
}

func (c *checkedConn) Publisher(ctx context.Context, spec PublisherSpec) (Publisher, error) {
	use := useOf(spec.Topology)
	use.Mode, use.Persistent, use.Mandatory, use.Keys = spec.Mode, spec.Persistent, spec.Mandatory, spec.Keyed
	use.PublisherNode, use.MaxInFlight = cmp.Or(c.spec.Node, AnyNode), 1
	switch spec.Mode {
	case ConfirmWindow:
		use.MaxInFlight = spec.MaxInFlight
	case ConfirmBatch:
		use.MaxInFlight = spec.Batch
	}
	invalid := append(c.misused(PublisherRole), invalidTopology(spec.Topology)...)
	if spec.Mode == "" {
		invalid = append(invalid, "it has no mode")
	}
	if err := refuse("connect publisher", invalid, c.session.reasons(use)); err != nil {
		return nil, err
	}
	return c.Conn.Publisher(ctx, spec)
}

func (c *checkedConn) Consumer(ctx context.Context, spec ConsumerSpec, handle Handler) (Consumer, error) {
	t := spec.Topology
	use := useOf(t)
	use.Consumers = max(1, t.Consumers)
	use.Ack, use.Prefetch, use.Nack, use.ConsumerNode = spec.Ack, spec.Prefetch, spec.Nack, cmp.Or(c.spec.Node, AnyNode)
	invalid := append(c.misused(ConsumerRole), invalidTopology(t)...)
	rejectIf := func(wrong bool, format string, args ...any) {
		if wrong {
			invalid = append(invalid, fmt.Sprintf(format, args...))
		}
	}
	rejectIf(spec.Ack == "", "it has no acknowledgement")
	rejectIf(t.Consumers < 1, "topology %q is for no consumers", t.Name)
	rejectIf(spec.Queue < 0 || spec.Queue >= t.Queues, "queue %d of %d", spec.Queue, t.Queues)
	rejectIf(spec.Subscription < 0 || spec.Subscription >= t.Subscriptions, "subscription %d of %d", spec.Subscription,
		t.Subscriptions)
	rejectIf(spec.Batch < 1, "batch %d: give 1 or more", spec.Batch)
	rejectIf(spec.Prefetch < 0, "prefetch %d: give 1 or more, or 0 for no limit", spec.Prefetch)
	if err := refuse("connect consumer", invalid, c.session.reasons(use)); err != nil {
		return nil, err
	}
	return c.Conn.Consumer(ctx, spec, handle)
}
