package server

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
)

func TestGroupStarts(t *testing.T) {
	r := newRig(t, Options{})
	r.append("a", 3)
	r.create("a", "start", esdb.Start{}, nil)
	r.create("a", "one", esdb.Revision(1), nil)
	r.create("a", "end", esdb.End{}, nil)
	r.create("a", "later", esdb.Revision(4), nil)
	r.append("a", 2)
	for group, want := range map[string]string{"start": "0 1 2 0 1", "one": "1 2 0 1", "end": "0 1", "later": "1"} {
		m := r.join("a", group, 10)
		got, _ := m.take(len(strings.Fields(want)))
		r.want(group, got, want)
		m.nothing(20 * time.Millisecond)
	}
}

func TestGroupsAreThereOnce(t *testing.T) {
	r := newRig(t, Options{})
	r.create("a", "g", esdb.Start{}, nil)
	set := esdb.SubscriptionSettingsDefault()
	again := esdb.PersistentStreamSubscriptionOptions{Settings: &set}
	r.want("created again", code(r.db.CreatePersistentSubscription(r.ctx, "a", "g", again)), "exists")
	m := r.join("a", "g", 10)
	r.must(r.db.DeletePersistentSubscription(r.ctx, "a", "g", esdb.DeletePersistentSubscriptionOptions{}))
	if e := <-m.got; e.SubscriptionDropped == nil ||
		!strings.Contains(e.SubscriptionDropped.Error.Error(), "does not exist") {
		t.Errorf("a reader of a deleted group gets %+v", e)
	}
	r.want("deleted again", code(r.db.DeletePersistentSubscription(r.ctx, "a", "g",
		esdb.DeletePersistentSubscriptionOptions{})), "not found")
	_, err := r.db.SubscribeToPersistentSubscription(r.ctx, "a", "g", esdb.SubscribeToPersistentSubscriptionOptions{})
	r.want("read", code(err), "not found")
}

func TestGroupKeepsToTheBufferSize(t *testing.T) {
	r := newRig(t, Options{})
	r.create("a", "g", esdb.Start{}, nil)
	r.append("a", 10)
	m := r.join("a", "g", 3)
	got, all := m.take(3)
	r.want("at first", got, "0 1 2")
	m.nothing(20 * time.Millisecond)
	r.must(m.sub.Ack(all[1]))
	got, _ = m.take(1)
	r.want("after one acknowledgement", got, "3")
	m.nothing(20 * time.Millisecond)
	r.must(m.sub.Ack(all[0], all[2]))
	got, _ = m.take(2)
	r.want("after two more", got, "4 5")
	if i := r.info("a", "g"); i.Stats.TotalInFlightMessages != 3 || i.Connections[0].AvailableSlots != 0 ||
		*i.Stats.LastKnownEventRevision != 9 {
		t.Errorf("info: %+v %+v", i.Stats, i.Connections[0])
	}
}

func TestStrategies(t *testing.T) {
	for strategy, want := range map[esdb.ConsumerStrategy]string{
		esdb.ConsumerStrategyRoundRobin:       "0 2 4|1 3 5",
		esdb.ConsumerStrategyDispatchToSingle: "0 1 2|3 4 5",
		esdb.ConsumerStrategyPinned:           "0 1 2|",
	} {
		t.Run(string(strategy), func(t *testing.T) {
			r := newRig(t, Options{})
			r.create("a", "g", esdb.Start{},
				func(s *esdb.PersistentSubscriptionSettings) { s.ConsumerStrategyName = strategy })
			one, two := r.join("a", "g", 3), r.join("a", "g", 3)
			if strategy == esdb.ConsumerStrategyPinned && bucket("a")%2 == 1 {
				one, two = two, one
			}
			r.append("a", 6)
			first, second, _ := strings.Cut(want, "|")
			got, _ := one.take(len(strings.Fields(first)))
			r.want("the first", got, first)
			got, _ = two.take(len(strings.Fields(second)))
			r.want("the second", got, second)
			one.nothing(20 * time.Millisecond)
			two.nothing(0)
		})
	}
}

func TestRefusals(t *testing.T) {
	r := newRig(t, Options{})
	r.create("a", "g", esdb.Start{}, func(s *esdb.PersistentSubscriptionSettings) { s.MaxRetryCount = 2 })
	r.append("a", 5)
	m := r.join("a", "g", 5)
	_, all := m.take(5)
	r.must(m.sub.Nack("no", esdb.NackActionSkip, all[3]))
	r.must(m.sub.Nack("no", esdb.NackActionPark, all[4]))
	r.must(m.sub.Nack("no", esdb.NackActionRetry, all[1]))
	got, again := m.take(1)
	r.want("refused once", got, "1(1)")
	r.must(m.sub.Nack("no", esdb.NackActionUnknown, again...))
	got, again = m.take(1)
	r.want("refused twice", got, "1(2)")
	r.must(m.sub.Nack("no", esdb.NackActionRetry, again...))
	r.eventually("two parked", func() bool { return r.info("a", "g").Stats.ParkedMessagesCount == 2 })
	m.nothing(20 * time.Millisecond)
	r.must(r.db.ReplayParkedMessages(r.ctx, "a", "g", esdb.ReplayParkedMessagesOptions{}))
	got, _ = m.take(2)
	r.want("replayed", got, "1 4")
}

