package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/pkg/drivers"
)

// topicName names a queue's topic, which all subscriptions read.
func topicName(t drivers.Topology, queue int) string { return fmt.Sprintf("%s-q%d", t.Name, queue) }

// groupName names the consumer group of a subscription to one queue. Each queue has its own, so that a consumer that
// comes or goes does not have those of all other queues divide their partitions anew.
func groupName(t drivers.Topology, subscription, queue int) string {
	return fmt.Sprintf("%s-s%d-q%d", t.Name, subscription, queue)
}

func topicNames(t drivers.Topology) []string {
	names := make([]string, t.Queues)
	for q := range names {
		names[q] = topicName(t, q)
	}
	return names
}

func groupNames(t drivers.Topology) []string {
	var names []string
	for sub := range t.Subscriptions {
		for q := range t.Queues {
			names = append(names, groupName(t, sub, q))
		}
	}
	return names
}

func checkTopology(t drivers.Topology) error {
	if t.Bindings > 1 {
		return fmt.Errorf("%d bindings of a queue: a topic has none; keys choose partitions: %w", t.Bindings,
			drivers.ErrUnsupported)
	}
	return nil
}

// Setup removes what is there by the topology's names, creates the topics, and returns when their leaders are at work.
// A group is there when its first consumer comes; it begins with the first message that a topic has had.
func (s *session) Setup(ctx context.Context, t drivers.Topology) error {
	if err := checkTopology(t); err != nil {
		return fmt.Errorf("set up %s: %w", t.Name, err)
	}
	s.remember(t)
	err := s.remove(ctx, topicNames(t), groupNames(t))
	if err == nil {
		err = s.create(ctx, t)
	}
	if err == nil {
		err = s.awaitLeaders(ctx, topicNames(t))
	}
	if err != nil {
		return fmt.Errorf("set up %s: %w", t.Name, err)
	}
	return nil
}

// Teardown removes what Setup and consumers made, by name.
func (s *session) Teardown(ctx context.Context, t drivers.Topology) error {
	if err := s.remove(ctx, topicNames(t), groupNames(t)); err != nil {
		return fmt.Errorf("tear down %s: %w", t.Name, err)
	}
	return nil
}

