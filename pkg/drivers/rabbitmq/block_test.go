package rabbitmq

import (
	"slices"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// The blocked time of two blocked connections is one period. It ends under the name with which it began, whichever
// connection is unblocked last.
func TestBlockedTimeEnds(t *testing.T) {
	var got []event
	s := &session{env: drivers.Env{Event: func(kind drivers.EventKind,
		detail string) {
		got = append(got, event{kind, detail})
	}}}
	s.block("a:5672", "low on memory")
	s.block("b:5672", "low on disk")
	s.unblock()
	s.unblock()
	s.block("b:5672", "low on disk")
	s.unblock()
	got = slices.DeleteFunc(got, func(e event) bool { return e.kind == drivers.EventNotice })
	want := []event{
		{drivers.EventBlocked, "a:5672"}, {drivers.EventUnblocked, "a:5672"},
		{drivers.EventBlocked, "b:5672"}, {drivers.EventUnblocked, "b:5672"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}
