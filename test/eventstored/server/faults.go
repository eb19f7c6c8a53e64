package server

import (
	"context"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// fault is an error of the protocol: a status, and trailers that name the kind of error.
type fault struct {
	code     codes.Code
	text     string
	trailers []string // keys and values, alternating
}

func (f *fault) Error() string { return f.text }

// GRPCStatus implements gRPC's interface for errors with a status.
func (f *fault) GRPCStatus() *status.Status { return status.New(f.code, f.text) }

// answer adds the trailers of a fault to the response of a call, and returns the fault.
func answer(ctx context.Context, f *fault) error {
	if f == nil {
		return nil
	}
	_ = grpc.SetTrailer(ctx, metadata.Pairs(f.trailers...)) // fails only without a call
	return f
}

func streamDeleted(stream string) *fault {
	return &fault{codes.FailedPrecondition, "Event stream '" + stream + "' is deleted.",
		[]string{"exception", "stream-deleted", "stream-name", stream}}
}

func wrongVersion(stream, expected, actual string) *fault {
	return &fault{codes.FailedPrecondition, "WrongExpectedVersion: stream " + stream + ", expected " + expected +
		", actual " + actual,
		[]string{"exception", "wrong-expected-version", "stream-name", stream, "expected-version", expected,
			"actual-version", actual}}
}

func appendTooLarge(most int) *fault {
	return &fault{codes.InvalidArgument, "Maximum Append Size of " + strconv.Itoa(most) + " Exceeded.",
		[]string{"exception", "maximum-append-size-exceeded", "maximum-append-size", strconv.Itoa(most)}}
}

func missingMetadata(key string) *fault {
	return &fault{codes.InvalidArgument, "Required Metadata Property '" + key + "' is missing",
		[]string{"exception", "missing-required-metadata-property", "required-metadata-properties",
			"type,content-type"}}
}

func invalid(text string) *fault { return &fault{code: codes.InvalidArgument, text: text} }

func groupMissing(stream, group string) *fault {
	return &fault{codes.NotFound, "Subscription group " + group + " on stream " + stream + " does not exist.",
		[]string{"exception", "persistent-subscription-does-not-exist", "stream-name", stream, "group-name", group}}
}

func groupExists(stream, group string) *fault {
	return &fault{codes.AlreadyExists, "Subscription group " + group + " on stream " + stream + " exists.",
		[]string{"exception", "persistent-subscription-exists", "stream-name", stream, "group-name", group}}
}

func groupFull(stream, group string) *fault {
	return &fault{codes.FailedPrecondition, "Maximum subscriptions reached for subscription group " + group +
		" on stream " + stream + ".",
		[]string{"exception", "maximum-subscribers-reached", "stream-name", stream, "group-name", group}}
}

func groupDropped(stream, group string) *fault {
	return &fault{codes.Canceled, "Subscription group " + group + " on stream " + stream + " was dropped.",
		[]string{"exception", "persistent-subscription-dropped", "stream-name", stream, "group-name", group}}
}

func notLeader(host string, port uint32) *fault {
	return &fault{codes.NotFound, "Leader info available",
		[]string{"exception", "not-leader", "leader-endpoint-host", host, "leader-endpoint-port",
			strconv.Itoa(int(port))}}
}