func (s *session) create(ctx context.Context, t drivers.Topology) error {
	placement, err := s.placement(ctx, t)
	if err != nil {
		return err
	}
	for names := range slices.Chunk(topicNames(t), atOnce) {
		err := poll(ctx, func() (final bool, err error) {
			names, final, err = s.createSome(ctx, names, placement)
			return final, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// createSome creates topics. Some may be left to be created: those that are still on their way out by these names.
func (s *session) createSome(ctx context.Context, names []string,
	placement []kmsg.CreateTopicsRequestTopicReplicaAssignment) (left []string, final bool, err error) {
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = timeoutMillis(ctx)
	for _, name := range names {
		request.Topics = append(request.Topics, s.newTopic(name, placement))
	}
	response, err := request.RequestWith(ctx, s.admin)
	if err != nil {
		return names, true, fmt.Errorf("create topics: %w", explain(err))
	}
	for _, topic := range response.Topics {
		switch refused := failure(topic.ErrorCode, topic.ErrorMessage); {
		case errors.Is(refused, kerr.TopicAlreadyExists):
			left = append(left, topic.Topic)
			err = fmt.Errorf("create topic %s: %w", topic.Topic, refused)
		case refused != nil:
			return names, true, fmt.Errorf("create topic %s: %w", topic.Topic, explain(refused))
		}
	}
	return left, false, err
}

func (s *session) newTopic(name string,
	placement []kmsg.CreateTopicsRequestTopicReplicaAssignment) kmsg.CreateTopicsRequestTopic {
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, int32(s.options.Partitions),
		int16(s.options.ReplicationFactor)
	if placement != nil {
		topic.NumPartitions, topic.ReplicationFactor, topic.ReplicaAssignment = -1, -1, placement
	}
	for setting, value := range s.options.topicSettings() {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = setting, kmsg.StringPtr(value)
		topic.Configs = append(topic.Configs, config)
	}
	return topic
}

// topicSettings are what topics are created with.
func (o *options) topicSettings() map[string]string {
	settings := map[string]string{"min.insync.replicas": fmt.Sprint(o.MinInSyncReplicas)}
	for name, value := range o.Topic {
		settings[name] = fmt.Sprint(value)
	}
	return settings
}

// awaitLeaders returns when every broker that answers knows the topics, and every partition's leader says where its log
// ends.
func (s *session) awaitLeaders(ctx context.Context, topics []string) error {
	for names := range slices.Chunk(topics, atOnce) {
		err := poll(ctx, func() (bool, error) { return false, s.known(ctx, names) })
		if err == nil {
			err = poll(ctx, func() (bool, error) {
				_, err := s.ends(ctx, names)
				return false, err
			})
		}
		if err != nil {
			return fmt.Errorf("wait for the leaders of topics: %w", err)
		}
	}
	return nil
}

// known asks each broker whether it has heard of the topics.
func (s *session) known(ctx context.Context, topics []string) error {
	cluster, err := s.metadata(ctx, s.admin, []string{})
	if err != nil {
		return err
	}
	answered := 0
	for _, b := range cluster.Brokers {
		said, err := within(ctx, func() (*kmsg.MetadataResponse, error) {
			return s.metadata(ctx, s.admin.Broker(int(b.NodeID)), topics)
		})
		if err != nil {
			continue // it may be down; the others have the topics then
		}
		answered++
		for _, topic := range said.Topics {
			if err := kerr.ErrorForCode(topic.ErrorCode); err != nil {
				return fmt.Errorf("broker %s: %w", address(b), err)
			}
			if len(topic.Partitions) < s.options.Partitions {
				return fmt.Errorf("broker %s knows %d of %d partitions", address(b), len(topic.Partitions),
					s.options.Partitions)
			}
		}
	}
	if answered == 0 {
		return errors.New("no broker answers")
	}
	return nil
}

// ends asks the leaders where the partitions' logs end.
func (s *session) ends(ctx context.Context, topics []string) (map[string][]int64, error) {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	ends := make(map[string][]int64, len(topics))
	for _, name := range topics {
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = name
		for p := range s.options.Partitions {
			partition := kmsg.NewListOffsetsRequestTopicPartition()
			partition.Partition, partition.Timestamp = int32(p), -1
			topic.Partitions = append(topic.Partitions, partition)
		}
		request.Topics = append(request.Topics, topic)
		ends[name] = make([]int64, s.options.Partitions)
	}
	response, err := request.RequestWith(ctx, s.admin)
	if err != nil {
		return nil, fmt.Errorf("ask where logs end: %w", err)
	}
	count := 0
	for _, topic := range response.Topics {
		for _, p := range topic.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("ask where partition %d of %s ends: %w", p.Partition, topic.Topic, err)
			}
			if at := ends[topic.Topic]; int(p.Partition) < len(at) {
				at[p.Partition] = p.Offset
				count++
			}
		}
	}
	if count < len(topics)*s.options.Partitions {
		return nil, fmt.Errorf("ask where logs end: %d of %d partitions answer", count,
			len(topics)*s.options.Partitions)
	}
	return ends, nil
}

// remove deletes topics and groups. What is not there is no error.
func (s *session) remove(ctx context.Context, topics, groups []string) error {
	for names := range slices.Chunk(groups, atOnce) {
		if err := s.removeGroups(ctx, names); err != nil {
			return err
		}
	}
	for names := range slices.Chunk(topics, atOnce) {
		if err := s.removeTopics(ctx, names); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) removeTopics(ctx context.Context, names []string) error {
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.TimeoutMillis = timeoutMillis(ctx)
	request.TopicNames = names
	for _, name := range names {
		topic := kmsg.NewDeleteTopicsRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		request.Topics = append(request.Topics, topic)
	}
	response, err := request.RequestWith(ctx, s.admin)
	if err != nil {
		return fmt.Errorf("delete topics: %w", explain(err))
	}
	for _, topic := range response.Topics {
		err := failure(topic.ErrorCode, topic.ErrorMessage)
		if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			name := ""
			if topic.Topic != nil {
				name = *topic.Topic
			}
			return fmt.Errorf("delete topic %s: %w", name, explain(err))
		}
	}
	return nil
}
