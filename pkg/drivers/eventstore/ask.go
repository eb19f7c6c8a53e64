package eventstore

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"

	"lockstep/pkg/drivers"
)

// basic are user and password as calls apart from the library's carry them.
type basic security

func (b basic) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(b.user+":"+b.password))}, nil
}

func (basic) RequireTransportSecurity() bool { return true }

// informs tells whether the server can be asked about persistent subscriptions. The library would ask an older one by HTTP, past the wire.
func (l *link) informs() bool {
	return l.version.Major > 22 || (l.version.Major == 22 && l.version.Minor >= 6)
}

// Describe asks the server what it is, and, of a cluster, who is in it.
func (s *session) Describe(ctx context.Context) (drivers.Description, error) {
	d := drivers.Description{Product: "EventStoreDB", Settings: s.describeSettings()}
	err := s.administer(ctx, func(_ context.Context, l *link) error {
		if v := l.version; v != (esdb.ServerVersion{}) {
			d.Version = fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
			if v.Major >= 25 {
				d.Product = "KurrentDB" // as it has been called since
			}
		}
		return nil
	})
	if err == nil && len(s.endpoints) > 1 {
		err = s.describeMembers(ctx, &d)
	}
	if err != nil {
		return drivers.Description{}, fmt.Errorf("describe EventStoreDB: %w", err)
	}
	return d, nil
}

func (s *session) describeMembers(ctx context.Context, d *drivers.Description) error {
	members, err := s.members(ctx)
	if err != nil {
		return err
	}
	for _, m := range members {
		d.Members = append(d.Members, addressOf(m))
	}
	slices.Sort(d.Members)
	return nil
}

// describeSettings are those that this session asks for.
func (s *session) describeSettings() map[string]string {
	o := &s.options
	all := map[string]string{
		"strategy": o.Strategy, "message_timeout": o.Timeout, "max_retry_count": strconv.Itoa(int(o.MaxRetries)),
		"live_buffer_size": strconv.Itoa(int(o.LiveBuffer)), "history_buffer_size": strconv.Itoa(int(o.History)),
		"read_batch_size": strconv.Itoa(int(o.ReadBatch)), "checkpoint_after": o.CheckAfter, "tls": strconv.FormatBool(s.security.tls != nil),
	}
	if o.MaxCount > 0 {
		all["max_count"] = strconv.FormatUint(o.MaxCount, 10)
	}
	return all
}

// probed is what the last probe saw.
type probed struct {
	at                  time.Time
	appended, delivered float64
}

// Probe asks about the groups of the last topology that this session heard of.
func (s *session) Probe(ctx context.Context) ([]drivers.Figure, error) {
	s.mu.Lock()
	t, last := s.topology, s.probed
	s.mu.Unlock()
	if t.Name == "" || t.Consumers == 0 {
		return nil, fmt.Errorf("probe EventStoreDB: it is asked about persistent subscriptions, and the cell has none: %w", drivers.ErrUnsupported)
	}
	at, err := s.place(ctx, drivers.AnyNode)
	if err != nil {
		return nil, fmt.Errorf("probe EventStoreDB: %w", err)
	}
	var sum tally
	for queue := range t.Queues {
		list, err := s.list(ctx, at[0], streamName(t, queue))
		if err != nil {
			return nil, fmt.Errorf("probe EventStoreDB at %s: %w", at[0].address, err)
		}
		sum.add(list)
	}
	now := probed{at: time.Now(), appended: sum.appended, delivered: sum.delivered}
	s.mu.Lock()
	s.probed = now
	s.mu.Unlock()
	figures := []drivers.Figure{
		{Name: drivers.FigureConsumers, Value: sum.consumers}, {Name: drivers.FigureUnacked, Value: sum.unacked}, {Name: drivers.FigureLag, Value: sum.lag},
	}
	if seconds := now.at.Sub(last.at).Seconds(); !last.at.IsZero() && seconds > 0 {
		figures = append(figures, drivers.Figure{Name: drivers.FigurePublishRate, Value: (now.appended - last.appended) / seconds},
			drivers.Figure{Name: drivers.FigureDeliverRate, Value: (now.delivered - last.delivered) / seconds})
	}
	return figures, nil
}

// list asks about the groups of a stream, at the leader.
func (s *session) list(ctx context.Context, at endpoint, stream string) ([]*persistent.SubscriptionInfo, error) {
	conn, err := s.aside(at)
	if err != nil {
		return nil, err
	}
	r, err := persistent.NewPersistentSubscriptionsClient(conn).List(ctx, &persistent.ListReq{Options: &persistent.ListReq_Options{
		ListOption: &persistent.ListReq_Options_ListForStream{ListForStream: &persistent.ListReq_StreamOption{
			StreamOption: &persistent.ListReq_StreamOption_Stream{Stream: &shared.StreamIdentifier{StreamName: []byte(stream)}},
		}},
	}})
	return r.GetSubscriptions(), err
}

