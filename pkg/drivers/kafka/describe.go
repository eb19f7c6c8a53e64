package kafka

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// releases maps levels of metadata.version to the first release that has them. metadata.version is the newest feature
// that a KRaft broker announces. Brokers do not report their version in any other way.
var releases = []struct {
	level   int16
	release string
}{
	{1, "3.3"}, {8, "3.4"}, {9, "3.5"}, {12, "3.6"}, {15, "3.7"}, {20, "3.8"}, {21, "3.9"}, {22, "4.0"}, {26, "4.1"},
	{28, "4.2"}, {30, "4.3"},
	{31, "4.4"},
}

// newest is the highest known level of the last entry of releases.
const newest = 33

// settings are the topic settings that Describe reports.
var settings = []string{
	"min.insync.replicas", "flush.messages", "flush.ms", "compression.type", "max.message.bytes", "retention.ms",
	"retention.bytes",
	"unclean.leader.election.enable", "message.timestamp.type",
}

// Describe reports the release of the brokers, if it can be determined. It also reports the list of brokers, and the
// settings of topics and clients.
func (s *session) Describe(ctx context.Context) (drivers.Description, error) {
	o := &s.options
	d := drivers.Description{Product: "Apache Kafka", Settings: map[string]string{
		"client": o.Client, "acks": o.Acks.String(), "partitions": strconv.Itoa(o.Partitions),
		"replication_factor": strconv.Itoa(o.ReplicationFactor), "batch_bytes": strconv.Itoa(o.BatchBytes),
		"linger": o.Linger.String(), "compression": o.Compression,
	}}
	if o.BatchSize > 0 {
		d.Settings["batch_size"] = strconv.Itoa(o.BatchSize)
	}
	if o.idempotent(o.Acks) {
		d.Settings["idempotence"] = "true"
	}
	err := s.describeVersion(ctx, &d)
	var brokers kadm.BrokerDetails
	if err == nil {
		brokers, err = s.brokers(ctx)
	}
	for _, b := range brokers {
		d.Members = append(d.Members, fmt.Sprintf("%d at %s", b.NodeID, address(b)))
	}
	slices.Sort(d.Members)
	if t := s.task.Load(); err == nil && t != nil {
		err = s.describeTopic(ctx, topicName(*t, 0), &d)
	}
	if err != nil {
		return drivers.Description{}, fmt.Errorf("describe Kafka: %w", err)
	}
	return d, nil
}

func (s *session) describeVersion(ctx context.Context, d *drivers.Description) error {
	request := kmsg.NewPtrApiVersionsRequest()
	request.ClientSoftwareName, request.ClientSoftwareVersion = clientID, "1"
	response, err := query(ctx, func(ctx context.Context) (*kmsg.ApiVersionsResponse, error) {
		return request.RequestWith(ctx, s.library)
	})
	if err != nil {
		return fmt.Errorf("request versions: %w", explain(err))
	}
	for _, f := range response.FinalizedFeatures {
		if f.Name == "metadata.version" {
			d.Settings["metadata.version"] = strconv.Itoa(int(f.MaxVersionLevel))
		}
	}
	for _, f := range response.SupportedFeatures {
		if f.Name == "metadata.version" {
			d.Version = release(f.MaxVersion)
			return nil
		}
	}
	d.Version = strings.TrimPrefix(kversion.FromApiVersionsResponse(response).VersionGuess(), "v")
	return nil
}

// release returns the name of the release that announces a level.
func release(level int16) string {
	name := ""
	for _, r := range releases {
		if r.level <= level {
			name = r.release
		}
	}
	if level > newest {
		return "after " + name
	}
	return name
}

// describeTopic adds the effective settings of a topic. It adds nothing if the topic does not exist.
func (s *session) describeTopic(ctx context.Context, name string, d *drivers.Description) error {
	topics, err := query(ctx, func(ctx context.Context) (kadm.ResourceConfigs, error) {
		return s.admin.DescribeTopicConfigs(ctx, name)
	})
	if err != nil {
		return fmt.Errorf("request the settings of topic %s: %w", name, explain(err))
	}
	for _, topic := range topics {
		for _, c := range topic.Configs {
			if c.Value != nil && slices.Contains(settings, c.Key) {
				d.Settings[c.Key] = *c.Value
			}
		}
	}
	return nil
}
