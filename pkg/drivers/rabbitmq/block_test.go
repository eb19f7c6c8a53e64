package rabbitmq

import (
	"slices"
	"testing"

	"lockstep/pkg/drivers"
)

// Two blocked connections are one blocked time, which has to end under the name it began with, whichever is freed last.
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
