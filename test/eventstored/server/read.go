package server

import (
	"encoding/binary"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
)

// page is the maximum number of events per read of the store.
const page = 256

func putInt64(to []byte, v int64) { binary.BigEndian.PutUint64(to, uint64(v)) }

// writeID encodes an id in the format that the client requested.
func writeID(id uuid.UUID, text bool) *shared.UUID {
	if text {
		return &shared.UUID{Value: &shared.UUID_String_{String_: id.String()}}
	}
	return &shared.UUID{Value: &shared.UUID_Structured_{Structured: &shared.UUID_Structured{
		MostSignificantBits:  int64(binary.BigEndian.Uint64(id[:8])),
		LeastSignificantBits: int64(binary.BigEndian.Uint64(id[8:])),
	}}}
}

// metadata returns the server's metadata of an event.
func (e *event) metadata() map[string]string {
	return map[string]string{"type": e.kind, "content-type": e.contentType, "created": strconv.FormatInt(e.created, 10)}
}

// reading is one read or catch-up subscription.
type reading struct {
	call      streams.Streams_ReadServer
	store     *store
	backwards bool
	live      bool
	left      uint64
	textIDs   bool
	filter    func(*event) bool
	interval  uint64 // examined events per checkpoint; 0: no checkpoints
	looked    uint64
	reported  bool // "caught up" was sent
}

// Read reads a stream or $all, once or as a subscription.
func (s *streamsService) Read(r *streams.ReadReq, call streams.Streams_ReadServer) error {
	o := r.GetOptions()
	_, live := o.GetCountOption().(*streams.ReadReq_Options_Subscription)
	_, textIDs := o.GetUuidOption().GetContent().(*streams.ReadReq_Options_UUIDOption_String_)
	read := &reading{
		call: call, store: s.store, live: live, left: o.GetCount(), textIDs: textIDs,
		backwards: o.GetReadDirection() == streams.ReadReq_Options_Backwards,
	}
	if live {
		read.left = math.MaxUint64
		confirm := &streams.ReadResp_SubscriptionConfirmation{SubscriptionId: uuid.NewString()}
		if err := call.Send(&streams.ReadResp{Content: &streams.ReadResp_Confirmation{Confirmation: confirm}}); err != nil {
			return err
		}
	}
	switch from := o.GetStreamOption().(type) {
	case *streams.ReadReq_Options_Stream:
		return read.stream(from.Stream)
	case *streams.ReadReq_Options_All:
		if f := read.setFilter(o.GetFilter()); f != nil {
			return f
		}
		return read.all(from.All)
	}
	return invalid("a read needs a stream or all")
}

// stream reads one stream.
func (r *reading) stream(o *streams.ReadReq_Options_StreamOptions) error {
	name := string(o.GetStreamIdentifier().GetStreamName())
	missing, f := r.check(name)
	if f != nil {
		return answer(r.call.Context(), f)
	}
	if missing && !r.live {
		return r.call.Send(&streams.ReadResp{Content: &streams.ReadResp_StreamNotFound_{
			StreamNotFound: &streams.ReadResp_StreamNotFound{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(name)}},
		}})
	}
	if r.backwards {
		return r.streamBackwards(name, o)
	}
	var next uint64
	switch at := o.GetRevisionOption().(type) {
	case *streams.ReadReq_Options_StreamOptions_Revision:
		next = at.Revision
		if r.live {
			next++ // continue after it
		}
	case *streams.ReadReq_Options_StreamOptions_End:
		next = r.end(name)
	}
	return r.follow(func() []*event {
		r.store.mu.RLock()
		defer r.store.mu.RUnlock()
		of := r.store.find(name)
		if of == nil {
			return nil
		}
		found := append([]*event(nil), of.from(next, page)...)
		if len(found) > 0 {
			next = found[len(found)-1].revision + 1
		}
		return found
	})
}

// check reports whether a stream is missing, which is not a fault. A tombstoned stream is a fault.
func (r *reading) check(name string) (missing bool, f *fault) {
	r.store.mu.RLock()
	defer r.store.mu.RUnlock()
	of := r.store.find(name)
	if of != nil && of.tombstoned {
		return false, streamDeleted(name)
	}
	return of == nil || !of.exists(), nil
}

func (r *reading) end(name string) uint64 {
	r.store.mu.RLock()
	defer r.store.mu.RUnlock()
	if of := r.store.find(name); of != nil {
		return of.next
	}
	return 0
}

func (r *reading) streamBackwards(name string, o *streams.ReadReq_Options_StreamOptions) error {
	last := uint64(math.MaxUint64)
	switch at := o.GetRevisionOption().(type) {
	case *streams.ReadReq_Options_StreamOptions_Revision:
		last = at.Revision
	case *streams.ReadReq_Options_StreamOptions_Start:
		last = 0
	}
	r.store.mu.RLock()
	var found []*event
	if of := r.store.find(name); of != nil {
		for i := len(of.events) - 1; i >= 0 && uint64(len(found)) < r.left; i-- {
			if of.events[i].revision <= last {
				found = append(found, of.events[i])
			}
		}
	}
	r.store.mu.RUnlock()
	return r.send(found)
}

