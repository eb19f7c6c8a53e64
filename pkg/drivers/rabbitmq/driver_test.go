package rabbitmq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// kept is the subset for another type of queue: storage of its messages, and positions of consumers.
var kept = slices.Concat(drivertest.MessagePath(), []string{"close", "ready", "batch", "cut/consumer"})

// whole is the whole suite for classic queues of the single broker of a part of the lab.
func whole(t testing.TB, part string) drivertest.Harness {
	u, err := url.Parse(lab.Variable(t, "LOCKSTEP_"+part+"_URL"))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(u.User.Username(), drivertest.WrongPassword)
	h := harness(driver{}, partOptions(t, part, `{}`), nil)
	h.Reject = &drivertest.Rejection{Options: partOptions(t, part, full)}
	h.WrongCredentials = partOptions(t, part, fmt.Sprintf(`{"url": %q}`, u))
	return h
}

// full are options for a queue that rejects messages while it is full. A body that is too large ends the channel
// instead.
const full = `{"queue": {"maxLength": 10, "overflow": "reject-publish"}}`

func TestConformance(t *testing.T) {
	cases := []struct {
		name, options string
		subset        []string
	}{
		{"stream", `{"queue": {"type": "stream"}}`, kept},
		{"classic-default-exchange", `{"exchange": {"type": "default"}}`, drivertest.MessagePath()},
		{"coalesced", `{"coalesceWrites": true, "resilience": "none"}`, []string{"mode", "close", "close-dead", "ack", "order",
			"publish-blocks", "cut"}},
		{"headers", `{"exchange": {"type": "headers"}}`, drivertest.MessagePath()},
		{"fanout", `{"exchange": {"type": "fanout"}}`, drivertest.MessagePath()},
	}
	all := map[string]drivertest.Harness{
		"classic":            whole(t, "RABBITMQ"),
		"classic-persistent": harness(persistent{}, single(t, `{}`), drivertest.MessagePath()),
	}
	for _, c := range cases {
		h := harness(driver{}, single(t, c.options), c.subset)
		h.WholeChunks = c.name == "stream"
		all[c.name] = h
	}
	for _, part := range []string{"RABBITMQ4", "RABBITMQ43"} {
		h := whole(t, part)
		h.Subset = slices.Concat(drivertest.MessagePath(), []string{"probe", "describe", "cleanup", "cut"})
		all["classic-"+part] = h
	}
	drivertest.RunAll(t, all)
}

// TestProbeOfACluster covers the probe, TestConformanceLong the whole suite.
func TestConformanceCluster(t *testing.T) {
	subset := slices.Concat(kept, []string{"open", "dial", "describe", "session-close", "nodes", "cut"})
	drivertest.Run(t, harness(driver{}, cluster(t, `{"queue": {"type": "quorum"}}`), subset))
}

// Whole suites for variants and other releases, and the other types of queue there and in a cluster.
func TestConformanceLong(t *testing.T) {
	labtest.Long(t)
	t.Run("stream", func(t *testing.T) {
		h := harness(driver{}, single(t, `{"queue": {"type": "stream"}}`), nil)
		h.WholeChunks = true
		drivertest.Run(t, h)
	})
	t.Run("quorum", func(t *testing.T) {
		drivertest.Run(t, harness(driver{}, single(t, `{"queue": {"type": "quorum"}}`), drivertest.MessagePath()))
	})
	for _, part := range []string{"RABBITMQ4", "RABBITMQ43"} {
		t.Run(part+"-classic", func(t *testing.T) { drivertest.Run(t, whole(t, part)) })
		for _, kind := range []string{"quorum", "stream"} {
			t.Run(part+"-"+kind, func(t *testing.T) {
				drivertest.Run(t, harness(driver{}, partOptions(t, part, `{"queue": {"type": "`+kind+`"}}`), kept))
			})
		}
	}
	for _, c := range []struct {
		name, options string
		subset        []string
	}{
		{"quorum", `{"queue": {"type": "quorum"}}`, nil},
		{"stream", `{"queue": {"type": "stream"}}`, drivertest.MessagePath()},
		{"mirrored", `{"policy": {"ha-mode": "all", "ha-sync-mode": "automatic"}}`, drivertest.MessagePath()},
	} {
		t.Run("cluster-"+c.name, func(t *testing.T) {
			h := harness(driver{}, cluster(t, c.options), c.subset)
			h.WholeChunks = c.name == "stream"
			drivertest.Run(t, h)
		})
	}
}

// persistent is the driver for persistent messages only, which has the strongest guarantees.
type persistent struct{ driver }

func (p persistent) Info() drivers.Info {
	info := p.driver.Info()
	plain := info.Declare
	info.Declare = func(options json.RawMessage, use drivers.Use) drivers.Declaration {
		d := plain(options, use)
		d.Capabilities.Transient = false
		return d
	}
	return info
}

func harness(d drivers.Driver, options json.RawMessage, subset []string) drivertest.Harness {
	return drivertest.Harness{
		Driver:      d,
		Options:     options,
		Subset:      subset,
		DeadOptions: json.RawMessage(`{"url": "amqp://somebody:secret@127.0.0.1:1/"}`),
		DeadAddress: "127.0.0.1:1",
		Existing:    drivertest.Declared(driver{}, restricted),
	}
}

// restricted makes a user without the permission to configure anything, and without management.
func restricted(ctx context.Context, of drivers.Session, t drivers.Topology, made *drivertest.Existing) error {
	s := of.(*session)
	made.Queue = s.options.queueName(t, 0, 0)
	user := t.Name
	err := errors.Join(
		s.api.call(ctx, http.MethodPut, nil, map[string]any{"password": "secret", "tags": ""}, nil, "users", user),
		s.api.call(ctx, http.MethodPut, nil, map[string]any{"configure": "", "write": "^amq\\.default$", "read": "^" + t.Name},
			nil, "permissions", s.endpoints[0].vhost, user))
	remove := made.Remove
	made.Remove = func() error {
		gone := s.api.call(context.Background(), http.MethodDelete, nil, nil, nil, "users", user)
		return errors.Join(gone, remove())
	}
	at, parseErr := url.Parse(s.options.All()[0])
	if parseErr != nil {
		return errors.Join(err, parseErr)
	}
	at.User = url.UserPassword(user, "secret")
	own := s.options
	made.Options, parseErr = json.Marshal(map[string]any{"url": at.String(), "queue": map[string]any{"type": own.Queue.Type},
		"coalesceWrites": own.CoalesceWrites})
	return errors.Join(err, parseErr)
}

// TestTLS uses the broker, its management API and its Prometheus plugin over TLS.
func TestTLS(t *testing.T) {
	for _, part := range []string{"RABBITMQ", "RABBITMQ4", "RABBITMQ43"} {
		t.Run(part, func(t *testing.T) {
			drivertest.Run(t, drivertest.Harness{Driver: driver{}, Subset: []string{"tls"}, TLS: &drivertest.TLS{
				Options:      partOptions(t, part+"_TLS", `{}`),
				Certificates: drivertest.Certificates(lab.Variable(t, "LOCKSTEP_"+part+"_TLS_FILES")),
			}})
		})
	}
}
