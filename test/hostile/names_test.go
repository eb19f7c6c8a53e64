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

// tooLong is a name that makes a subject longer than the server permits. The server closes the connection of a client
// that uses it.
var tooLong = strings.Repeat("a", 5000)

// TestLongNamesInHeartbeats proves that too long names in heartbeats do not harm the controller, which uses the runs
// that agents name in subjects.
func TestLongNamesInHeartbeats(t *testing.T) {
	f := startFleet(t)
	nc := f.dial("agents/a1.nk")
	for what, h := range map[string]wire.Heartbeat{
		"run":      {Instance: "i", Attempt: wire.Ref{Run: tooLong, Task: "t", Attempt: "y"}},
		"task":     {Instance: "i", Attempt: wire.Ref{Run: "r", Task: tooLong, Attempt: "y"}},
		"attempt":  {Instance: "i", Attempt: wire.Ref{Run: "r", Task: "t", Attempt: tooLong}},
		"instance": {Instance: tooLong},
	} {
		h.Agent, h.Process = "a1", "a1"
		if refusal := refusalOf(t, nc, message("lockstep.agent.heartbeat.a1", text(t, h))); !strings.Contains(refusal, "want at most 200") {
			t.Errorf("a long name of the %s: refused with %q", what, refusal)
		}
		f.alive("a long name of the " + what)
	}
	f.await(1) // it is listed as rejected
}

// TestLongNamesOfRuns proves the same for ids of runs, which are in the subjects of the record and of assignments.
func TestLongNamesOfRuns(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	nc := f.dial("client.nk")
	id := tooLong[:3950]
	cell := aRun("longcell")
	cell.Cells[0].ID = tooLong
	for what, run := range map[string]plan.Run{"run": aRun(id), "cell": cell} {
		if refusal := refusalOf(t, nc, submission(t, run.ID, wire.Submission{Run: run})); !strings.Contains(refusal, "want at most 200") {
			t.Errorf("a submission with a long name of the %s: refused with %q", what, refusal)
		}
	}
	f.works("after")
	f.alive("long names of runs")
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
	inParts := strings.TrimSuffix(strings.Repeat(tooLong[:100]+"%2F", 50), "%2F")
	for _, path := range []string{"/runs/" + tooLong, "/runs/" + inParts, "/runs/" + tooLong + "/live",
		"/runs/" + tooLong + "/report.html", "/schedules/" + tooLong, "/schedules/" + inParts, "/" + tooLong, "/runs/%00",
		"/runs/%00/report.html"} {
		answer, err := pages.Client().Get(pages.URL + path)
		must(t, err)
		_, err = io.Copy(io.Discard, answer.Body)
		must(t, err)
		must(t, answer.Body.Close())
		if answer.StatusCode != 404 {
			t.Errorf("%.20s…: status %d", path, answer.StatusCode)
		}
		f.alive(fmt.Sprintf("%.20s", path))
	}
}