func TestTimeouts(t *testing.T) {
	r := newRig(t, Options{Tick: 10 * time.Millisecond})
	r.create("a", "g", esdb.Start{}, func(s *esdb.PersistentSubscriptionSettings) {
		s.MessageTimeout,
			s.MaxRetryCount = 1000, 1
	})
	r.append("a", 3)
	start := time.Now()
	m := r.join("a", "g", 3)
	_, all := m.take(3)
	r.must(m.sub.Ack(all[1]))
	got, _ := m.take(2)
	if took := time.Since(start); took < 800*time.Millisecond {
		t.Errorf("messages with a time-out of 1 s come again after %v", took)
	}
	r.want("after the time-out", got, "0(1) 2(1)")
	r.eventually("parked after the second one", func() bool { return r.info("a", "g").Stats.ParkedMessagesCount == 2 })

	r.create("a", "never", esdb.Start{}, func(s *esdb.PersistentSubscriptionSettings) { s.MessageTimeout = 0 })
	m = r.join("a", "never", 3)
	m.take(3)
	m.nothing(150 * time.Millisecond)
}

func TestWhoLeavesGivesBack(t *testing.T) {
	r := newRig(t, Options{})
	r.create("a", "g", esdb.Start{}, nil)
	r.append("a", 4)
	m := r.join("a", "g", 3)
	_, all := m.take(3)
	r.must(m.sub.Ack(all[0]))
	m.take(1)
	r.must(m.sub.Close())
	next := r.join("a", "g", 10)
	got, _ := next.take(3)
	r.want("what was not acknowledged", got, "1(1) 2(1) 3(1)")
}

func TestMostSubscribers(t *testing.T) {
	r := newRig(t, Options{})
	r.create("a", "g", esdb.Start{}, func(s *esdb.PersistentSubscriptionSettings) { s.MaxSubscriberCount = 1 })
	r.join("a", "g", 3)
	_, err := r.db.SubscribeToPersistentSubscription(r.ctx, "a", "g", esdb.SubscribeToPersistentSubscriptionOptions{})
	if err == nil || !strings.Contains(err.Error(), "Maximum subscriptions reached") {
		t.Errorf("a second reader of a group for one: %v", err)
	}
}

func TestCheckpoints(t *testing.T) {
	r := newRig(t, Options{Tick: 5 * time.Millisecond})
	r.create("a", "g", esdb.Start{}, func(s *esdb.PersistentSubscriptionSettings) {
		s.CheckpointLowerBound, s.CheckpointUpperBound, s.CheckpointAfter = 2, 100, 10
	})
	r.append("a", 10)
	m := r.join("a", "g", 10)
	_, all := m.take(10)
	r.must(m.sub.Ack(append(all[:5:5], all[6:]...)...))
	at := func() uint64 {
		if c := r.info("a", "g").Stats.LastCheckpointedEventRevision; c != nil {
			return *c
		}
		return 999
	}
	r.eventually("a checkpoint before the event that is not acknowledged", func() bool { return at() == 4 })
	r.must(m.sub.Ack(all[5]))
	r.eventually("a checkpoint at the end", func() bool { return at() == 9 })
	list, err := r.db.ListAllPersistentSubscriptions(r.ctx, esdb.ListPersistentSubscriptionsOptions{})
	r.must(err)
	if len(list) != 1 || list[0].GroupName != "g" || list[0].EventSource != "a" {
		t.Errorf("list: %+v", list)
	}
}

func TestUpdateDropsReaders(t *testing.T) {
	r := newRig(t, Options{})
	r.create("a", "g", esdb.Start{}, nil)
	r.append("a", 2)
	m := r.join("a", "g", 3)
	m.take(2)
	set := esdb.SubscriptionSettingsDefault()
	set.MaxRetryCount = 77
	r.must(r.db.UpdatePersistentSubscription(r.ctx, "a", "g", esdb.PersistentStreamSubscriptionOptions{Settings: &set}))
	if e := <-m.got; e.SubscriptionDropped == nil {
		t.Errorf("a reader of an updated group gets %+v", e)
	}
	if got := r.info("a", "g").Settings.MaxRetryCount; got != 77 {
		t.Errorf("the most retries are %d, want 77", got)
	}
	got, _ := r.join("a", "g", 3).take(2)
	r.want("what was not acknowledged", got, "0(1) 1(1)")
}

func TestFollowerSendsReadersToTheLeader(t *testing.T) {
	r := newRig(t, Options{})
	r.create("a", "g", esdb.Start{}, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	done := make(chan error, 1)
	go func() { done <- r.server.ServeFollower(l) }()
	db := connect(t, l.Addr().String())
	_, err = db.AppendToStream(r.ctx, "a", esdb.AppendToStreamOptions{}, events(1)...)
	r.must(err)
	_, err = db.SubscribeToPersistentSubscription(r.ctx, "a", "g", esdb.SubscribeToPersistentSubscriptionOptions{})
	r.want("a reader at the follower", code(err), "not leader")
	got, _ := r.join("a", "g", 3).take(1)
	r.want("what the follower took", got, "0")
	r.server.Stop()
	r.must(<-done)
}
