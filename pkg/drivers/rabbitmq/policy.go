package rabbitmq

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// lastWithMirrors is the last major release of RabbitMQ with mirrored classic queues. Later releases ignore the policy.
const lastWithMirrors = 3

// checkServer returns an error if the options need mirrored queues and the server has none.
func (s *session) checkServer() error {
	s.adminMu.Lock()
	version := s.admin.amqp.Properties["version"]
	major, _ := release(s.admin)
	s.adminMu.Unlock()
	if major <= lastWithMirrors || !s.options.mirrored() {
		return nil
	}
	return fmt.Errorf("%w: RabbitMQ %v has no mirrored classic queues (policy ha-mode), which ended with release %d;"+
		` use queue: type: "quorum"`, drivers.ErrUnsupported, version, lastWithMirrors)
}

// release returns the release of the server, or 0 if it is unknown.
func release(c *conn) (major, minor int) {
	version, _ := c.amqp.Properties["version"].(string)
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor)
	return major, minor
}

// putPolicy creates the options' policy for the queues of the topology. It must be called before they are declared.
func (s *session) putPolicy(ctx context.Context, t drivers.Topology) error {
	if len(s.options.Policy) == 0 {
		return nil
	}
	policy := map[string]any{
		"pattern":    "^" + t.Name + "-s",
		"apply-to":   "queues",
		"definition": s.options.Policy,
	}
	if err := s.api.call(ctx, http.MethodPut, nil, policy, nil, "policies", s.endpoints[0].vhost, t.Name); err != nil {
		return fmt.Errorf("put policy: %w", err)
	}
	return nil
}

// awaitMirrors waits until every queue has the synchronised mirrors that the policy requires.
func (s *session) awaitMirrors(ctx context.Context, t drivers.Topology) error {
	nodes, err := s.runningNodes(ctx)
	if err != nil {
		return err
	}
	want := len(nodes) - 1
	switch s.options.Policy["ha-mode"] {
	case "exactly":
		if n, err := strconv.Atoi(fmt.Sprint(s.options.Policy["ha-params"])); err == nil {
			want = min(want, n-1)
		}
	case "nodes":
		want = 0 // the queue's own node may or may not be in the list
	}
	for set := range s.options.queueSets(t) {
		for q := range t.Queues {
			name := s.options.queueName(t, set, q)
			err := kit.Poll(ctx, 20*time.Millisecond, func() (bool, error) {
				var info queueInfo
				if err := s.api.get(ctx, nil, &info, "queues", s.endpoints[0].vhost, name); err != nil {
					return true, err
				}
				if there := len(info.Synchronised); there < want {
					return false, fmt.Errorf("wait for %d mirrors of %s: there are %d", want, name, there)
				}
				return true, nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
