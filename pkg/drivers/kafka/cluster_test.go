package kafka

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// The settings in the record are those in effect.
func TestDescribe(t *testing.T) {
	r := setUp(t, at(t, cluster, `{"replicationFactor": 3, "minInSyncReplicas": 2, "topic": {"flush.messages": 1}}`))
	d, err := r.session.Describe(r.context())
	if err != nil {
		t.Fatal(err)
	}
	if d.Product != "Apache Kafka" || d.Version == "" || len(d.Members) != 3 {
		t.Errorf("three brokers say of themselves: %+v", d)
	}
	for name, want := range map[string]string{"min.insync.replicas": "2", "flush.messages": "1",
		"unclean.leader.election.enable": "false"} {
		if d.Settings[name] != want {
			t.Errorf("%s is %q, want %q", name, d.Settings[name], want)
		}
	}
}

// Leaders of partitions are on the configured nodes. Cells about the failure of a node depend on it.
func TestPlacement(t *testing.T) {
	r := open(t, at(t, cluster, `{"replicationFactor": 3, "minInSyncReplicas": 2, "partitions": 4}`))
	for i, broker := range r.session.options.Brokers {
		r.topology.QueueNode = drivers.Node(fmt.Sprint(i))
		if err := r.session.Setup(r.context(), r.topology); err != nil {
			t.Fatal(err)
		}
		known, err := r.session.admin.Metadata(r.context(), topicNames(r.topology)...)
		if err != nil {
			t.Fatal(err)
		}
		leader := ""
		for _, p := range known.Topics[topicName(r.topology, 0)].Partitions {
			for _, b := range known.Brokers {
				if b.NodeID == p.Leader {
					leader = address(b)
				}
			}
			if leader != broker || len(p.Replicas) != 3 {
				t.Errorf("partition %d on node %d is led by %s, not %s, with replicas %v", p.Partition, i, leader,
					broker, p.Replicas)
			}
		}
	}
}

// Spread leaders of all partitions differ by at most one between brokers.
func TestSpread(t *testing.T) {
	r := open(t, at(t, cluster, `{"replicationFactor": 2, "partitions": 2}`))
	r.topology.Queues, r.topology.QueueNode = 4, drivers.SpreadNode
	if err := r.session.Setup(r.context(), r.topology); err != nil {
		t.Fatal(err)
	}
	known, err := r.session.admin.Metadata(r.context(), topicNames(r.topology)...)
	if err != nil {
		t.Fatal(err)
	}
	leaders := map[int32]int{}
	known.Topics.EachPartition(func(p kadm.PartitionDetail) {
		leaders[p.Leader]++
		if len(p.Replicas) != 2 || p.Replicas[0] == p.Replicas[1] {
			t.Errorf("partition %d of %s has the replicas %v", p.Partition, p.Topic, p.Replicas)
		}
	})
	if counts := slices.Sorted(maps.Values(leaders)); !slices.Equal(counts, []int{2, 3, 3}) {
		t.Errorf("brokers lead %v partitions, want 2, 3 and 3", leaders)
	}
	reported, err := r.session.Leaders(r.context(), r.topology)
	if counts := slices.Sorted(maps.Values(reported)); err != nil || !slices.Equal(counts, []int{2, 3, 3}) {
		t.Errorf("the driver reports leaders %v, %v", reported, err)
	}
}

// A publisher whose Conn has cached the leader of a deleted topic connects to that of the topic that replaced it.
func TestPublisherOfATopicWithAnotherLeader(t *testing.T) {
	r := open(t, at(t, cluster, `{"client": "kafka-go", "replicationFactor": 2}`))
	c := r.connect(drivers.PublisherRole).(*conn)
	for i := range 3 {
		r.topology.QueueNode = drivers.Node(fmt.Sprint(i))
		if err := r.session.Setup(r.context(), r.topology); err != nil {
			t.Fatal(err)
		}
		p, h := r.publisherOn(c, drivers.PublisherSpec{Mode: drivers.ConfirmWindow, MaxInFlight: 10})
		r.send(p, "x")
		labtest.Eventually(t, "the confirm", func() bool { return len(h.settled()) == 1 })
		if err := errors.Join(h.settled()[0], p.Close(), r.session.Teardown(r.context(), r.topology)); err != nil {
			t.Fatal(err)
		}
	}
}
