package rabbitmq

import (
	"errors"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// For every kind of exchange with keys, messages of a binding reach its queue from the return of Bind to the return of
// Unbind. Otherwise they are returned.
func TestBindingsOfEachExchange(t *testing.T) {
	for _, kind := range []string{"direct", "topic", "headers"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, single(t, `{"exchange": {"type": "`+kind+`"}}`),
				func(t *drivers.Topology) { t.Bindings = 3 })
			_, got := r.consumer()
			p, callbacks := r.publisher(drivers.ConfirmWindow, func(s *drivers.PublisherSpec) { s.Mandatory = true })
			const key = drivers.ChurnKey + 7
			sent := 0
			send := func(returned, received int) {
				t.Helper()
				if err := p.Publish(t.Context(), drivers.Message{Token: uint64(sent), Key: key,
					Body: []byte("x")}); err != nil {
					t.Fatal(err)
				}
				sent++
				labtest.Eventually(t, "its confirm, its return or its delivery", func() bool {
					h, _ := callbacks.counts()
					_, n := got.counts()
					return h == sent+returned && n == received
				})
			}
			send(1, 0)
			for range 2 { // the second time it exists already
				if err := r.session.Bind(t.Context(), r.topology, 0, 0, key); err != nil {
					t.Fatal(err)
				}
			}
			send(1, 1)
			if err := r.session.Bind(t.Context(), r.topology, 0, 0, key+1); err != nil {
				t.Fatal(err)
			}
			if err := r.session.Unbind(t.Context(), r.topology, 0, 0, key); err != nil {
				t.Fatal(err)
			}
			send(2, 1)
		})
	}
}

// Exchanges without keys are rejected, and so are the keys of the queue's own bindings.
func TestBindRefuses(t *testing.T) {
	for _, options := range []string{`{"exchange": {"type": "fanout"}}`, `{"exchange": {"type": "default"}}`,
		`{"queue": {"type": "stream"}}`} {
		r := newRig(t, single(t, options), nil)
		if err := r.session.Bind(t.Context(), r.topology, 0, 0, drivers.ChurnKey); !errors.Is(err,
			drivers.ErrUnsupported) {
			t.Errorf("%s: error %v, want ErrUnsupported", options, err)
		}
	}
	r := newRig(t, single(t, `{}`), nil)
	if err := r.session.Bind(t.Context(), r.topology, 0, 0, 7); err == nil {
		t.Error("a key of the queue's own bindings was bound")
	}
	// A missing queue closes only the channel.
	if err := r.session.Bind(t.Context(), r.topology, 5, 0, drivers.ChurnKey); err == nil ||
		!strings.Contains(err.Error(), "NOT_FOUND") {
		t.Errorf("error %v, want the broker's", err)
	}
	if err := r.session.Bind(t.Context(), r.topology, 0, 0, drivers.ChurnKey); err != nil {
		t.Errorf("bind after a refusal: %v", err)
	}
}
