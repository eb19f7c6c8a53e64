package drivertest

import (
	"slices"
	"strconv"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// spreadParts is the number of queues, and of connections of each role. It is no multiple of the usual numbers of
// nodes.
const spreadParts = 5

// checkNodes proves that drivers.SpreadNode distributes the leaders of queues, and the connections of each role, over
// the nodes of a cluster, so that their numbers differ by at most one, as the driver reports them.
func checkNodes(c *check) {
	u := c.use(c.anyMode())
	u.Queues, u.Publishers, u.Consumers = spreadParts, spreadParts, spreadParts
	u.PublisherNode, u.ConsumerNode, u.QueueNode = drivers.SpreadNode, drivers.SpreadNode, drivers.SpreadNode
	c.need(u)
	if _, can := drivers.As[drivers.Placer](c.session()); !can {
		c.notApplicable("the session is no Placer")
	}
	r := c.rig(u)
	placer, _ := drivers.As[drivers.Placer](r.session)
	leaders, err := placer.Leaders(c.ctx, r.topology)
	c.must(err, "Leaders")
	if leaders == nil {
		c.notApplicable("the broker does not report leaders")
	}
	var counts []int
	sum := 0
	for _, n := range leaders {
		counts, sum = append(counts, n), sum+n
	}
	if sum < spreadParts {
		c.fatalf("%d queues have %d leaders: %v", spreadParts, sum, leaders)
	}
	balanced(c, "leaders", counts)
	nodes := len(leaders)
	if nodes < 2 {
		c.notApplicable("the broker has one node")
	}
	for _, role := range []drivers.Role{drivers.PublisherRole, drivers.ConsumerRole} {
		at := map[string]int{}
		for i := range spreadParts {
			conn, err := r.session.Connect(c.ctx, drivers.ConnSpec{Role: role, Topology: r.topology,
				Node: drivers.SpreadNode, Ordinal: i})
			c.must(err, "connect a "+string(role))
			c.cleanups = append(c.cleanups, func() { c.end(conn) })
			at[conn.Node()]++
		}
		c.logf("%d connections of %ss: %v", spreadParts, role, at)
		if at[""] == spreadParts {
			continue // the client library connects to the nodes that it needs
		}
		counts = nil
		for _, n := range at {
			counts = append(counts, n)
		}
		for len(counts) < nodes {
			counts = append(counts, 0)
		}
		balanced(c, "connections of "+string(role)+"s", counts)
	}
	checkIndexes(r, nodes)
}

// checkIndexes proves that connections to a node by its index reach one node, and that no other index reaches it.
func checkIndexes(r *rig, nodes int) {
	c, at := r.c, map[string]int{} // index by node
	for i := range 2 * nodes {
		index := i / 2
		u := r.use
		u.PublisherNode = drivers.Node(strconv.Itoa(index))
		if d := c.declare(u); len(d.Unsupported(c.h.Driver.Info().Name, u))+len(d.Rejections) > 0 {
			continue // nodes cannot be chosen, or the options have fewer endpoints than the cluster has nodes
		}
		conn, err := r.session.Connect(c.ctx, drivers.ConnSpec{Role: drivers.PublisherRole, Topology: r.topology,
			Node: u.PublisherNode})
		c.must(err, "connect a publisher to node "+string(u.PublisherNode))
		c.cleanups = append(c.cleanups, func() { c.end(conn) })
		name := conn.Node()
		if other, seen := at[name]; seen && other != index && name != "" {
			c.errorf("indexes %d and %d connect to the same node %s", other, index, name)
		}
		at[name] = index
		if len(at) > index+1 {
			c.errorf("index %d connects to several nodes: %v", index, at)
		}
	}
}

// balanced proves that the numbers of the nodes differ by at most one.
func balanced(c *check, what string, counts []int) {
	c.logf("%s per node: %v", what, counts)
	if slices.Max(counts)-slices.Min(counts) > 1 {
		c.errorf("the numbers of %s per node differ by more than one: %v", what, counts)
	}
}
