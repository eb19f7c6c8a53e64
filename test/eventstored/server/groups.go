package server

import (
	"context"
	"slices"
	"sync"
	"time"
)

// groups are all persistent subscriptions.
type groups struct {
	store *store

	mu  sync.RWMutex
	all map[string][]*group // by stream
}

func newGroups(s *store) *groups { return &groups{store: s, all: map[string][]*group{}} }

// of returns the groups of a stream; "" is all streams.
func (g *groups) of(stream string) []*group {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if stream != "" {
		return slices.Clone(g.all[stream])
	}
	var all []*group
	for _, some := range g.all {
		all = append(all, some...)
	}
	slices.SortFunc(all, (*group).less)
	return all
}

func (g *groups) find(stream, name string) (*group, *fault) {
	for _, one := range g.of(stream) {
		if one.name == name {
			return one, nil
		}
	}
	return nil, groupMissing(stream, name)
}

func (g *groups) create(stream, name string, set settings) *fault {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, there := range g.all[stream] {
		if there.name == name {
			return groupExists(stream, name)
		}
	}
	g.all[stream] = append(slices.Clone(g.all[stream]), newGroup(g.store, stream, name, set))
	return nil
}

func (g *groups) remove(stream, name string) *fault {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, there := range g.all[stream] {
		if there.name == name {
			rest := slices.Delete(slices.Clone(g.all[stream]), i, i+1)
			if g.all[stream] = rest; len(rest) == 0 {
				delete(g.all, stream)
			}
			there.end()
			return nil
		}
	}
	return groupMissing(stream, name)
}

// appended notifies the groups of a stream about new events.
func (g *groups) appended(stream string) {
	g.mu.RLock()
	some := g.all[stream] // never modified in place
	g.mu.RUnlock()
	for _, one := range some {
		one.appended()
	}
}

// tick checks timeouts and checkpoints until ctx ends.
func (g *groups) tick(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for _, one := range g.of("") {
				one.look(now)
			}
		}
	}
}