// tally adds up what groups say.
type tally struct{ consumers, unacked, lag, appended, delivered float64 }

// add takes in the groups of one stream.
func (t *tally) add(groups []*persistent.SubscriptionInfo) {
	for i, g := range groups {
		t.consumers += float64(len(g.GetConnections()))
		t.unacked += float64(g.GetTotalInFlightMessages())
		t.delivered += float64(g.GetTotalItems())
		known, err := strconv.ParseInt(g.GetLastKnownEventPosition(), 10, 64)
		if err != nil {
			continue // nothing has been appended
		}
		done, err := strconv.ParseInt(g.GetLastCheckpointedEventPosition(), 10, 64)
		if from, bad := strconv.ParseInt(g.GetStartFrom(), 10, 64); err != nil && bad == nil {
			done = from - 1
		}
		t.lag += float64(known - done)
		if i == 0 {
			t.appended += float64(known)
		}
	}
}

// The kinds of what is left behind.
const (
	kindGroup  = "persistent subscription"
	kindStream = "stream"
	separator  = "::" // between a stream and a group of it
)

// Leftovers lists groups by the names of their streams, and streams. To find streams the server goes through all that it holds,
// which takes as long as ctx allows.
func (s *session) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	if prefix == "" {
		return nil, errors.New("look for leftovers: give the beginning of their names")
	}
	var found []drivers.Leftover
	err := s.administer(ctx, func(ctx context.Context, l *link) error {
		groups, err := l.client.ListAllPersistentSubscriptions(ctx, esdb.ListPersistentSubscriptionsOptions{})
		if err != nil && !is(err, esdb.ErrorCodeResourceNotFound) {
			return fmt.Errorf("list persistent subscriptions: %w", l.explain(err))
		}
		for _, g := range groups {
			if strings.HasPrefix(g.EventSource, prefix) {
				found = append(found, drivers.Leftover{Kind: kindGroup, Name: g.EventSource + separator + g.GroupName})
			}
		}
		streams, err := l.streams(ctx, prefix)
		if err != nil {
			return fmt.Errorf("list streams: %w", err)
		}
		for _, name := range streams {
			found = append(found, drivers.Leftover{Kind: kindStream, Name: name})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for leftovers of %q: %w", prefix, err)
	}
	slices.SortFunc(found, func(a, b drivers.Leftover) int { return strings.Compare(a.Kind+a.Name, b.Kind+b.Name) })
	return found, nil
}

// streams lists those whose names begin with prefix and that hold anything.
func (l *link) streams(ctx context.Context, prefix string) ([]string, error) {
	if v := l.version; v.Major < 23 || (v.Major == 23 && v.Minor < 10) {
		return nil, fmt.Errorf("EventStoreDB before 23.10 does not say when it has gone through all: %w", drivers.ErrUnsupported)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sub, err := l.client.SubscribeToAll(ctx, esdb.SubscribeToAllOptions{
		From: esdb.Start{}, MaxSearchWindow: 1000, Filter: &esdb.SubscriptionFilter{Type: esdb.StreamFilterType, Prefixes: []string{prefix}},
	})
	if err != nil {
		return nil, l.explain(err)
	}
	defer sub.Close()
	seen := map[string]bool{}
	for {
		e := sub.Recv()
		switch {
		case e.SubscriptionDropped != nil && ctx.Err() != nil:
			return nil, fmt.Errorf("the server had not gone through all that it holds: %w", ctx.Err())
		case e.SubscriptionDropped != nil:
			return nil, l.explain(e.SubscriptionDropped.Error)
		case e.EventAppeared != nil:
			seen[e.EventAppeared.OriginalEvent().StreamID] = true
		case e.CaughtUp != nil:
			return l.present(ctx, seen)
		}
	}
}

// present lists those streams that were not deleted.
func (l *link) present(ctx context.Context, seen map[string]bool) (names []string, err error) {
	for name := range seen {
		there, err := l.holds(ctx, name)
		if err != nil {
			return nil, l.explain(err)
		}
		if there {
			names = append(names, name)
		}
	}
	return names, nil
}

// Sweep removes groups and streams.
func (s *session) Sweep(ctx context.Context, these []drivers.Leftover) error {
	err := s.administer(ctx, func(ctx context.Context, l *link) error {
		var errs []error
		for _, one := range these {
			switch stream, group, two := strings.Cut(one.Name, separator); {
			case one.Kind == kindGroup && two:
				errs = append(errs, l.removeGroup(ctx, stream, group))
			case one.Kind == kindStream:
				errs = append(errs, l.removeStream(ctx, one.Name))
			default:
				errs = append(errs, fmt.Errorf("remove %s %q: it is not of a kind that this driver makes", one.Kind, one.Name))
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	return nil
}
