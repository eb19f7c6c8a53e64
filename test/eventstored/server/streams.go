package server

import (
	"context"
	"errors"
	"io"
	"strconv"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
)

// streamsService serves appends, deletes and reads.
type streamsService struct {
	streams.UnimplementedStreamsServer
	store     *store
	groups    *groups
	maxAppend int
}

// Append processes one append: options first, then events. It stores them when the client has closed its side.
func (s *streamsService) Append(call streams.Streams_AppendServer) error {
	first, err := call.Recv()
	if err != nil {
		return err
	}
	options := first.GetOptions()
	name := string(options.GetStreamIdentifier().GetStreamName())
	if options == nil || name == "" {
		return invalid("the first request has to be the options, with the name of a stream")
	}
	expect, f := appendExpectation(options)
	if f != nil {
		return f
	}
	var all []proposed
	size := 0
	for {
		request, err := call.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		p, f := propose(request.GetProposedMessage())
		if f != nil {
			return answer(call.Context(), f)
		}
		if size += len(p.data); size > s.maxAppend {
			return answer(call.Context(), appendTooLarge(s.maxAppend))
		}
		all = append(all, p)
	}
	w, f := s.store.append(name, expect, all)
	if f != nil {
		return answer(call.Context(), f)
	}
	if !w.wrong {
		s.groups.appended(name)
	}
	return call.SendAndClose(w.response(options))
}

func propose(m *streams.AppendReq_ProposedMessage) (proposed, *fault) {
	if m == nil {
		return proposed{}, invalid("after the options, every request has to be an event")
	}
	p := proposed{data: m.GetData(), meta: m.GetCustomMetadata()}
	var known bool
	if p.kind, known = m.GetMetadata()["type"]; !known {
		return p, missingMetadata("type")
	}
	if p.contentType, known = m.GetMetadata()["content-type"]; !known {
		return p, missingMetadata("content-type")
	}
	if p.id, known = parseID(m.GetId()); !known {
		return p, invalid("an event without an id")
	}
	return p, nil
}

func appendExpectation(o *streams.AppendReq_Options) (expectation, *fault) {
	switch e := o.GetExpectedStreamRevision().(type) {
	case *streams.AppendReq_Options_Any:
		return expectation{}, nil
	case *streams.AppendReq_Options_NoStream:
		return expectation{kind: expectNoStream}, nil
	case *streams.AppendReq_Options_StreamExists:
		return expectation{kind: expectExists}, nil
	case *streams.AppendReq_Options_Revision:
		return expectation{kind: expectRevision, revision: e.Revision}, nil
	}
	return expectation{}, invalid("an append needs an expected revision")
}

// response returns the response of an append. An unexpected state of the stream is a response, too.
func (w written) response(o *streams.AppendReq_Options) *streams.AppendResp {
	if w.wrong {
		wrong := &streams.AppendResp_WrongExpectedVersion{}
		if w.exists {
			wrong.CurrentRevisionOption = &streams.AppendResp_WrongExpectedVersion_CurrentRevision{CurrentRevision: w.revision}
		} else {
			wrong.CurrentRevisionOption = &streams.AppendResp_WrongExpectedVersion_CurrentNoStream{CurrentNoStream: &shared.Empty{}}
		}
		switch e := o.GetExpectedStreamRevision().(type) {
		case *streams.AppendReq_Options_NoStream:
			wrong.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: &shared.Empty{}}
		case *streams.AppendReq_Options_StreamExists:
			wrong.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedStreamExists{ExpectedStreamExists: &shared.Empty{}}
		case *streams.AppendReq_Options_Revision:
			wrong.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedRevision{ExpectedRevision: e.Revision}
		}
		return &streams.AppendResp{Result: &streams.AppendResp_WrongExpectedVersion_{WrongExpectedVersion: wrong}}
	}
	success := &streams.AppendResp_Success{
		CurrentRevisionOption: &streams.AppendResp_Success_NoStream{NoStream: &shared.Empty{}},
		PositionOption: &streams.AppendResp_Success_Position{
			Position: &streams.AppendResp_Position{CommitPosition: w.position, PreparePosition: w.position},
		},
	}
	if w.exists {
		success.CurrentRevisionOption = &streams.AppendResp_Success_CurrentRevision{CurrentRevision: w.revision}
	}
	return &streams.AppendResp{Result: &streams.AppendResp_Success_{Success: success}}
}

// Delete hides the current events of a stream.
func (s *streamsService) Delete(ctx context.Context, r *streams.DeleteReq) (*streams.DeleteResp, error) {
	var expect expectation
	switch e := r.GetOptions().GetExpectedStreamRevision().(type) {
	case *streams.DeleteReq_Options_NoStream:
		expect.kind = expectNoStream
	case *streams.DeleteReq_Options_StreamExists:
		expect.kind = expectExists
	case *streams.DeleteReq_Options_Revision:
		expect = expectation{expectRevision, e.Revision}
	}
	position, f := s.store.remove(string(r.GetOptions().GetStreamIdentifier().GetStreamName()), expect, false)
	if f != nil {
		return nil, answer(ctx, f)
	}
	return &streams.DeleteResp{PositionOption: &streams.DeleteResp_Position_{
		Position: &streams.DeleteResp_Position{CommitPosition: position, PreparePosition: position},
	}}, nil
}

// Tombstone deletes a stream permanently.
func (s *streamsService) Tombstone(ctx context.Context, r *streams.TombstoneReq) (*streams.TombstoneResp, error) {
	var expect expectation
	switch e := r.GetOptions().GetExpectedStreamRevision().(type) {
	case *streams.TombstoneReq_Options_NoStream:
		expect.kind = expectNoStream
	case *streams.TombstoneReq_Options_StreamExists:
		expect.kind = expectExists
	case *streams.TombstoneReq_Options_Revision:
		expect = expectation{expectRevision, e.Revision}
	}
	position, f := s.store.remove(string(r.GetOptions().GetStreamIdentifier().GetStreamName()), expect, true)
	if f != nil {
		return nil, answer(ctx, f)
	}
	return &streams.TombstoneResp{PositionOption: &streams.TombstoneResp_Position_{
		Position: &streams.TombstoneResp_Position{CommitPosition: position, PreparePosition: position},
	}}, nil
}

// text returns the expectation in the wording of the protocol's errors.
func (e expectation) text() string {
	return map[expected]string{expectAny: "-2", expectNoStream: "-1", expectExists: "-4",
		expectRevision: strconv.FormatUint(e.revision, 10)}[e.kind]
}

// text returns the current revision of the stream in that wording.
func (s *stream) text() string {
	if !s.exists() {
		return "-1"
	}
	return strconv.FormatUint(s.next-1, 10)
}

func parseID(id *shared.UUID) (uuid.UUID, bool) {
	switch v := id.GetValue().(type) {
	case *shared.UUID_Structured_:
		var u uuid.UUID
		putInt64(u[:8], v.Structured.GetMostSignificantBits())
		putInt64(u[8:], v.Structured.GetLeastSignificantBits())
		return u, true
	case *shared.UUID_String_:
		u, err := uuid.Parse(v.String_)
		return u, err == nil
	}
	return uuid.UUID{}, false
}
