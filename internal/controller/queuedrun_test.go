package controller

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"testing"

	"lockstep/internal/plan"
)

// hostNames is a lookup of these names alone.
type hostNames map[string][]string

func (n hostNames) lookup(_ context.Context, _, host string) (all []netip.Addr, err error) {
	if n[host] == nil {
		return nil, errors.New("no such host")
	}
	for _, text := range n[host] {
		all = append(all, netip.MustParseAddr(text))
	}
	return all, nil
}

func TestWhichBrokersAreOne(t *testing.T) {
	hosts := hostNames{"rabbit": {"10.9.0.1", "fd00::1"}, "mq.example": {"10.9.0.1"}, "other": {"10.9.0.2"}, "here": {"127.0.1.1"}}
	for _, x := range []struct {
		a, b string // options of brokers
		one  bool
	}{
		{`{"url":"amqp://rabbit:5672"}`, `{"url":"amqp://rabbit:5672/v"}`, true},
		{`{"url":"amqp://rabbit:5672"}`, `{"url":"amqp://10.9.0.1:5672"}`, true},
		{`{"url":"amqp://rabbit:5672"}`, `{"urls":["amqp://other","amqp://[FD00:0::1]:5672"]}`, true},
		{`{"url":"amqp://rabbit:5672"}`, `{"url":"amqp://[::ffff:10.9.0.1]:5672"}`, true},
		{`{"url":"amqp://rabbit:5672"}`, `{"brokers":["mq.example:9092"]}`, true},
		{`{"url":"amqp://rabbit:5672"}`, `{"brokers":["other:9092"]}`, false},
		{`{"url":"amqp://unknown"}`, `{"url":"nats://Unknown.:4222"}`, true},
		{`{"url":"amqp://unknown"}`, `{"url":"amqp://nobody"}`, false},
		{`{"url":"amqp://localhost"}`, `{"url":"amqp://127.3.4.5"}`, true},
		{`{"url":"amqp://localhost"}`, `{"url":"amqp://[::1]"}`, true},
		{`{"url":"amqp://localhost"}`, `{"url":"amqp://0.0.0.0"}`, true},
		{`{"url":"amqp://localhost"}`, `{"url":"amqp://here"}`, true},
		{`{"url":"amqp://localhost"}`, `{"url":"amqp://rabbit"}`, false},
		{`{"region":"eu-1"}`, `{"region":"eu-1"}`, true},
		{`{"region":"eu-1"}`, `{"region":"eu-2"}`, false},
		{`{"region":"eu-1"}`, `{"url":"amqp://rabbit"}`, false},
	} {
		of := func(options string) map[string]string {
			cell := plan.Cell{Broker: plan.Broker{Name: "b", Options: json.RawMessage(options)}}
			return brokerIdentities(t.Context(), plan.Run{Cells: []plan.Cell{cell}}, hosts.lookup)
		}
		one := false
		b := of(x.b)
		for id := range of(x.a) {
			one = one || b[id] != ""
		}
		if one != x.one {
			t.Errorf("%s and %s are one broker: %v, want %v; identities %v and %v", x.a, x.b, one, x.one, of(x.a), b)
		}
	}
}

func TestTheAddressesOfThisHostAreOne(t *testing.T) {
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range own {
		host := o.(*net.IPNet).IP.String()
		if all := addresses(t.Context(), host, hostNames{}.lookup); len(all) != 1 || all[0] != "loopback" {
			t.Errorf("%s is %v", host, all)
		}
	}
}
