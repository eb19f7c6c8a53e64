package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// topicName returns the name of a queue's topic. All subscriptions read it.
func topicName(t drivers.Topology, queue int) string {
	if t.Existing != "" {
		return drivers.QueueName(t.Existing, queue)
	}
	return fmt.Sprintf("%s-q%d", t.Name, queue)
}

// groupName returns the name of the consumer group of a subscription to one queue. Each queue has its own groups, so
// that a consumer that joins or leaves does not cause a rebalancing for other queues.
func (o *options) groupName(t drivers.Topology, subscription, queue int) string {
	if t.Existing != "" {
		return drivers.QueueName(o.Group, queue)
	}
	return fmt.Sprintf("%s-s%d-q%d", t.Name, subscription, queue)
}

func topicNames(t drivers.Topology) []string {
	names := make([]string, t.Queues)
	for q := range names {
		names[q] = topicName(t, q)
	}
	return names
}

func (o *options) groupNames(t drivers.Topology) []string {
	var names []string
	for sub := range t.Subscriptions {
		for q := range t.Queues {
			names = append(names, o.groupName(t, sub, q))
		}
	}
	return names
}

// Setup deletes existing topics and groups of these names, creates the topics, and returns when their leaders answer. A
// group is created when its first consumer joins. It starts with the first message of the topic.
func (s *session) Setup(ctx context.Context, t drivers.Topology) error {
	s.task.Store(&t)
	err := s.remove(ctx, topicNames(t), s.options.groupNames(t))
	var created topicIDs
	if err == nil {
		created, err = s.create(ctx, t)
	}
	if err == nil {
		err = s.awaitLeaders(ctx, created)
	}
	if err != nil {
		return fmt.Errorf("set up %s: %w", t.Name, err)
	}
	return nil
}

// Verify requests the metadata of existing topics, and compares their numbers of partitions with the option.
func (s *session) Verify(ctx context.Context, t drivers.Topology) error {
	s.task.Store(&t)
	metadata, err := metadataOf(ctx, s.library, topicNames(t))
	if err != nil {
		return fmt.Errorf("verify existing topics: %w", explain(err))
	}
	var errs []error
	for _, topic := range metadata.Topics {
		name, partitions := *topic.Topic, len(topic.Partitions)
		if err := kerr.ErrorForCode(topic.ErrorCode); err != nil {
			errs = append(errs, fmt.Errorf("verify existing topic %s: %w", name, err))
		} else if partitions != s.options.Partitions {
			errs = append(errs, fmt.Errorf("verify existing topic %s: it has %d partitions: set the option partitions, which is %d",
				name, partitions, s.options.Partitions))
		}
	}
	return errors.Join(errs...)
}

// Teardown deletes by name what Setup and consumers created.
func (s *session) Teardown(ctx context.Context, t drivers.Topology) error {
	if err := s.remove(ctx, topicNames(t), s.options.groupNames(t)); err != nil {
		return fmt.Errorf("tear down %s: %w", t.Name, err)
	}
	return nil
}

// topicIDs are the IDs of topics by name. Brokers before Kafka 2.8 have none, and return zeros.
type topicIDs map[string][16]byte

func (s *session) create(ctx context.Context, t drivers.Topology) (topicIDs, error) {
	placement, err := s.placement(ctx, t)
	if err != nil {
		return nil, err
	}
	settings := map[string]any{"min.insync.replicas": s.options.MinInSyncReplicas}
	maps.Copy(settings, s.options.Topic)
	created := topicIDs{}
	topics := map[string]kmsg.CreateTopicsRequestTopic{}
	for q, name := range topicNames(t) {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions = name, int32(s.options.Partitions)
		topic.ReplicationFactor = int16(s.options.ReplicationFactor)
		for setting, value := range settings {
			config := kmsg.NewCreateTopicsRequestTopicConfig()
			config.Name, config.Value = setting, kmsg.StringPtr(fmt.Sprint(value))
			topic.Configs = append(topic.Configs, config)
		}
		if placement != nil {
			topic.NumPartitions, topic.ReplicationFactor, topic.ReplicaAssignment = -1, -1, placement(q)
		}
		topics[name] = topic
	}
	for names := range slices.Chunk(topicNames(t), atOnce) {
		err := kit.Poll(ctx, askEvery, func() (done bool, err error) {
			names, done, err = s.createSome(ctx, names, topics, created)
			return done, err
		})
		if err != nil {
			return nil, err
		}
	}
	return created, nil
}

// createSome creates topics, and adds them to created. It returns in left those whose names still exist, because their
// deletion has not finished.
func (s *session) createSome(ctx context.Context, names []string, topics map[string]kmsg.CreateTopicsRequestTopic,
	created topicIDs) (left []string, done bool, err error) {
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = 30_000
	for _, name := range names {
		request.Topics = append(request.Topics, topics[name])
	}
	response, err := query(ctx, func(ctx context.Context) (*kmsg.CreateTopicsResponse, error) {
		return request.RequestWith(ctx, s.library)
	})
	if err != nil {
		return names, true, fmt.Errorf("create topics: %w", explain(err))
	}
	for _, topic := range response.Topics {
		refused := kerr.ErrorForCode(topic.ErrorCode)
		if refused != nil && topic.ErrorMessage != nil && *topic.ErrorMessage != "" {
			refused = fmt.Errorf("%w: %s", refused, *topic.ErrorMessage)
		}
		switch {
		case errors.Is(refused, kerr.TopicAlreadyExists):
			left = append(left, topic.Topic)
			err = fmt.Errorf("create topic %s: %w", topic.Topic, refused)
		case refused != nil:
			return names, true, fmt.Errorf("create topic %s: %w", topic.Topic, explain(refused))
		default:
			created[topic.Topic] = topic.TopicID
		}
	}
	return left, err == nil, err
}

