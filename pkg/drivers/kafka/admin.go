package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/pkg/drivers"
)

const (
	// clientID is what brokers know us as; consumers add a number of their own.
	clientID = "lockstep"
	// askEvery is how often is asked for what a cluster does in its own time.
	askEvery = 20 * time.Millisecond
	// atOnce is the most topics or groups of one request.
	atOnce = 500
)

// administrator makes the client for declarations and metrics, which are no part of the measured path. It repeats what
// fails in passing.
func (s *session) administrator() (prompt, error) {
	dial := s.env.Aside()
	library, err := kgo.NewClient(append(s.franzOptions(clientID),
		kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialTLS(ctx, dial, s.tls, network, address)
		}),
		kgo.MetadataMinAge(askEvery), kgo.RetryTimeout(20*time.Second),
		kgo.RetryBackoffFn(func(fails int) time.Duration { return min(askEvery<<min(fails, 10), time.Second) }),
	)...)
	return prompt{library}, err
}

// franzOptions are those of every client of franz-go.
func (s *session) franzOptions(id string) []kgo.Opt {
	o := &s.options
	all := []kgo.Opt{kgo.SeedBrokers(o.Brokers...), kgo.ClientID(id), kgo.DisableClientMetrics()}
	if o.User != "" {
		all = append(all, kgo.SASL(mechanisms[o.Mechanism].franz(o.User, o.Password)))
	}
	return all
}

// prompt is a client that lets go of a request when its context ends; by itself franz-go does so only when it is the
// request's turn on its connection. It repeats a request that was the first on its connection when the broker closed
// that: franz-go takes it for a missing user and gives up, but brokers do so in passing, too. Once: where it is the
// user that is missing, that is what is to be said.
type prompt struct{ *kgo.Client }

// Request implements kmsg.Requestor.
func (p prompt) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	return within(ctx, func() (kmsg.Response, error) {
		response, err := p.Client.Request(ctx, r)
		if closed := (*kgo.ErrFirstReadEOF)(nil); errors.As(err, &closed) {
			response, err = p.Client.Request(ctx, r)
		}
		return response, err
	})
}

// within returns when ask does, or when ctx ends.
func within[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	type answer struct {
		said T
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		said, err := ask()
		answers <- answer{said, err}
	}()
	select {
	case a := <-answers:
		return a.said, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// explain adds the next step to errors whose own text has none.
func explain(err error) error {
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, kerr.UnsupportedSaslMechanism):
		return fmt.Errorf("%w (give user, password and mechanism as the brokers have them)", err)
	case errors.Is(err, kerr.IllegalSaslState):
		return fmt.Errorf("%w (the brokers ask for no user at this address: leave user and password out, or give the address where they do)", err)
	case errors.Is(err, kerr.InvalidReplicationFactor):
		return fmt.Errorf("%w (give a replicationFactor of at most the number of brokers)", err)
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed),
		errors.Is(err, kerr.GroupAuthorizationFailed):
		return fmt.Errorf("%w (the user needs the right to create, write, read and delete topics, and to read and delete groups)", err)
	}
	return err
}

// failure makes an error of a code and what the broker says to it; nil for 0.
func failure(code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err != nil && message != nil && *message != "" {
		err = fmt.Errorf("%w: %s", err, *message)
	}
	return err
}

// poll asks until the answer is nil or final, at most until ctx ends.
func poll(ctx context.Context, ask func() (final bool, err error)) error {
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		final, err := ask()
		if err == nil || final {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

// timeoutMillis is what a broker may take for a request.
func timeoutMillis(ctx context.Context) int32 {
	const most = 30 * time.Second
	left := most
	if deadline, ok := ctx.Deadline(); ok {
		left = min(most, time.Until(deadline))
	}
	return int32(max(left, time.Millisecond).Milliseconds())
}

// metadata asks for topics, or for all with nil; through one broker if it is given, which tells what that one knows.
func (s *session) metadata(ctx context.Context, via kmsg.Requestor, topics []string) (*kmsg.MetadataResponse, error) {
	request := kmsg.NewPtrMetadataRequest()
	if topics != nil {
		request.Topics = []kmsg.MetadataRequestTopic{}
	}
	for _, name := range topics {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		request.Topics = append(request.Topics, topic)
	}
	response, err := request.RequestWith(ctx, via)
	if err != nil {
		return nil, fmt.Errorf("ask for metadata: %w", explain(err))
	}
	return response, nil
}

// address is where a broker says that it is.
func address(b kmsg.MetadataResponseBroker) string {
	return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
}

// placement lists the replicas of a topic's partitions if the topology pins its leaders to a node, else nothing.
func (s *session) placement(ctx context.Context, t drivers.Topology) ([]kmsg.CreateTopicsRequestTopicReplicaAssignment,
	error) {
	if t.QueueNode == "" || t.QueueNode == drivers.AnyNode {
		return nil, nil
	}
	index, err := strconv.Atoi(string(t.QueueNode))
	if err != nil || index < 0 || index >= len(s.options.Brokers) {
		return nil, fmt.Errorf("place on node %q: options have %d brokers, counted from 0: %w", t.QueueNode,
			len(s.options.Brokers), drivers.ErrUnsupported)
	}
	known, err := s.metadata(ctx, s.admin, []string{})
	if err != nil {
		return nil, err
	}
	brokers := known.Brokers
	slices.SortFunc(brokers, func(a, b kmsg.MetadataResponseBroker) int { return int(a.NodeID - b.NodeID) })
	first := slices.IndexFunc(brokers,
		func(b kmsg.MetadataResponseBroker) bool { return address(b) == s.options.Brokers[index] })
	if first < 0 {
		return nil,
			fmt.Errorf("place on node %d: no broker advertises itself as %s: give brokers as they advertise themselves",
				index, s.options.Brokers[index])
	}
	copies := min(s.options.ReplicationFactor, len(brokers))
	if copies < s.options.ReplicationFactor {
		return nil, explain(fmt.Errorf("%w: there are %d brokers", kerr.InvalidReplicationFactor, len(brokers)))
	}
	var all []kmsg.CreateTopicsRequestTopicReplicaAssignment
	for p := range s.options.Partitions {
		at := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		at.Partition = int32(p)
		for i := range copies {
			at.Replicas = append(at.Replicas, brokers[(first+i)%len(brokers)].NodeID)
		}
		all = append(all, at)
	}
	return all, nil
}
