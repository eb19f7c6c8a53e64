package drivertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// checkCleaner proves that Leftovers finds what Setup declared by its name, and nothing else, and that Cleanup removes
// it without affecting other topologies.
func checkCleaner(c *check) {
	u := c.use(c.anyMode())
	r, kept := c.rig(u), c.rig(u)
	cleaner, can := drivers.As[drivers.Cleaner](c.session()) // a new one: the sessions of a killed run do not exist
	if !can {
		c.notApplicable("the session is no Cleaner")
	}
	listed := func(prefix string) []drivers.Leftover {
		all, err := cleaner.Leftovers(c.ctx, prefix)
		if errors.Is(err, drivers.ErrUnsupported) {
			c.notApplicable("%v", err)
		}
		c.must(err, "list leftovers")
		if !slices.IsSortedFunc(all, func(a, b drivers.Leftover) int {
			return strings.Compare(a.Kind+"\x00"+a.Name, b.Kind+"\x00"+b.Name)
		}) {
			c.errorf("leftovers are not sorted by kind and name: %v", all)
		}
		for _, x := range all {
			if x.Kind == "" || !strings.HasPrefix(x.Name, prefix) {
				c.errorf("%+v is listed for %q", x, prefix)
			}
		}
		return all
	}
	there := listed(r.topology.Name)
	if len(there) == 0 {
		c.fatalf("no object that Setup declared is listed")
	}
	c.logf("%v", there)
	both := listed("drivertest-")
	if !slices.ContainsFunc(both, func(x drivers.Leftover) bool { return strings.HasPrefix(x.Name, kept.topology.Name) }) {
		c.errorf("no object of the other topology %s is listed for drivertest-: %v", kept.topology.Name, both)
	}
	if none := listed(r.topology.Name + "-there-is-none"); len(none) > 0 {
		c.errorf("%v are listed for an unused name", none)
	}
	c.must(cleaner.Cleanup(c.ctx, there), "cleanup")
	c.eventually(func() bool { return len(listed(r.topology.Name)) == 0 }, func() string {
		return fmt.Sprintf("%v is there after it was cleaned up", listed(r.topology.Name))
	})
	c.must(cleaner.Cleanup(c.ctx, there), "cleanup of deleted objects")
	c.must(cleaner.Cleanup(c.ctx, nil), "cleanup of an empty list")
	if left := listed(kept.topology.Name); len(left) == 0 {
		c.errorf("an object that was not in the list is deleted")
	}
	in := kept.inbox(nil)
	s := kept.sender(1)
	s.send(5)
	if kept.keeps() {
		in.exactly(s.kept())
	}
}
