package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// checkInfo proves that Info and Declare are complete, and that Declare is pure.
func checkInfo(c *check) {
	info := c.h.Driver.Info()
	if info.Name == "" || info.Doc == "" {
		c.errorf("Info has no name or no doc")
	}
	if !strings.Contains(info.Schema, "#Options") {
		c.errorf("Info.Schema does not define #Options")
	}
	if err := drivers.CheckMetrics(info.Metrics); err != nil {
		c.errorf("Info.Metrics: %v", err)
	}
	known := drivers.Modes()
	for _, m := range known {
		u := c.use(m)
		d := c.declare(u)
		if diff := cmp.Diff(d, c.declare(u)); diff != "" {
			c.errorf("Declare is not pure: %s", diff)
		}
		if d.Label == "" {
			c.errorf("Declare returns no label: tables need it for the meaning of a confirm")
		}
		if len(d.Capabilities.Modes) == 0 || len(d.Capabilities.Acks) == 0 {
			c.errorf("Declare names no mode or no acknowledgement")
		}
		if !d.Capabilities.Persistent && !d.Capabilities.Transient {
			c.errorf("Declare allows neither persistent nor transient messages")
		}
	}
}

// checkGarbage calls Open with invalid options.
func checkGarbage(c *check) {
	for _, raw := range []string{`{`, `[]`, `"x"`, `{"name": {}}{`} {
		var s drivers.Session
		var err error
		c.within(c.wait, "Open", func() { s, err = c.h.Driver.Open(c.ctx, json.RawMessage(raw), c.env()) })
		if err == nil {
			c.errorf("Open with options %s gives no error", raw)
			if s != nil {
				_ = s.Close()
			}
		}
	}
}

// checkOpenTwice opens two sessions, closes one twice, and proves that the other one still works.
func checkOpenTwice(c *check) {
	a, b := c.session(), c.session()
	for _, s := range []drivers.Session{a, a} {
		c.must(s.Close(), "close a session, the second time too")
	}
	u := c.use(c.anyMode())
	t := topology(u)
	c.must(b.Setup(c.ctx, t), "Setup in a session whose neighbour closed")
	c.must(b.Teardown(c.ctx, t), "Teardown")
	r := newRig(c, u, a, t)
	c.within(c.wait, "Connect and Publisher of a closed session", func() {
		if _, err := r.connectPublisher(c.ctx); err == nil {
			c.errorf("a closed session connects a publisher")
		}
	})
}

// checkOptional logs the optional interfaces of a session, and proves that it implements each one whole or not at all.
func checkOptional(c *check) {
	inner, _ := drivers.As[any](c.session())
	session := reflect.TypeOf(inner)
	var found, missing []string
	for _, x := range []reflect.Type{
		reflect.TypeFor[drivers.Describer](), reflect.TypeFor[drivers.Prober](), reflect.TypeFor[drivers.Binder](),
		reflect.TypeFor[drivers.Cleaner](), reflect.TypeFor[drivers.Verifier](), reflect.TypeFor[drivers.ClientProcesses](),
		reflect.TypeFor[drivers.Placer](),
	} {
		if session.Implements(x) {
			found = append(found, x.Name())
			continue
		}
		missing = append(missing, x.Name())
		for i := range x.NumMethod() {
			if _, has := session.MethodByName(x.Method(i).Name); has {
				c.errorf("the session has a method %s, but does not implement %v", x.Method(i).Name, x)
			}
		}
	}
	c.logf("optional interfaces: %s; not implemented: %s", strings.Join(found, ", "), strings.Join(missing, ", "))
}

// checkDead opens a session to an address that refuses connections. There must be an error that names the address, in
// time.
func checkDead(c *check) {
	if c.h.DeadOptions == nil {
		c.notApplicable("the harness has no options for a broker that is not there")
	}
	want := c.h.DeadAddress
	if want == "" {
		want = "127.0.0.1"
	}
	if err := c.rejects("Open to a broker that does not exist", c.h.DeadOptions); err != nil &&
		!strings.Contains(err.Error(), want) {
		c.errorf("the error does not name the address %s: %v", want, err)
	}
}

// WrongPassword is the password of Harness.WrongCredentials.
const WrongPassword = "wr0ng-passw0rd"

// checkCredentials opens a session with a wrong password. There must be an error, in time, that does not contain the
// password.
func checkCredentials(c *check) {
	if c.h.WrongCredentials == nil {
		c.notApplicable("the harness has no wrong credentials")
	}
	if err := c.rejects("Open with a wrong password", c.h.WrongCredentials); err != nil &&
		strings.Contains(err.Error(), WrongPassword) {
		c.errorf("the error contains the password: %v", err)
	}
}

// rejects calls openAndConnect with options that do not work. The check fails if there is no error, or if it comes only
// when its context ends. It returns the error.
func (c *check) rejects(doing string, options json.RawMessage) (err error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.wait)
	defer cancel()
	began, errs := time.Now(), make(chan error, 1)
	c.within(c.wait+5*time.Second, doing, func() { errs <- c.openAndConnect(ctx, options) })
	select {
	case err = <-errs:
	default: // it hangs, or has ended the check
		return nil
	}
	c.logf("after %v: %v", time.Since(began).Round(time.Millisecond), err)
	if err == nil {
		c.errorf("%s: Open, Setup and Publisher succeed", doing)
	}
	if ctx.Err() != nil {
		c.errorf("%s: the error came only when its context ended: %v", doing, err)
	}
	return err
}

