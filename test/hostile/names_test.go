package hostile

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/web"
	"example.org/lockstep/lockstep/internal/wire"
)

// longName is a name that makes a subject longer than the server permits. The server closes the connection of a client
// that uses it.
var longName = strings.Repeat("a", 5000)

// TestLongNamesInHeartbeats proves that too long names in heartbeats do not harm the controller. The controller uses
// the names of runs in heartbeats as parts of subjects.
func TestLongNamesInHeartbeats(t *testing.T) {
	f := startFleet(t)
	nc := f.dial("agents/a1.nk")
	for name, h := range map[string]wire.Heartbeat{
		"run":      {Instance: "i", Attempt: wire.Ref{Run: longName, Task: "t", Attempt: "y"}},
		"task":     {Instance: "i", Attempt: wire.Ref{Run: "r", Task: longName, Attempt: "y"}},
		"attempt":  {Instance: "i", Attempt: wire.Ref{Run: "r", Task: "t", Attempt: longName}},
		"instance": {Instance: longName},
	} {
		h.Agent, h.Process = "a1", "a1"
		if rejection := requestError(t, nc, message("lockstep.agent.heartbeat.a1", jsonText(t,
			h))); !strings.Contains(rejection, "want at most 200") {
			t.Errorf("heartbeat with a long name of the %s: got error %q, want \"want at most 200\"", name, rejection)
		}
		f.checkController("a long name of the " + name)
	}
	f.awaitAgents(1) // the rejected agent is listed
}

// TestLongNamesOfRuns proves the same for ids of runs, which are in the subjects of the record and of assignments.
func TestLongNamesOfRuns(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	nc := f.dial("client.nk")
	id := longName[:3950]
	cell := newRun("longcell")
	cell.Cells[0].ID = longName
	for name, run := range map[string]plan.Run{"run": newRun(id), "cell": cell} {
		if rejection := requestError(t, nc, submission(t, run.ID,
			wire.Submission{Run: run})); !strings.Contains(rejection, "want at most 200") {
			t.Errorf("submission with a long name of the %s: got error %q, want \"want at most 200\"", name, rejection)
		}
	}
	f.executeRun("after")
	f.checkController("long names of runs")
}

// submission returns ctl's request to queue a run.
func submission(t *testing.T, id string, s any) *nats.Msg {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	must(t, json.NewEncoder(z).Encode(s))
	must(t, z.Close())
	query, err := json.Marshal(map[string]any{"Run": id, "Key": "k-" + id[:min(len(id), 50)], "Submission": b.Bytes()})
	must(t, err)
	return message("lockstep.client.submit", string(query))
}

// TestLongNamesInPaths proves the same for paths of web pages, also for those that no file can have. Any web site can
// make a browser request any path.
func TestLongNamesInPaths(t *testing.T) {
	f := startFleet(t)
	access, err := web.NewAccess(net.JoinHostPort("127.0.0.1", "0"), nil)
	must(t, err)
	pages := httptest.NewServer(web.New(web.Config{Conn: f.client, Copies: f.copies, Access: access,
		Log: slog.New(slog.DiscardHandler)}))
	defer pages.Close()
	inParts := strings.TrimSuffix(strings.Repeat(longName[:100]+"%2F", 50), "%2F")
	for _, path := range []string{"/runs/" + longName, "/runs/" + inParts, "/runs/" + longName + "/live",
		"/runs/" + longName + "/report.html", "/schedules/" + longName, "/schedules/" + inParts, "/" + longName, "/runs/%00",
		"/runs/%00/report.html"} {
		answer, err := pages.Client().Get(pages.URL + path)
		must(t, err)
		_, err = io.Copy(io.Discard, answer.Body)
		must(t, err)
		must(t, answer.Body.Close())
		if answer.StatusCode != 404 {
			t.Errorf("%.20s…: got status %d, want 404", path, answer.StatusCode)
		}
		f.checkController(fmt.Sprintf("%.20s", path))
	}
}