// all reads $all.
func (r *reading) all(o *streams.ReadReq_Options_AllOptions) error {
	var next uint64 // lowest position to read
	last := uint64(math.MaxUint64)
	switch at := o.GetAllOption().(type) {
	case *streams.ReadReq_Options_AllOptions_Position:
		next, last = at.Position.GetCommitPosition(), at.Position.GetCommitPosition()
		if r.live {
			next++
		}
	case *streams.ReadReq_Options_AllOptions_End:
		r.store.mu.RLock()
		next = r.store.position + 1
		r.store.mu.RUnlock()
	case *streams.ReadReq_Options_AllOptions_Start:
		last = 0
	}
	if r.backwards {
		return r.send(r.allBackwards(last))
	}
	return r.follow(func() []*event {
		r.store.mu.RLock()
		defer r.store.mu.RUnlock()
		var found []*event
		for i := search(r.store.log, next); i < len(r.store.log) && len(found) < page; i++ {
			if e := r.store.log[i]; !e.gone {
				found = append(found, e)
			}
		}
		if len(found) > 0 {
			next = found[len(found)-1].position + 1
		}
		return found
	})
}

func (r *reading) allBackwards(last uint64) (found []*event) {
	r.store.mu.RLock()
	defer r.store.mu.RUnlock()
	for i := len(r.store.log) - 1; i >= 0 && uint64(len(found)) < r.left; i-- {
		if e := r.store.log[i]; !e.gone && e.position <= last && r.matches(e) {
			found = append(found, e)
		}
	}
	return found
}

// search returns the index of the first event at or after a position.
func search(log []*event, position uint64) int {
	low, high := 0, len(log)
	for low < high {
		if middle := (low + high) / 2; log[middle].position < position {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// follow sends the events of more until it returns none. A subscription then reports that it has caught up, and waits.
func (r *reading) follow(more func() []*event) error {
	for r.left > 0 {
		var changed <-chan struct{}
		if r.live {
			changed = r.store.wait()
		}
		found := more()
		if len(found) > 0 {
			if err := r.send(found); err != nil {
				return err
			}
			continue
		}
		if !r.live {
			return nil
		}
		if !r.reported {
			r.reported = true
			if err := r.call.Send(&streams.ReadResp{Content: &streams.ReadResp_CaughtUp_{CaughtUp: &streams.ReadResp_CaughtUp{}}}); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-r.call.Context().Done():
			return r.call.Context().Err()
		}
	}
	return nil
}

func (r *reading) matches(e *event) bool { return r.filter == nil || r.filter(e) }

// send sends the events that match the filter, and checkpoints.
func (r *reading) send(all []*event) error {
	for _, e := range all {
		if r.left == 0 {
			return nil
		}
		if r.matches(e) {
			r.left--
			if err := r.call.Send(&streams.ReadResp{Content: &streams.ReadResp_Event{Event: r.event(e)}}); err != nil {
				return err
			}
		}
		if r.looked++; r.live && r.interval > 0 && r.looked%r.interval == 0 {
			at := &streams.ReadResp_Checkpoint{CommitPosition: e.position, PreparePosition: e.position}
			if err := r.call.Send(&streams.ReadResp{Content: &streams.ReadResp_Checkpoint_{Checkpoint: at}}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reading) event(e *event) *streams.ReadResp_ReadEvent {
	return &streams.ReadResp_ReadEvent{
		Event: &streams.ReadResp_ReadEvent_RecordedEvent{
			Id: writeID(e.id, r.textIDs), StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(e.stream)},
			StreamRevision: e.revision, PreparePosition: e.position, CommitPosition: e.position,
			Metadata: e.metadata(), CustomMetadata: e.meta, Data: e.data,
		},
		Position: &streams.ReadResp_ReadEvent_CommitPosition{CommitPosition: e.position},
	}
}

// setFilter decodes a filter of $all.
func (r *reading) setFilter(o *streams.ReadReq_Options_FilterOptions) *fault {
	if o == nil {
		return nil
	}
	r.interval = uint64(o.GetCheckpointIntervalMultiplier())
	if most, bounded := o.GetWindow().(*streams.ReadReq_Options_FilterOptions_Max); bounded {
		r.interval *= uint64(most.Max)
	}
	expression, of := o.GetStreamIdentifier(), func(e *event) string { return e.stream }
	if byType := o.GetEventType(); byType != nil {
		expression, of = byType, func(e *event) string { return e.kind }
	}
	if expression.GetRegex() != "" {
		pattern, err := regexp.Compile(expression.GetRegex())
		if err != nil {
			return invalid(err.Error())
		}
		r.filter = func(e *event) bool { return pattern.MatchString(of(e)) }
		return nil
	}
	r.filter = func(e *event) bool {
		for _, prefix := range expression.GetPrefix() {
			if strings.HasPrefix(of(e), prefix) {
				return true
			}
		}
		return false
	}
	return nil
}
