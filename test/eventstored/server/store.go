package server

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/google/uuid"
)

// recentIDs is how many of a stream's latest events are known by their ids, so that appending them again changes
// nothing.
const recentIDs = 4096

// event is one that is stored. Nothing of it changes once it is, but gone.
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

// stream is one that something was appended to, or that somebody waits for. Guarded by the store.
type stream struct {
	name       string
	events     []*event
	next       uint64 // revision of the event to come
	deleted    bool   // until something is appended
	tombstoned bool
	maxCount   uint64 // 0: no limit
	before     uint64 // events of lower revisions are hidden ($tb)
	recent     map[uuid.UUID]uint64
}

func (s *stream) exists() bool { return s.next > 0 && !s.deleted && !s.tombstoned }

// from gives events from a revision on, at most so many.
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
	gone     int      // events of the log that are gone
	position uint64
	changed  chan struct{} // closed at the next append, if anybody waits
}

func newStore() *store { return &store{streams: map[string]*stream{}} }

// get gives a stream, which may have nothing in it. mu is held.
func (s *store) get(name string) *stream {
	at := s.streams[name]
	if at == nil {
		at = &stream{name: name, recent: map[uuid.UUID]uint64{}}
		s.streams[name] = at
	}
	return at
}

// find gives a stream or nil. mu is held.
func (s *store) find(name string) *stream { return s.streams[name] }

// wait gives a channel that is closed at the next change. Ask for it before looking at the streams.
func (s *store) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// proposed is an event that is not stored yet.
type proposed struct {
	id          uuid.UUID
	kind        string
	contentType string
	data, meta  []byte
}

// expectation is what an append or a delete expects of its stream.
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

// holds tells whether a stream is as expected.
func (e expectation) holds(s *stream) bool {
	switch e.kind {
	case expectNoStream:
		return !s.exists()
	case expectExists:
		return s.exists()
	case expectRevision:
		return s.next == e.revision+1 // of a deleted stream, too, which goes on where it was
	}
	return true
}

// written says what became of an append.
type written struct {
	wrong    bool   // the stream is not as expected
	exists   bool   // it has events
	revision uint64 // of its last event
	position uint64 // of the last event appended
}

// append stores all events or none. Events that were stored by the same append before change nothing, as far as that is
// known.
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

// repeated tells whether all events are in the stream already, in a row, and where the expectation would have put them.
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

// metadataOf names the stream that a stream holds the metadata of.
func metadataOf(name string) (string, bool) {
	if len(name) > 2 && name[:2] == "$$" {
		return name[2:], true
	}
	return "", false
}

// describe applies metadata to a stream, as far as it is known here.
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

// truncate forgets what the metadata of a stream hides.
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

// forget drops the oldest n events of a stream, and once there are many of them, from the log.
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

// remove deletes a stream; for good, if asked.
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