// openAndConnect opens a session, sets up a topology and connects a publisher. It returns the first error.
func (c *check) openAndConnect(ctx context.Context, options json.RawMessage) error {
	s, err := drivers.Checked(ctx, c.h.Driver, options, c.env())
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	u := c.use(c.anyMode())
	r := newRig(c, u, s, topology(u))
	if err := s.Setup(ctx, r.topology); err != nil {
		return err
	}
	defer func() {
		end, cancel := withLimit(c.wait)
		defer cancel()
		_ = s.Teardown(end, r.topology)
	}()
	_, err = r.connectPublisher(ctx)
	return err
}

// connectPublisher connects a publisher, and closes it with its connection.
func (r *rig) connectPublisher(ctx context.Context) (*sender, error) {
	conn, err := r.session.Connect(ctx, drivers.ConnSpec{Role: drivers.PublisherRole, Topology: r.topology,
		Node: r.use.PublisherNode})
	if err != nil {
		return nil, err
	}
	s := r.c.newSender(1, r.use.Mode)
	s.conn = conn
	if s.pub, err = conn.Publisher(ctx, s.spec(r.publisherSpec())); err == nil {
		err = s.pub.Close()
	}
	return s, errors.Join(err, conn.Close())
}

// checkCancelOpen cancels the context while the broker cannot be reached.
func checkCancelOpen(c *check) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	if c.h.NoNetwork {
		cancel()
	} else {
		c.dial.hanging = cancel
	}
	c.within(c.wait, "Open or Publisher with a cancelled context", func() {
		if err := c.openAndConnect(ctx, c.h.Options); err == nil {
			c.errorf("Open, Setup and Publisher succeed with a cancelled context")
		}
	})
}

// checkDialRefused proves that the driver bypasses Dial nowhere: if Dial fails, nothing works.
func checkDialRefused(c *check) {
	c.needDial()
	c.dial.refuse.Store(true)
	c.within(c.wait+5*time.Second, "Open through a dialer that refuses", func() {
		ctx, cancel := context.WithTimeout(c.ctx, c.wait)
		defer cancel()
		if err := c.openAndConnect(ctx, c.h.Options); err == nil {
			c.errorf("a publisher is connected although Dial refused every connection: something goes past Dial")
		}
	})
	if c.dial.dials.Load() == 0 {
		c.errorf("the driver failed without calling Dial")
	}
}

func (c *check) needDial() {
	if c.h.NoNetwork {
		c.notApplicable("the driver makes no connections")
	}
}

// checkDialCounted proves that every body goes through Dial, in both directions.
func checkDialCounted(c *check) {
	c.needDial()
	r := c.rig(c.use(c.anyMode()))
	in := r.inbox(nil)
	s := r.sender(1)
	const n, size = 20, 4096
	for range n {
		c.must(s.publish(c.ctx, 0, size), "publish")
	}
	s.settle()
	in.arrive(s.kept())
	sent, got := &c.dial.writings, &c.dial.readings
	c.eventually(func() bool { return sent.Load() >= n*size && got.Load() >= n*size }, func() string {
		return fmt.Sprintf("%d messages of %d bytes made %d bytes sent and %d received through Dial: something goes past it", n, size, sent.Load(), got.Load())
	})
}

// checkConns counts connections. Each Conn must have its own.
func checkConns(c *check) {
	c.needDial()
	u := c.use(c.anyMode())
	u.Publishers = 8
	r := c.rig(u)
	start := c.dial.dials.Load()
	for i := range 4 {
		r.sender(uint32(i)).send(1)
	}
	shared := c.dial.dials.Load() - start
	for i := range 4 {
		r.ownSender(uint32(4 + i)).send(1)
	}
	own := func() int64 { return c.dial.dials.Load() - start - shared }
	c.eventually(func() bool { return own() >= 4 }, func() string {
		return fmt.Sprintf("4 Conns made %d connections: they share", own())
	})
	c.logf("4 publishers of one Conn: %d dials; 4 of a Conn each: %d", shared, own())
}

// checkDescribe requests the broker's description.
func checkDescribe(c *check) {
	d, ok := drivers.As[drivers.Describer](c.session())
	if !ok {
		c.notApplicable("the session is no Describer")
	}
	described, err := d.Describe(c.ctx)
	c.must(err, "Describe")
	c.logf("%+v", described)
	if described.Product == "" {
		c.errorf("Describe names no product")
	}
}

// checkSetup repeats Setup. It must return no error, and leave no earlier messages.
func checkSetup(c *check) {
	r := c.rig(c.use(c.anyMode()))
	s := r.sender(1)
	s.send(10)
	c.must(s.pub.Close(), "close a publisher")
	for range 2 {
		c.must(r.session.Setup(c.ctx, r.topology), "Setup again")
	}
	r.isEmpty()
}

// isEmpty proves that the next message is the only one in the queue.
func (r *rig) isEmpty() {
	in := r.inbox(nil)
	in.once = true
	s := r.sender(2)
	s.send(1)
	in.exactly(s.kept())
}

// checkTeardown tears down a topology that does not exist, and then one that another session declared.
func checkTeardown(c *check) {
	r := c.rig(c.use(c.anyMode()))
	c.must(c.session().Teardown(c.ctx, topology(r.use)), "Teardown without a topology")
	s := r.sender(1)
	s.send(5)
	c.must(s.pub.Close(), "close a publisher")
	other := c.session()
	c.must(other.Teardown(c.ctx, r.topology), "Teardown by another session")
	c.must(other.Teardown(c.ctx, r.topology), "Teardown again")
	c.must(r.session.Setup(c.ctx, r.topology), "Setup after Teardown")
	r.isEmpty()
}
