package nats

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"lockstep/pkg/drivers"
)

// prober is the link on which the broker is asked for its figures, past the simulated network.
type prober struct {
	mu       sync.Mutex
	link     *link
	topology drivers.Topology // whose queues are the task's own; none before Setup
}

func (p *prober) own(t drivers.Topology) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.topology = t
}

// Probe asks JetStream for the streams of the task's own topology and their consumers, and for what the account stores. Processor
// and memory of a server it does not say: name the process in the matrix.
func (s *session) Probe(ctx context.Context) ([]drivers.Figure, error) {
	s.prober.mu.Lock()
	defer s.prober.mu.Unlock()
	js, err := s.aside(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask NATS for its figures: %w", err)
	}
	raw := s.prober.link.raw
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })() // the library may hold its lock while it cannot write
	account, err := js.AccountInfo(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask NATS for its figures: %w", explain(err))
	}
	figures := []drivers.Figure{{Name: drivers.FigureStored, Value: float64(account.Store)}}
	if s.prober.topology.Name == "" {
		return figures, nil
	}
	own, err := s.ownFigures(ctx, js)
	if err != nil {
		return nil, fmt.Errorf("ask NATS for its figures: %w", err)
	}
	return append(figures, own...), nil
}

// aside is JetStream over the prober's own link; if that broke, over another. The caller holds the prober's mu.
func (s *session) aside(ctx context.Context) (jetstream.JetStream, error) {
	if s.prober.link == nil || s.prober.link.broken() {
		l, err := s.dialFirst(ctx, s.endpoints, s.env.Aside())
		if err != nil {
			return nil, err
		}
		s.prober.link = l
	}
	return jetstream.New(s.prober.link.nc)
}

// ownFigures adds up the task's streams. A stream that is missing makes the sums unknown.
func (s *session) ownFigures(ctx context.Context, js jetstream.JetStream) ([]drivers.Figure, error) {
	ctx, cancel := context.WithCancel(ctx) // ends a listing that is given up
	defer cancel()
	t := s.prober.topology
	var depth, unacked, pending uint64
	queues, short := 0, 0
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		if !strings.HasPrefix(info.Config.Name, streamPrefix(t)) {
			continue
		}
		queues++
		depth += info.State.Msgs
		if lacksReplica(info) {
			short++
		}
		if t.Consumers == 0 {
			continue
		}
		stream, err := js.Stream(ctx, info.Config.Name)
		if err != nil {
			return nil, fmt.Errorf("find stream %s: %w", info.Config.Name, err)
		}
		consumers := stream.ListConsumers(ctx)
		for c := range consumers.Info() {
			unacked, pending = unacked+uint64(c.NumAckPending), pending+c.NumPending
		}
		if err := consumers.Err(); err != nil {
			return nil, fmt.Errorf("list consumers of stream %s: %w", info.Config.Name, err)
		}
	}
	if err := streams.Err(); err != nil {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	figures := []drivers.Figure{{Name: drivers.FigureQueues, Value: float64(queues)}, {Name: drivers.FigureUnderReplicated, Value: float64(short)}}
	if queues == t.Queues {
		figures = append(figures, drivers.Figure{Name: drivers.FigureQueueDepth, Value: float64(depth)})
		if t.Consumers > 0 {
			figures = append(figures, drivers.Figure{Name: drivers.FigureUnacked, Value: float64(unacked)},
				drivers.Figure{Name: drivers.FigureLag, Value: float64(unacked + pending)})
		}
	}
	return figures, nil
}

// lacksReplica tells whether fewer servers than should have all of a stream.
func lacksReplica(info *jetstream.StreamInfo) bool {
	current := 1 // who leads
	if info.Cluster != nil {
		for _, peer := range info.Cluster.Replicas {
			if peer.Current && !peer.Offline {
				current++
			}
		}
	}
	return current < info.Config.Replicas
}
