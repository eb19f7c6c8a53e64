package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

const (
	// clientID identifies the clients at the brokers. Consumers append a random suffix.
	clientID = "lockstep"
	// askEvery is the interval at which the driver polls for changes that a cluster makes asynchronously.
	askEvery = 20 * time.Millisecond
	// atOnce is the maximum number of topics or groups of one request.
	atOnce = 500
	// attempts is the number of attempts of a request whose connection the broker closes.
	attempts = 3
)

// administrator creates the client for declarations and metrics, outside the measured path. It retries after temporary
// errors.
func (s *session) administrator() (*kadm.Client, *kgo.Client, error) {
	library, err := kgo.NewClient(append(s.franzOptions(clientID),
		kgo.Dialer(kit.Dial(s.env.ManagementDialer(), s.tls)),
		kgo.MetadataMinAge(askEvery), kgo.RetryTimeout(20*time.Second),
		kgo.RetryBackoffFn(func(fails int) time.Duration { return min(askEvery<<min(fails, 10), time.Second) }),
	)...)
	if err != nil {
		return nil, nil, err
	}
	return kadm.NewClient(library), library, nil
}

// franzOptions returns the options that all clients of franz-go share.
func (s *session) franzOptions(id string) []kgo.Opt {
	o := &s.options
	all := []kgo.Opt{kgo.SeedBrokers(o.Brokers...), kgo.ClientID(id), kgo.DisableClientMetrics()}
	if s.sasl.franz != nil {
		all = append(all, kgo.SASL(s.sasl.franz))
	}
	return all
}

// query makes a request, and returns when it returns or when ctx ends: franz-go checks the context only when the
// request's turn on its connection has come. If the broker closes the connection, the request is made again. franz-go
// takes that for missing credentials or TLS and gives up, but brokers also do it temporarily.
func query[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		for range attempts {
			a.value, a.err = request(ctx)
			closed := (*kgo.ErrFirstReadEOF)(nil)
			if !errors.As(a.err, &closed) && !kgo.IsRetryableBrokerErr(a.err) {
				break
			}
		}
		answers <- a
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// explain adds a fix to errors whose text has none.
func explain(err error) error {
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, kerr.UnsupportedSaslMechanism):
		return fmt.Errorf("%w (give user, password and mechanism as the brokers have them)", err)
	case errors.Is(err, kerr.IllegalSaslState):
		return fmt.Errorf("%w (the brokers require no user at this address: leave user and password out, or give the address where they do)", err)
	case errors.Is(err, kerr.InvalidReplicationFactor):
		return fmt.Errorf("%w (give a replicationFactor of at most the number of brokers)", err)
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed),
		errors.Is(err, kerr.GroupAuthorizationFailed):
		return fmt.Errorf("%w (the user needs the right to create, write, read and delete topics, and to read and delete groups)", err)
	case kgo.IsRetryableBrokerErr(err): // each attempt ended so; ErrFirstReadEOF has such a text itself
		return fmt.Errorf("%w (the broker closes connections before it answers: give user, password and mechanism of SASL, or tls, as the brokers have them)", err)
	}
	return kit.Explain(err)
}

// brokers returns the brokers of the cluster, sorted by node id.
func (s *session) brokers(ctx context.Context) (kadm.BrokerDetails, error) {
	known, err := query(ctx, s.admin.BrokerMetadata)
	if err != nil {
		return nil, fmt.Errorf("request brokers: %w", explain(err))
	}
	return known.Brokers, nil
}

// Leaders returns the leaders of the partitions, by the addresses that the brokers advertise.
func (s *session) Leaders(ctx context.Context, t drivers.Topology) (map[string]int, error) {
	known, err := query(ctx, func(ctx context.Context) (kadm.Metadata, error) {
		return s.admin.Metadata(ctx, topicNames(t)...)
	})
	if err == nil {
		err = known.Topics.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("request the leaders of partitions: %w", explain(err))
	}
	return countLeaders(known), nil
}

// countLeaders counts the partitions that each broker leads. Partitions without a leader are not counted.
func countLeaders(known kadm.Metadata) map[string]int {
	leaders, names := map[string]int{}, map[int32]string{}
	for _, b := range known.Brokers {
		names[b.NodeID] = address(b)
		leaders[address(b)] = 0
	}
	for _, topic := range known.Topics {
		for _, p := range topic.Partitions {
			if name, is := names[p.Leader]; is {
				leaders[name]++
			}
		}
	}
	return leaders
}

func address(b kadm.BrokerDetail) string { return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))) }

// placement returns the replica assignments of a queue's topic, if the topology chooses or spreads its leaders;
// otherwise nil, and the brokers choose. Spread leaders are partition p of queue q on broker q × partitions + p, modulo
// brokers of the cluster, in the order of their ids.
func (s *session) placement(ctx context.Context, t drivers.Topology) (
	func(queue int) []kmsg.CreateTopicsRequestTopicReplicaAssignment, error) {
	spread := t.QueueNode == drivers.SpreadNode && len(s.options.Brokers) > 1
	if !spread && !t.QueueNode.Chosen() {
		return nil, nil
	}
	brokers, err := s.brokers(ctx)
	if err != nil {
		return nil, err
	}
	if spread && slices.ContainsFunc(brokers, func(b kadm.BrokerDetail) bool { return b.Rack != nil }) {
		return nil, nil // the brokers place replicas by their racks
	}
	first := 0
	if !spread {
		index, err := strconv.Atoi(string(t.QueueNode))
		if err != nil {
			return nil, fmt.Errorf("place on node %q: %w", t.QueueNode, err)
		}
		first = slices.IndexFunc(brokers,
			func(b kadm.BrokerDetail) bool { return address(b) == s.options.Brokers[index] })
		if first < 0 {
			return nil,
				fmt.Errorf("place on node %d: no broker advertises itself as %s: give brokers as they advertise themselves",
					index, s.options.Brokers[index])
		}
	}
	copies := s.options.ReplicationFactor
	if copies > len(brokers) {
		return nil, explain(fmt.Errorf("%w: there are %d brokers", kerr.InvalidReplicationFactor, len(brokers)))
	}
	return func(queue int) (all []kmsg.CreateTopicsRequestTopicReplicaAssignment) {
		for p := range s.options.Partitions {
			leader := first
			if spread {
				leader = queue*s.options.Partitions + p
			}
			at := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			at.Partition = int32(p)
			for i := range copies {
				at.Replicas = append(at.Replicas, brokers[(leader+i)%len(brokers)].NodeID)
			}
			all = append(all, at)
		}
		return all
	}, nil
}
