package server

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/google/uuid"
)

// recentIDs is the number of a stream's latest events whose ids are stored. Appending such an event again has no
// effect.
const recentIDs = 4096

// event is a stored event. It is immutable, except for gone.
type event struct {
	id          uuid.UUID
	stream      string
	kind        string
	contentType string
	data, meta  []byte
	revision    uint64
	position    uint64 // in $all
	created     int64  // ticks of 100 ns since 1970
	gone        bool   // deleted or truncated; guarded by the store
}

// stream is a stream with events or with a waiting reader. It is guarded by the store.
type stream struct {
	name       string
	events     []*event
	next       uint64 // revision of the next event
	deleted    bool   // until the next append
	tombstoned bool
	maxCount   uint64 // 0: no limit
	before     uint64 // events of lower revisions are hidden ($tb)
	recent     map[uuid.UUID]uint64
}

func (s *stream) exists() bool { return s.next > 0 && !s.deleted && !s.tombstoned }

// from returns events from a revision on, at most this number.
func (s *stream) from(revision uint64, most int) []*event {
	if revision >= s.next || len(s.events) == 0 {
		return nil
	}
	first := s.events[0].revision
	at := int(max(revision, first) - first)
	return s.events[at:min(len(s.events), at+most)]
}

// store holds all streams.
type store struct {
	mu       sync.RWMutex
	streams  map[string]*stream
	log      []*event // $all
	gone     int      // number of deleted events in the log
	position uint64
	changed  chan struct{} // closed at the next append; nil: no reader waits
}

func newStore() *store { return &store{streams: map[string]*stream{}} }

// get returns a stream, and creates it if necessary. mu is held.
func (s *store) get(name string) *stream {
	at := s.streams[name]
	if at == nil {
		at = &stream{name: name, recent: map[uuid.UUID]uint64{}}
		s.streams[name] = at
	}
	return at
}

// find returns a stream or nil. mu is held.
func (s *store) find(name string) *stream { return s.streams[name] }

// wait returns a channel that is closed at the next change. Call it before reading the streams.
func (s *store) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// proposed is an event before it is stored.
type proposed struct {
	id          uuid.UUID
	kind        string
	contentType string
	data, meta  []byte
}

// expectation is the expected revision of an append or a delete.
type expectation struct {
	kind     expected
	revision uint64
}

type expected int

const (
	expectAny expected = iota
	expectNoStream
	expectExists
	expectRevision
)

// holds reports whether a stream is in the expected state.
func (e expectation) holds(s *stream) bool {
	switch e.kind {
	case expectNoStream:
		return !s.exists()
	case expectExists:
		return s.exists()
	case expectRevision:
		return s.next == e.revision+1 // also of a deleted stream, which keeps its revision
	}
	return true
}

// written is the result of an append.
type written struct {
	wrong    bool   // the stream is not in the expected state
	exists   bool   // the stream has events
	revision uint64 // of its last event
	position uint64 // of the last event appended
}

// append stores all events or none. Repeating an earlier append has no effect, as long as its ids are among recentIDs.
func (s *store) append(name string, expect expectation, all []proposed) (written, *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.get(name)
	if to.tombstoned {
		return written{}, streamDeleted(name)
	}
	if last, again := to.repeated(expect, all); again {
		return written{exists: true, revision: last.revision, position: last.position}, nil
	}
	if !expect.holds(to) {
		return written{wrong: true, exists: to.exists(), revision: to.next - 1}, nil
	}
	if len(all) == 0 {
		return written{exists: to.exists(), revision: to.next - 1, position: s.position}, nil
	}
	now := time.Now().UnixNano() / 100
	for i := range all {
		s.put(to, &all[i], now)
	}
	to.deleted = false
	s.truncate(to)
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	return written{exists: true, revision: to.next - 1, position: s.position}, nil
}

// repeated reports whether all events are in the stream, in sequence, and at the place that the expectation gives.
func (s *stream) repeated(expect expectation, all []proposed) (last *event, again bool) {
	if len(all) == 0 || !s.exists() {
		return nil, false
	}
	start, known := s.recent[all[0].id]
	switch {
	case !known:
		return nil, false
	case expect.kind == expectNoStream && start != 0, expect.kind == expectRevision && start != expect.revision+1:
		return nil, false
	}
	for i := range all {
		if at, known := s.recent[all[i].id]; !known || at != start+uint64(i) {
			return nil, false
		}
	}
	there := s.from(start+uint64(len(all))-1, 1)
	if len(there) == 0 {
		return nil, false
	}
	return there[0], true
}

func (s *store) put(to *stream, p *proposed, now int64) {
	s.position += uint64(64 + len(p.kind) + len(p.data) + len(p.meta))
	e := &event{id: p.id, stream: to.name, kind: p.kind, contentType: p.contentType, data: p.data, meta: p.meta,
		revision: to.next, position: s.position, created: now}
	to.events = append(to.events, e)
	s.log = append(s.log, e)
	to.recent[p.id] = to.next
	if to.next >= recentIDs {
		if old := to.from(to.next-recentIDs, 1); len(old) > 0 && old[0].revision == to.next-recentIDs {
			delete(to.recent, old[0].id)
		}
	}
	to.next++
	if of, is := metadataOf(to.name); is && p.kind == "$metadata" {
		s.describe(s.get(of), p.data)
	}
}

// metadataOf returns the stream whose metadata a stream has.
func metadataOf(name string) (string, bool) {
	if len(name) > 2 && name[:2] == "$$" {
		return name[2:], true
	}
	return "", false
}

// describe applies the supported metadata to a stream.
func (s *store) describe(to *stream, data []byte) {
	var m struct {
		MaxCount uint64 `json:"$maxCount"`
		Before   uint64 `json:"$tb"`
	}
	if json.Unmarshal(data, &m) != nil {
		return
	}
	to.maxCount, to.before = m.MaxCount, m.Before
	s.truncate(to)
}

// truncate deletes the events that the stream's metadata hides.
func (s *store) truncate(of *stream) {
	before := of.before
	if of.maxCount > 0 && of.next > of.maxCount {
		before = max(before, of.next-of.maxCount)
	}
	n := 0
	for n < len(of.events) && of.events[n].revision < before {
		n++
	}
	s.forget(of, n)
}

// forget deletes the oldest n events of a stream. When there are many deleted events, they are removed from the log.
func (s *store) forget(of *stream, n int) {
	for i, e := range of.events[:n] {
		e.gone = true
		delete(of.recent, e.id)
		of.events[i] = nil
	}
	of.events = of.events[n:]
	s.gone += n
	if s.gone < 1024 || s.gone < len(s.log)/2 {
		return
	}
	kept := make([]*event, 0, len(s.log)-s.gone)
	for _, e := range s.log {
		if !e.gone {
			kept = append(kept, e)
		}
	}
	s.log, s.gone = kept, 0
}

// remove deletes a stream, with forGood permanently.
func (s *store) remove(name string, expect expectation, forGood bool) (position uint64, f *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.get(name)
	if of.tombstoned {
		return 0, streamDeleted(name)
	}
	if !expect.holds(of) {
		return 0, wrongVersion(name, expect.text(), of.text())
	}
	s.forget(of, len(of.events))
	of.deleted, of.tombstoned = of.next > 0, forGood
	s.position += 64 // the delete itself
	return s.position, nil
}
