package rabbitmq

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
)

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// spaces is an endless JSON document.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// TestAnswersOfTheManagementAPIAreLimited: an address that is not the management API does not fill the memory.
func TestAnswersOfTheManagementAPIAreLimited(t *testing.T) {
	for size, want := range map[int64]string{10: "", maxAnswer: "more than"} {
		m := &management{base: "http://h", client: &http.Client{Transport: transport(func(*http.Request) (*http.Response,
			error) {
			body := io.MultiReader(io.LimitReader(spaces{}, size), strings.NewReader("[]"))
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body)}, nil
		})}}
		var answer []string
		if err := m.get(t.Context(), nil, &answer, "queues"); (err != nil) != (want != "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("an answer of %d bytes gives %v, want an error with %q", size, err, want)
		}
	}
}

// The leaders in a cluster are not known without the management API, or with too many queues.
func TestLeadersThatAreNotRead(t *testing.T) {
	for want, s := range map[string]*session{
		"":                {endpoints: make([]endpoint, 1)},
		"give management": {endpoints: make([]endpoint, 3)},
		"maximum 500":     {endpoints: make([]endpoint, 3), api: &management{}},
	} {
		leaders, err := s.Leaders(t.Context(), drivers.Topology{Queues: 501, Subscriptions: 1})
		if leaders != nil || (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v: want an error with %q", leaders, err, want)
		}
	}
}
