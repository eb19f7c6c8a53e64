package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/test/process"
)

// variable returns a variable of the lab. If it is not set, the test is skipped, or fails if a lab is required.
func variable(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" && os.Getenv("LOCKSTEP_LAB") == "required" {
		t.Fatalf("%s: got no value, want one because LOCKSTEP_LAB is \"required\"", name)
	}
	if value == "" {
		t.Skipf("needs a real broker: set %s, or run \"go run ./test/lab run all -- go test ./test\"", name)
	}
	return value
}

// management is the management API of a broker.
type management struct {
	t    *testing.T
	base string
}

func managementOf(t *testing.T, name string) management {
	t.Helper()
	return management{t, variable(t, name) + "/api"}
}

// get reads one resource. It returns an error while the broker is down.
func (m management) get(path string, answer any) error {
	response, err := http.Get(m.base + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %.200s", path, response.Status, text)
	}
	return json.Unmarshal(text, answer)
}

// mustGet reads one resource of a running broker.
func (m management) mustGet(path string, answer any) {
	m.t.Helper()
	if err := m.get(path, answer); err != nil {
		m.t.Fatal(err)
	}
}

// brokerObject is a queue or exchange with its node.
type brokerObject struct {
	Name string `json:"name"`
	Node string `json:"node"`
}

// checkNoLeftovers checks that the broker has no object with the run's names. It waits until the management API is up
// to date.
func (m management) checkNoLeftovers(run string) {
	m.t.Helper()
	for _, kind := range []string{"queues", "exchanges", "policies"} {
		var left []string
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
			var all []brokerObject
			m.mustGet("/"+kind, &all)
			left = nil
			for _, x := range all {
				if strings.HasPrefix(x.Name, "lockstep-"+run) {
					left = append(left, x.Name)
				}
			}
			if len(left) == 0 || time.Now().After(end) {
				break
			}
		}
		if len(left) > 0 {
			m.t.Errorf("%s of the run that remain on the broker: got %v, want none", kind, left)
		}
	}
}

// queueWatch records Lockstep's queues at a restarted broker, from the management API, until the run has removed them.
type queueWatch struct {
	mu   sync.Mutex
	last []string
	// number of observations of a queue without a binding to its exchange: messages are confirmed but not routed to it
	unbound int
}

// watchQueues observes the queues once per second until the end of the test. The broker may not answer at first.
func (m management) watchQueues() *queueWatch {
	w := &queueWatch{}
	ctx := m.t.Context()
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for ctx.Err() == nil {
			w.sample(m)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return w
}

func (w *queueWatch) sample(m management) {
	var queues []struct {
		Name      string `json:"name"`
		Messages  int    `json:"messages"`
		Consumers int    `json:"consumers"`
	}
	if m.get("/queues", &queues) != nil {
		return
	}
	for _, q := range queues {
		var bindings []struct {
			Source string `json:"source"`
		}
		if !strings.HasPrefix(q.Name, "lockstep-") ||
			m.get("/queues/%2f/"+url.PathEscape(q.Name)+"/bindings", &bindings) != nil {
			continue
		}
		w.mu.Lock()
		w.last = append(w.last, fmt.Sprintf("%+v %+v", q, bindings))
		if len(bindings) == 1 { // only the default exchange's; with none at all, the queue was removed meanwhile
			w.unbound++
		}
		w.mu.Unlock()
	}
}

// lostBinding reports whether the broker lost the binding of a queue in the restart. Then the broker lost the messages,
// and the ledger is correct. It also returns the last observations.
func (w *queueWatch) lostBinding() (bool, []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	const minUnbound = 3 // seconds; longer than the teardown of a queue
	return w.unbound >= minUnbound, w.last[max(0, len(w.last)-10):]
}

// nodeAt returns the node that listens for AMQP at the address of a URL.
func (m management) nodeAt(address string) string {
	m.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		m.t.Fatal(err)
	}
	var overview struct {
		Listeners []struct {
			Node string `json:"node"`
			Port int    `json:"port"`
		} `json:"listeners"`
	}
	m.mustGet("/overview", &overview)
	for _, l := range overview.Listeners {
		if fmt.Sprint(l.Port) == u.Port() {
			return l.Node
		}
	}
	m.t.Fatalf("node that listens at %s: got none, want one", u.Host)
	return ""
}

// record is a run directory and the output of ctl.
type record struct {
	t        *testing.T
	run      *runs.Run
	plan     plan.Run
	outcomes []plan.Outcome
	text     string // output of ctl
}

// readRecord reads the latest run in dir.
func readRecord(t *testing.T, dir string, ctl *process.Process) record {
	t.Helper()
	r, err := runs.Open(filepath.Join(dir, "runs"), "latest")
	if err != nil {
		t.Fatal(err)
	}
	outcomes, err := r.Outcomes()
	if err != nil {
		t.Fatal(err)
	}
	return record{t, r, r.Plan(), outcomes, ctl.Output()}
}

// checkAllValid checks that every task has an outcome and that all are valid.
func (r record) checkAllValid() {
	r.t.Helper()
	if want := len(r.plan.Tasks()); len(r.outcomes) != want {
		r.t.Errorf("outcomes: got %d, want %d", len(r.outcomes), want)
	}
	for _, o := range r.outcomes {
		if o.Verdict != plan.Valid {
			r.t.Errorf("%s: got verdict %s with reasons %v, want valid", r.name(o), o.Verdict, o.Reasons)
		}
	}
}

func (r record) name(o plan.Outcome) string { return r.plan.Cells[o.Index].Name() }

// outcomeAt returns the outcome of the only cell with these coordinates, each "axis=value".
func (r record) outcomeAt(coordinates ...string) plan.Outcome {
	r.t.Helper()
	for _, o := range r.outcomes {
		has := strings.Fields(r.name(o))
		if !slices.ContainsFunc(coordinates, func(c string) bool { return !slices.Contains(has, c) }) {
			return o
		}
	}
	r.t.Fatalf("outcome of the cell %v: got none, want one", coordinates)
	return plan.Outcome{}
}

// metric returns a value that must be a number.
func (r record) metric(o plan.Outcome, name string) float64 {
	r.t.Helper()
	v := o.Values[name]
	if v.NA != "" || v.Number <= 0 {
		r.t.Errorf("%s: %s: got %v (n/a %q), want a number above zero", r.name(o), name, v.Number, v.NA)
		return 1e-9
	}
	return v.Number
}

// writeMatrix writes a matrix into a folder and returns its path.
func writeMatrix(t *testing.T, dir, text string) string {
	t.Helper()
	file := filepath.Join(dir, "matrix.cue")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// startShipped starts ctl run with a shipped matrix, without the race detector.
func startShipped(t *testing.T, dir, matrix string, args ...string) *process.Process {
	t.Helper()
	file, err := filepath.Abs(filepath.Join("..", "matrices", matrix))
	if err != nil {
		t.Fatal(err)
	}
	return startPlain(t, dir, "ctl", append([]string{"run", file}, args...)...)
}

// startPlain starts a program without the race detector.
func startPlain(t *testing.T, dir, program string, args ...string) *process.Process {
	t.Helper()
	folder, err := plain()
	if err != nil {
		t.Fatal(err)
	}
	return process.Start(t, process.Command{Dir: dir, Argv: append([]string{filepath.Join(folder, program)}, args...)})
}
