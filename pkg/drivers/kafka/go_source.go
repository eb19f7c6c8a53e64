package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

const (
	// joinAgain is the time after which kafka-go tries again to join a group. Its default is five seconds.
	joinAgain = 200 * time.Millisecond
	// fetched is the number of messages that wait between kafka-go's Reader and the consumer.
	fetched = 500
)

// goSource receives with kafka-go's Reader. The Reader does not report rebalancings. Messages that the consumer has
// received and not committed before a rebalancing are delivered again.
type goSource struct {
	c      *consumer
	reader *kafka.Reader
	failed atomic.Value // last error of the Reader, while it joins the group
}

// goMaxWait returns the timeout of a fetch for which kafka-go requests wait from the broker: it subtracts a quarter of
// the timeout for the round trip, or a second if the timeout is longer.
func goMaxWait(wait time.Duration) time.Duration {
	if wait < 750*time.Millisecond {
		return wait * 4 / 3
	}
	return wait + time.Second
}

// reported is an error that the Reader logged.
type reported struct{ error }

func (s *goSource) start(ctx context.Context) error {
	o := &s.c.session.options
	s.reader = kafka.NewReader(kafka.ReaderConfig{
		Brokers: o.Brokers, GroupID: s.c.group, Topic: s.c.topic, StartOffset: kafka.FirstOffset,
		Dialer: &kafka.Dialer{ClientID: s.c.id, DialFunc: s.c.dial, SASLMechanism: s.c.session.sasl.goes,
			Timeout: patience},
		MinBytes: 1, MaxBytes: o.FetchBytes,
		MaxWait:           goMaxWait(o.FetchWait.Std()),
		HeartbeatInterval: o.Heartbeat.Std(), SessionTimeout: o.SessionTimeout.Std(),
		RebalanceTimeout: max(rebalancing, o.SessionTimeout.Std()), JoinGroupBackoff: joinAgain,
		GroupBalancers: []kafka.GroupBalancer{kafka.RangeGroupBalancer{}},
		ErrorLogger: kafka.LoggerFunc(func(_ string, args ...any) {
			for _, a := range args {
				if err, is := a.(error); is {
					s.failed.Store(reported{err})
				}
			}
		}),
	})
	return kit.Poll(ctx, askEvery, func() (done bool, err error) {
		switch {
		case s.reader.Stats().Rebalances > 0:
			return true, nil
		case s.c.ended():
			return true, s.c.why()
		}
		err = errors.New("no partitions were assigned")
		if last, is := s.failed.Load().(reported); is {
			err = fmt.Errorf("%w: %w", err, kerrOf(last.error))
		}
		return false, err
	})
}

func (s *goSource) run() {
	waiting := make(chan kafka.Message, fetched)
	go s.fetch(s.c.receiving, waiting)
	var batch []kafka.Message
	var gathered []message
	for m := range waiting {
		batch = append(batch[:0], m)
		for len(waiting) > 0 && len(batch) < fetched {
			batch = append(batch, <-waiting)
		}
		for i, m := range batch {
			gathered = append(gathered, message{body: m.Value, next: m.Offset + 1})
			if i == len(batch)-1 || batch[i+1].Partition != m.Partition {
				s.c.deliver(int32(m.Partition), gathered)
				gathered = gathered[:0]
			}
		}
	}
}

func (s *goSource) fetch(ctx context.Context, to chan<- kafka.Message) {
	defer close(to)
	for {
		m, err := s.reader.FetchMessage(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.c.broke(fmt.Errorf("fetch from %s: %w", s.c.topic, kerrOf(err)))
			}
			return
		}
		select {
		case to <- m:
		case <-ctx.Done():
			return
		}
	}
}

// commit commits positions. If the group is rebalancing, the Reader may close its connection meanwhile. It delivers the
// messages again.
func (s *goSource) commit(ctx context.Context, positions map[int32]int64) error {
	var last []kafka.Message
	for p, next := range positions {
		last = append(last, kafka.Message{Topic: s.c.topic, Partition: int(p), Offset: next - 1})
	}
	err := s.reader.CommitMessages(ctx, last...)
	var code kafka.Error
	if errors.As(err, &code) && (code == kafka.RebalanceInProgress || code == kafka.IllegalGeneration ||
		code == kafka.UnknownMemberId) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (s *goSource) leave() {
	if s.reader != nil {
		_ = s.reader.Close()
	}
}
