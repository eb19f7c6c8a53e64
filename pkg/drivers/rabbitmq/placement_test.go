package rabbitmq

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// placed returns a session with the nodes n0, n1 and n2, at addresses of the same names. Those in down do not answer.
// The management API answers the n-th request for a queue with the n-th of answers, and later ones with the last.
func placed(t *testing.T, down []string, answers ...string) *session {
	t.Helper()
	env := drivers.Env{Dial: func(_ context.Context, _, address string) (net.Conn, error) {
		if host, _, _ := net.SplitHostPort(address); slices.Contains(down, host) {
			return nil, errors.New("refused")
		}
		near, far := net.Pipe()
		go (&scriptedServer{Conn: far, fails: &atomic.Bool{}}).serve()
		return near, nil
	}}
	opened, err := driver{}.Open(t.Context(), schematest.Fill(t, driver{},
		`{"urls": ["amqp://n0", "amqp://n1", "amqp://n2"], "queue": {"type": "quorum"}}`), env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	s := opened.(*session)
	s.nodes = []string{"n0", "n1", "n2"}
	s.api = &management{base: "http://h", client: &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
		answer := answers[0]
		answers = answers[min(1, len(answers)-1):]
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(answer))}, nil
	})}}
	return s
}

func connectTo(t *testing.T, s *session, node drivers.Node) (string, error) {
	t.Helper()
	c, err := s.Connect(t.Context(), drivers.ConnSpec{Role: drivers.ConsumerRole, Node: node,
		Topology: drivers.Topology{Name: "q"}})
	if err != nil {
		return "", err
	}
	return c.Node(), nil
}

// After a failed connection to a leader, the next attempt looks for the leader again.
func TestNextLeaderIsFound(t *testing.T) {
	s := placed(t, []string{"n0"}, `{"leader": "n0"}`, `{"leader": "n1"}`)
	if at, err := connectTo(t, s, drivers.LeaderNode); err == nil {
		t.Fatalf("the connection to a leader that is down leads to %s", at)
	}
	if at, err := connectTo(t, s, drivers.LeaderNode); err != nil || at != "n1:5672" {
		t.Errorf("the connection to the next leader leads to %q: %v; want n1:5672", at, err)
	}
}

// Followers that are down are not tried if the broker reports it. Otherwise the next one is tried.
func TestFollowersThatAreDown(t *testing.T) {
	for _, answer := range []string{
		`{"leader": "n0", "members": ["n0", "n1", "n2"], "online": ["n0", "n2"]}`,
		`{"leader": "n0", "members": ["n0", "n1", "n2"], "online": ["n0", "n1", "n2"]}`,
	} {
		s := placed(t, []string{"n1"}, answer)
		if at, err := connectTo(t, s, drivers.FollowerNode); err != nil || at != "n2:5672" {
			t.Errorf("%s: the connection to a follower leads to %q: %v; want n2:5672", answer, at, err)
		}
	}
	_, followers, err := placed(t, nil, `{"leader": "n0", "members": ["n0", "n1", "n2"], "online": ["n0", "n2"]}`).
		findQueue(t.Context(), "q")
	if err != nil || !slices.Equal(followers, []string{"n2"}) {
		t.Errorf("followers %v, %v; want n2", followers, err)
	}
}

// The name of an endpoint that did not answer is requested again, after an error that names the endpoint.
func TestNamesAreRequestedAgain(t *testing.T) {
	s := placed(t, nil, `{"leader": "n0"}`)
	s.nodes = []string{"", "n1", "n2"}
	_, err := connectTo(t, s, drivers.LeaderNode)
	for _, want := range []string{"[n0]", "n0:5672 (no answer)", "give the urls of all nodes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("an unnamed endpoint: %v, want an error with %q", err, want)
		}
	}
	if s.nodes != nil {
		t.Errorf("the names are still %q", s.nodes)
	}
}
