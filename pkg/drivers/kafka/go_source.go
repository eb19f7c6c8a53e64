package kafka

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	kafka "github.com/segmentio/kafka-go"
)

const (
	// joinAgain is the time after which kafka-go tries again to join a group. Its default is five seconds.
	joinAgain = 200 * time.Millisecond
	// rebalancing is how long a group waits in a rebalancing for members that first have to give up partitions.
	rebalancing = 30 * time.Second
	// patience is how long a broker may take to answer, in addition to the wait that the request specifies.
	patience = 10 * time.Second
)

// goSource receives with kafka-go's ConsumerGroup, and one connection per assigned partition to its leader, which is
// read batch by batch. The library's Reader does the same, but does not report when it has joined, and uses one more
// goroutine and channel.
type goSource struct {
	c       *consumer
	dialer  *kafka.Dialer // for the group
	reading *kafka.Dialer // for partitions
	group   *kafka.ConsumerGroup
	current atomic.Pointer[goGeneration]
	ran     chan struct{} // closed when run has ended; nil before it starts
}

// goGeneration is the consumer's assignment between two rebalancings.
type goGeneration struct {
	source *goSource
	*kafka.Generation
	over    atomic.Bool
	leaders map[int]kafka.Broker // by partition

	mu    sync.Mutex
	conns []*kafka.Conn
}

func newGoSource(c *consumer) source {
	s := &goSource{c: c, dialer: &kafka.Dialer{ClientID: c.id, DialFunc: c.link.dial, SASLMechanism: c.session.sasl,
		Timeout: patience}}
	reading := *s.dialer
	reading.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := c.link.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &readAhead{conn, bufio.NewReaderSize(conn, ahead)}, nil
	}
	s.reading = &reading
	return s
}

// readAhead is a larger read buffer: kafka-go reads only 4 KiB at a time.
type readAhead struct {
	net.Conn
	buffer *bufio.Reader
}

const ahead = 64 << 10

func (r *readAhead) Read(p []byte) (int, error) { return r.buffer.Read(p) }

func (s *goSource) start(ctx context.Context) error {
	o := &s.c.session.options
	var err error
	s.group, err = kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: s.c.group, Brokers: o.Brokers, Dialer: s.dialer, Topics: []string{s.c.topic},
		GroupBalancers:    []kafka.GroupBalancer{kafka.RangeGroupBalancer{}},
		HeartbeatInterval: o.Heartbeat.std(), SessionTimeout: o.SessionTimeout.std(),
		RebalanceTimeout: max(rebalancing, o.SessionTimeout.std()),
		JoinGroupBackoff: joinAgain, StartOffset: kafka.FirstOffset,
	})
	if err != nil {
		return err
	}
	first, err := s.next(ctx)
	if err != nil {
		return err
	}
	if err := s.begin(ctx, first); err != nil {
		return err
	}
	s.ran = make(chan struct{})
	go s.run()
	return nil
}

// next waits for the next generation. It retries after temporary errors, such as a coordinator that is starting.
func (s *goSource) next(ctx context.Context) (*kafka.Generation, error) {
	for {
		g, err := s.group.Next(ctx)
		var code kafka.Error
		if err == nil || ctx.Err() != nil || s.c.link.over.Load() || !errors.As(err, &code) || !passes(code) {
			return g, err
		}
	}
}

// passes reports whether joining a group again may succeed. kafka-go does that after each error. Other members that
// join at the same time start a rebalancing, and the group removes members that miss it. kafka-go does not classify
// these errors as temporary.
func passes(code kafka.Error) bool {
	switch code {
	case kafka.RebalanceInProgress, kafka.UnknownMemberId, kafka.IllegalGeneration, kafka.MemberIDRequired:
		return true
	}
	return code.Temporary()
}

// run handles one generation after the other.
func (s *goSource) run() {
	defer close(s.ran)
	for {
		g, err := s.next(s.c.link.ctx)
		if errors.Is(err, kafka.ErrGroupClosed) {
			return
		}
		if err == nil {
			err = s.begin(s.c.link.ctx, g)
		}
		if err != nil {
			s.c.link.broke(fmt.Errorf("take part in group %s: %w", s.c.group, err))
			return
		}
		s.c.assigned(s.partitions(g))
	}
}

// begin connects to the leaders of the assigned partitions, and reads from them until the generation ends.
func (s *goSource) begin(ctx context.Context, from *kafka.Generation) error {
	g := &goGeneration{source: s, Generation: from}
	assigned := g.Assignments[s.c.topic]
	if err := g.connect(ctx, assigned); err != nil {
		g.disconnect()
		return err
	}
	s.current.Store(g)
	g.Start(func(ctx context.Context) {
		<-ctx.Done()
		g.over.Store(true)
		g.disconnect()
		s.c.revoke()
	})
	for i, p := range assigned {
		g.Start(func(context.Context) { g.read(i, p) })
	}
	return nil
}

// connect opens the connections for all partitions in parallel.
func (g *goGeneration) connect(ctx context.Context, assigned []kafka.PartitionAssignment) error {
	if len(assigned) == 0 {
		return nil
	}
	var err error
	if g.leaders, err = g.findLeaders(ctx); err != nil {
		return err
	}
	g.conns = make([]*kafka.Conn, len(assigned))
	errs := make([]error, len(assigned))
	var wg sync.WaitGroup
	for i, p := range assigned {
		wg.Go(func() { g.conns[i], errs[i] = g.dial(ctx, p.ID) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (g *goGeneration) dial(ctx context.Context, partition int) (*kafka.Conn, error) {
	at, known := g.leaders[partition]
	if !known {
		return nil, fmt.Errorf("partition %d of %s has no leader", partition, g.source.c.topic)
	}
	return g.source.reading.DialPartition(ctx, "tcp", "",
		kafka.Partition{Topic: g.source.c.topic, ID: partition, Leader: at})
}

func (g *goGeneration) findLeaders(ctx context.Context) (map[int]kafka.Broker, error) {
	s := g.source.c.session
	known, err := s.metadata(ctx, s.admin, []string{g.source.c.topic})
	if err != nil {
		return nil, err
	}
	brokers := map[int32]kafka.Broker{}
	for _, b := range known.Brokers {
		brokers[b.NodeID] = kafka.Broker{Host: b.Host, Port: int(b.Port), ID: int(b.NodeID)}
	}
	leaders := map[int]kafka.Broker{}
	for _, t := range known.Topics {
		for _, p := range t.Partitions {
			if b, ok := brokers[p.Leader]; ok {
				leaders[int(p.Partition)] = b
			}
		}
	}
	return leaders, nil
}

func (g *goGeneration) disconnect() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		if c != nil {
			_ = c.Close()
		}
	}
}

// partitions returns the assigned partitions, sorted.
func (s *goSource) partitions(of *kafka.Generation) []int32 {
	var all []int32
	for _, p := range of.Assignments[s.c.topic] {
		all = append(all, int32(p.ID))
	}
	slices.Sort(all)
	return all
}

func (s *goSource) commit(positions map[int32]int64) error {
	offsets := make(map[int]int64, len(positions))
	for p, next := range positions {
		offsets[int(p)] = next
	}
	return s.current.Load().CommitOffsets(map[string]map[int]int64{s.c.topic: offsets})
}

func (s *goSource) end() {
	if s.group == nil {
		return
	}
	_ = s.group.Close()
	if s.ran != nil {
		<-s.ran
	}
}
