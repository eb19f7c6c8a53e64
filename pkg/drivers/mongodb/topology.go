package mongodb

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	client "go.mongodb.org/mongo-driver/v2/mongo/options"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// Each queue of each subscription is a collection. Its name contains "_", which a topology's name cannot contain.

func collectionName(t drivers.Topology, subscription, queue int) string {
	if t.Existing != "" {
		return drivers.QueueName(t.Existing, queue)
	}
	return fmt.Sprintf("%s_s%d_q%d", t.Name, subscription, queue)
}

func collections(t drivers.Topology) []string {
	var all []string
	for subscription := range t.Subscriptions {
		for queue := range t.Queues {
			all = append(all, collectionName(t, subscription, queue))
		}
	}
	return all
}

// Setup creates the collections with the index that claims use. Existing collections are dropped first.
func (s *session) Setup(ctx context.Context, t drivers.Topology) error {
	s.announce.Do(func() {
		if warning := s.server.warning(&s.options, t.Persistent); warning != "" {
			s.env.Event(drivers.EventNotice, warning)
		}
	})
	db, err := s.database(ctx, &s.admin, s.env.Dial)
	if err != nil {
		return fmt.Errorf("set up %s: %w", t.Name, err)
	}
	for _, name := range collections(t) {
		if err := s.make(ctx, db, name); err != nil {
			return fmt.Errorf("set up %s: %w", t.Name, err)
		}
	}
	s.note(t)
	return nil
}

func (s *session) make(ctx context.Context, db *mongo.Database, name string) error {
	if err := db.Collection(name).Drop(ctx); err != nil {
		return fmt.Errorf("empty collection %s: %w", name, err)
	}
	if err := db.CreateCollection(ctx, name); err != nil {
		return fmt.Errorf("create collection %s: %w", name, err)
	}
	keys := byRandom
	if s.options.Order == orderInsertion {
		keys = byInsertion
	}
	_, err := db.Collection(name).Indexes().CreateOne(ctx,
		mongo.IndexModel{Keys: keys, Options: client.Index().SetName("claim")})
	if err != nil {
		return fmt.Errorf("create index of collection %s: %w", name, err)
	}
	return nil
}

func (s *session) Verify(ctx context.Context, t drivers.Topology) error {
	for queue := range t.Queues {
		if err := s.exist(ctx, t, queue); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
	}
	return nil
}

func (s *session) Teardown(ctx context.Context, t drivers.Topology) error {
	if err := s.drop(ctx, collections(t)); err != nil {
		return fmt.Errorf("tear down %s: %w", t.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.known)
	return nil
}

// drop drops collections. A missing collection is not an error.
func (s *session) drop(ctx context.Context, names []string) error {
	db, err := s.database(ctx, &s.admin, s.env.Dial)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := db.Collection(name).Drop(ctx); err != nil {
			return fmt.Errorf("drop collection %s: %w", name, err)
		}
	}
	return nil
}

var errNotSetUp = errors.New("does not exist: check the option database, and topology.existing if it is set")

// exist returns an error if a collection of a queue does not exist, of any subscription. It checks each queue once per
// session. Without the check, an insert would create a collection without the index.
func (s *session) exist(ctx context.Context, t drivers.Topology, queue int) error {
	first := collectionName(t, 0, queue)
	s.mu.Lock()
	known := s.known[first]
	s.mu.Unlock()
	if known {
		return nil
	}
	prefix := t.Name
	if t.Existing != "" {
		prefix = first
	}
	there, err := s.list(ctx, prefix)
	if err != nil {
		return err
	}
	for subscription := range t.Subscriptions {
		if name := collectionName(t, subscription, queue); !slices.Contains(there, name) {
			return fmt.Errorf("collection %s %w", name, errNotSetUp)
		}
	}
	s.note(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[first] = true
	return nil
}

// note stores the names of the task's collections for Probe.
func (s *session) note(t drivers.Topology) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.depths = collections(t)
}

// list returns the names of the collections that begin with prefix.
func (s *session) list(ctx context.Context, prefix string) ([]string, error) {
	db, err := s.database(ctx, &s.admin, s.env.Dial)
	if err != nil {
		return nil, err
	}
	names, err := db.ListCollectionNames(ctx, bson.D{{Key: "name",
		Value: bson.D{{Key: "$regex", Value: "^" + regexp.QuoteMeta(prefix)}}}})
	if err != nil {
		return nil, fmt.Errorf("list collections: %w", err)
	}
	return names, nil
}

const kindCollection = "collection"

func (s *session) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	names, err := s.list(ctx, prefix)
	if err != nil {
		return nil, fmt.Errorf("list leftovers: %w", err)
	}
	return kit.Leftovers(kindCollection, prefix, names), nil
}

func (s *session) Cleanup(ctx context.Context, these []drivers.Leftover) error {
	return kit.Cleanup(these, map[string]func([]string) error{kindCollection: func(names []string) error {
		return s.drop(ctx, names)
	}})
}
