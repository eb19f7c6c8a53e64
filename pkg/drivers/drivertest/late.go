package drivertest

import (
	"fmt"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// checkCutLate closes publishers and consumers while their connections break: before the driver detects it, and while
// it reports it. The reason of the end must not change afterwards.
func checkCutLate(c *check) {
	if c.h.NoNetwork && c.h.Cut == nil {
		c.notApplicable("there are no connections to cut")
	}
	u := c.use(c.anyMode())
	c.need(u)
	reasons := map[drivers.Conn]error{}
	for i, after := range []time.Duration{0, 0, 500 * time.Microsecond, time.Millisecond, 3 * time.Millisecond,
		10 * time.Millisecond} {
		r := c.rig(u)
		s, in := r.sender(uint32(i)), r.inbox(nil)
		s.send(1)
		c.broke.Store(true)
		cut := make(chan struct{})
		go func() {
			defer close(cut)
			c.cut()
		}()
		time.Sleep(after)
		send := func() {
			s.close()
			c.end(s.conn)
		}
		if i%2 == 0 {
			send()
		}
		in.close()
		c.end(in.conn)
		if i%2 == 1 {
			send()
		}
		reasons[s.conn], reasons[in.conn] = s.conn.Err(), in.conn.Err()
		c.await(cut, "the cut")
	}
	c.linger()
	for conn, reason := range reasons {
		if now := conn.Err(); fmt.Sprint(now) != fmt.Sprint(reason) {
			c.errorf("Err of a connection changes from %v to %v after Close", reason, now)
		}
	}
}
