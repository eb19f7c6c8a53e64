package wire

import (
	"errors"
	"testing"

	"lockstep/internal/plan"
)

// clientOf connects a client within the process.
func clientOf(t testing.TB, s *Server) *Client {
	t.Helper()
	c, err := s.Client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// client dials with a user's credentials.
func (g *guardedPlane) client(t *testing.T, name string) *Client {
	t.Helper()
	c, err := DialClient(t.Context(), g.url, g.auth(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// serveClients has a leader answer clients: of one agent, one hook, and a history that is longer than a message.
func serveClients(t testing.TB, l *Lease) {
	t.Helper()
	stop, err := l.ServeClients(func() []AgentInfo { return []AgentInfo{{Heartbeat: Heartbeat{Agent: "a1"}}} },
		func(q plan.HistoryQuery) (plan.HistoryAnswer, error) {
			if len(q.Cells) > 0 {
				return plan.HistoryAnswer{}, errors.New("no such cell")
			}
			return longHistory(q), nil
		}, []string{"chat"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
}

// queueRun stores a submission as a leader does.
func queueRun(t testing.TB, c *Conn, run plan.Run) {
	t.Helper()
	packed, err := pack(Submission{Run: run})
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.message(subjectSubmit(run.ID), packed)
	if err == nil {
		err = c.store(t.Context(), m, onceID())
	}
	if err != nil {
		t.Fatal(err)
	}
}
