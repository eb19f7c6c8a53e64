package drivertest

import (
	"sync/atomic"
	"time"
)

// closeNotice is an OnClosed that takes some time, to detect a Close that does not wait for it.
type closeNotice struct {
	c      *check
	of     string
	closed atomic.Bool // Close has returned
}

func (n *closeNotice) onClosed(error) {
	time.Sleep(20 * time.Millisecond)
	if n.closed.Load() {
		n.c.errorf("OnClosed of a %s runs although Close has returned: it would be taken for the end of the link that replaced this one", n.of)
	}
}

func (n *closeNotice) close(end func() error) {
	n.c.within(n.c.wait, "Close of a "+n.of+" as its link breaks", func() { _ = end() })
	n.closed.Store(true)
}

// checkCutLate closes publishers and consumers while their links break: before the driver detects it, and while it
// reports it.
func checkCutLate(c *check) {
	if c.h.NoNetwork && c.h.Cut == nil {
		c.notApplicable("there are no connections to cut")
	}
	u := c.use(c.anyMode())
	c.need(u)
	for i, after := range []time.Duration{0, 0, 500 * time.Microsecond, time.Millisecond, 3 * time.Millisecond,
		10 * time.Millisecond} {
		r := c.rig(u)
		sending, receiving := &closeNotice{c: c, of: "publisher"}, &closeNotice{c: c, of: "consumer"}
		s := c.newSender(uint32(i), u.Mode)
		spec := s.spec(r.publisherSpec())
		spec.OnClosed = sending.onClosed
		publisher, err := r.session.Publisher(c.ctx, spec)
		c.must(err, "connect a publisher")
		s.pub = publisher
		s.send(1)
		in := r.consumerSpec()
		in.OnClosed = receiving.onClosed
		consumer, err := r.session.Consumer(c.ctx, in, (&inbox{c: c, batch: in.Batch, counts: map[id]int{}}).handle)
		c.must(err, "connect a consumer")
		cut := make(chan struct{})
		go func() {
			defer close(cut)
			c.cut()
		}()
		time.Sleep(after)
		if i%2 == 0 {
			sending.close(publisher.Close)
			receiving.close(consumer.Close)
		} else {
			receiving.close(consumer.Close)
			sending.close(publisher.Close)
		}
		c.await(cut, "the cut")
	}
	c.linger()
}