// awaitLeaders waits until every reachable broker has the created topics, and every partition's leader has an empty
// log. Until then, a broker may store messages in a deleted topic of the same name, which are lost.
func (s *session) awaitLeaders(ctx context.Context, created topicIDs) error {
	for names := range slices.Chunk(slices.Sorted(maps.Keys(created)), atOnce) {
		for _, is := range []func() error{func() error { return s.known(ctx, names, created) },
			func() error { return s.empty(ctx, names) }} {
			if err := kit.Poll(ctx, askEvery, func() (bool, error) { err := is(); return err == nil, err }); err != nil {
				return fmt.Errorf("wait for the leaders of topics: %w", err)
			}
		}
	}
	return nil
}

// empty returns an error unless the leaders of all partitions have empty logs.
func (s *session) empty(ctx context.Context, names []string) error {
	ends, err := s.ends(ctx, names)
	ends.Each(func(at kadm.ListedOffset) {
		if err == nil && at.Offset > 0 {
			err = fmt.Errorf("partition %d of %s still has the log of a deleted topic", at.Partition, at.Topic)
		}
	})
	return err
}

// known returns an error unless every broker that answers has the metadata of the created topics with these names.
func (s *session) known(ctx context.Context, names []string, created topicIDs) error {
	brokers, err := s.brokers(ctx)
	if err != nil {
		return err
	}
	answered := 0
	for _, b := range brokers {
		metadata, err := metadataOf(ctx, s.library.Broker(int(b.NodeID)), names)
		if err != nil {
			continue // the broker may be down: then the others have the topics
		}
		answered++
		for _, topic := range metadata.Topics {
			if err := kerr.ErrorForCode(topic.ErrorCode); err != nil {
				return fmt.Errorf("broker %s: %w", address(b), err)
			}
			if topic.Topic != nil && topic.TopicID != created[*topic.Topic] {
				return fmt.Errorf("broker %s still has the deleted topic %s", address(b), *topic.Topic)
			}
			if len(topic.Partitions) < s.options.Partitions {
				return fmt.Errorf("broker %s has metadata of %d of %d partitions", address(b), len(topic.Partitions),
					s.options.Partitions)
			}
		}
	}
	if answered == 0 {
		return errors.New("no broker answers")
	}
	return nil
}

// metadataOf requests the metadata of topics. kadm may return an earlier answer.
func metadataOf(ctx context.Context, via kmsg.Requestor, topics []string) (*kmsg.MetadataResponse, error) {
	request := kmsg.NewPtrMetadataRequest()
	for _, name := range topics {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		request.Topics = append(request.Topics, topic)
	}
	return query(ctx, func(ctx context.Context) (*kmsg.MetadataResponse, error) { return request.RequestWith(ctx, via) })
}

// ends returns the end of the log of each partition, as the leaders report it.
func (s *session) ends(ctx context.Context, topics []string) (kadm.ListedOffsets, error) {
	return s.bounds(ctx, "end", s.admin.ListEndOffsets, topics)
}

// starts returns the start of the log of each partition: the offset of the oldest message that was not deleted.
func (s *session) starts(ctx context.Context, topics []string) (kadm.ListedOffsets, error) {
	return s.bounds(ctx, "start", s.admin.ListStartOffsets, topics)
}

// bounds requests the start or end of each partition's log, which is called what in errors.
func (s *session) bounds(ctx context.Context, what string,
	list func(context.Context, ...string) (kadm.ListedOffsets, error), topics []string) (kadm.ListedOffsets, error) {
	listed, err := query(ctx, func(ctx context.Context) (kadm.ListedOffsets, error) { return list(ctx, topics...) })
	if err != nil {
		return nil, fmt.Errorf("request the %ss of logs: %w", what, err)
	}
	count := 0
	listed.Each(func(at kadm.ListedOffset) {
		switch {
		case at.Partition < 0: // the topic does not exist
		case at.Err != nil:
			err = fmt.Errorf("request the %s of partition %d of %s: %w", what, at.Partition, at.Topic, at.Err)
		default:
			count++
		}
	})
	if all := len(topics) * s.options.Partitions; err == nil && count < all {
		err = fmt.Errorf("request the %ss of logs: %d of %d partitions answer", what, count, all)
	}
	return listed, err
}

// remove deletes topics and groups. Missing ones are not an error.
func (s *session) remove(ctx context.Context, topics, groups []string) error {
	for names := range slices.Chunk(groups, atOnce) {
		if err := s.removeGroups(ctx, names); err != nil {
			return err
		}
	}
	for names := range slices.Chunk(topics, atOnce) {
		deleted, err := query(ctx, func(ctx context.Context) (kadm.DeleteTopicResponses, error) {
			return s.admin.DeleteTopics(ctx, names...)
		})
		if err != nil {
			return fmt.Errorf("delete topics: %w", explain(err))
		}
		for name, topic := range deleted {
			if topic.Err != nil && !errors.Is(topic.Err, kerr.UnknownTopicOrPartition) {
				return fmt.Errorf("delete topic %s: %w", name, explain(topic.Err))
			}
		}
	}
	return nil
}
