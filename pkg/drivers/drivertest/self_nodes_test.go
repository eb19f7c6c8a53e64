package drivertest

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// placing is loopback with three nodes, which are only names.
type placing struct {
	faulty
	leaders map[string]int
	node    func(drivers.ConnSpec) string
	pinned  func(drivers.ConnSpec) string // of a connection with an index; nil: the node with this index
}

func (p placing) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	s, err := p.faulty.Open(ctx, raw, env)
	if err != nil {
		return nil, err
	}
	return placingSession{s, p}, nil
}

type placingSession struct {
	drivers.Session
	p placing
}

func (s placingSession) Leaders(context.Context, drivers.Topology) (map[string]int, error) {
	return s.p.leaders, nil
}

func (s placingSession) Connect(ctx context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
	c, err := s.Session.Connect(ctx, spec)
	if err != nil {
		return nil, err
	}
	if _, err := strconv.Atoi(string(spec.Node)); err == nil && s.p.pinned == nil {
		return placedConn{c, string(spec.Node)}, nil
	} else if err == nil {
		return placedConn{c, s.p.pinned(spec)}, nil
	}
	return placedConn{c, s.p.node(spec)}, nil
}

type placedConn struct {
	drivers.Conn
	node string
}

func (c placedConn) Node() string { return c.node }

func TestNodes(t *testing.T) {
	nodes := faulty{declare: func(d *drivers.Declaration) { d.Capabilities.Nodes = true }}
	even := map[string]int{"a": 2, "b": 1, "c": 2}
	spread := func(spec drivers.ConnSpec) string { return strconv.Itoa(spec.Ordinal % 3) }
	for name, x := range map[string]struct {
		leaders map[string]int
		node    func(drivers.ConnSpec) string
		passes  bool
	}{
		"spreads":                             {even, spread, true},
		"connects to several nodes at a time": {even, func(drivers.ConnSpec) string { return "" }, true},
		"leads on two nodes":                  {map[string]int{"a": 3, "b": 2, "c": 0}, spread, false},
		"leads nothing":                       {map[string]int{"a": 0, "b": 0, "c": 0}, spread, false},
		"connects to the first node":          {even, func(drivers.ConnSpec) string { return "0" }, false},
		"connects to two nodes": {even, func(spec drivers.ConnSpec) string { return strconv.Itoa(spec.Ordinal % 2) },
			false},
		"ignores the ordinals of consumers": {even, func(spec drivers.ConnSpec) string {
			if spec.Role == drivers.ConsumerRole {
				return "0"
			}
			return spread(spec)
		}, false},
	} {
		r := runOne(t, placing{faulty: nodes, leaders: x.leaders, node: x.node}, "nodes")
		if (len(r.failures) == 0) != x.passes || r.inapplicable != "" {
			t.Errorf("a driver that %s: %v %s", name, r.failures, r.inapplicable)
		}
	}
	calls := 0
	for name, node := range map[string]func(drivers.ConnSpec) string{
		"ignores indexes": func(drivers.ConnSpec) string { return "0" },
		"connects to the next node each time": func(drivers.ConnSpec) string {
			calls++
			return strconv.Itoa(calls)
		},
	} {
		if r := runOne(t, placing{faulty: nodes, leaders: even, node: spread, pinned: node}, "nodes"); len(r.failures) == 0 {
			t.Errorf("a driver that %s passes", name)
		}
	}
	for name, d := range map[string]drivers.Driver{
		"without nodes": faulty{}, "with one node": placing{leaders: map[string]int{"a": 5}, node: spread},
		"that reports none": placing{node: spread},
	} {
		if r := runOne(t, d, "nodes"); len(r.failures) > 0 || r.inapplicable == "" {
			t.Errorf("a driver %s: %v", name, r.failures)
		}
	}
}
