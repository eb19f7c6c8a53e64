package kafka

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.org/lockstep/lockstep/pkg/drivers"
)

const (
	// rebalancing is how long a group waits in a rebalancing for members that first have to give up partitions.
	rebalancing = 30 * time.Second
	// patience is how long a broker may take to answer, in addition to the wait that the request specifies.
	patience = 10 * time.Second
)

// franzSource receives with franz-go. Between a poll and AllowRebalance, the library gives up no partition. So polled
// messages are delivered and committed by the member to which the partition is assigned.
type franzSource struct {
	c       *consumer
	library *kgo.Client
	joined  chan struct{} // closed after the first assignment of partitions
	first   sync.Once
}

func newFranzSource(c *consumer) source { return &franzSource{c: c, joined: make(chan struct{})} }

func (s *franzSource) start(ctx context.Context) error {
	o := &s.c.session.options
	var err error
	s.library, err = kgo.NewClient(append(s.c.session.franzOptions(s.c.id),
		kgo.Dialer(s.c.dial), kgo.ConnIdleTimeout(idle), kgo.MetadataMaxAge(signOfLife),
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RetryTimeout(patience),
		kgo.ConsumerGroup(s.c.group), kgo.ConsumeTopics(s.c.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.SessionTimeout(o.SessionTimeout.Std()), kgo.RebalanceTimeout(max(rebalancing, o.SessionTimeout.Std())),
		kgo.HeartbeatInterval(o.Heartbeat.Std()),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.OnPartitionsAssigned(s.assigned),
		kgo.OnPartitionsRevoked(func(context.Context, *kgo.Client, map[string][]int32) { s.c.revoke() }),
		kgo.OnPartitionsLost(s.lost),
		kgo.FetchMaxWait(o.FetchWait.Std()), kgo.FetchMaxPartitionBytes(int32(o.FetchBytes)),
		kgo.FetchMaxBytes(max(50<<20, int32(o.FetchBytes))),
		kgo.WithHooks((*groupHook)(s)),
	)...)
	if err != nil {
		return fmt.Errorf("make a client of franz-go: %w", err)
	}
	select {
	case <-s.joined:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.c.receiving.Done():
		return s.c.why()
	}
	return nil
}

// groupHook receives an error when the library has left the group after a failure. The library would join again.
type groupHook franzSource

// OnGroupManageError implements kgo.HookGroupManageError.
func (h *groupHook) OnGroupManageError(err error) {
	h.c.broke(fmt.Errorf("take part in group %s: %w", h.c.group, err))
}

func (s *franzSource) assigned(_ context.Context, _ *kgo.Client, got map[string][]int32) {
	again := true
	s.first.Do(func() {
		again = false
		close(s.joined)
	})
	if again {
		s.c.session.env.Event(drivers.EventRebalanced, fmt.Sprintf("group %s: %s has partitions %v", s.c.group, s.c.id,
			slices.Sorted(slices.Values(got[s.c.topic]))))
	}
}

// lost is called when the group has removed this member.
func (s *franzSource) lost(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	if len(gone) > 0 {
		s.c.broke(fmt.Errorf("group %s has taken partitions %v away: %w", s.c.group, gone[s.c.topic],
			kerr.UnknownMemberID))
	}
}

func (s *franzSource) run() {
	ctx := s.c.receiving
	var gathered []message
	for {
		fetches := s.library.PollRecords(ctx, s.c.allowance())
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if p.Err != nil && ctx.Err() == nil {
				s.c.broke(fmt.Errorf("fetch from partition %d of %s: %w", p.Partition, s.c.topic, p.Err))
			}
			gathered = gathered[:0]
			for _, r := range p.Records {
				gathered = append(gathered, message{body: r.Value, next: r.Offset + 1})
			}
			s.c.deliver(p.Partition, gathered)
		})
		if ctx.Err() != nil {
			return
		}
		s.library.AllowRebalance()
	}
}

func (s *franzSource) commit(ctx context.Context, positions map[int32]int64) (err error) {
	offsets := make(map[int32]kgo.EpochOffset, len(positions))
	for p, next := range positions {
		offsets[p] = kgo.EpochOffset{Epoch: -1, Offset: next}
	}
	s.library.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{s.c.topic: offsets},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, failed error) {
			if err = failed; err != nil {
				return
			}
			for _, t := range response.Topics {
				for _, p := range t.Partitions {
					err = cmp.Or(err, kerr.ErrorForCode(p.ErrorCode))
				}
			}
		})
	return err
}

func (s *franzSource) leave() {
	if s.library == nil {
		return
	}
	if s.c.ended() {
		_ = s.library.LeaveGroupContext(nil) //lint:ignore SA1012 nil: do not wait for the response
	}
	s.library.CloseAllowingRebalance()
}
