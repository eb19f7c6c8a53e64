package matrix

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

const study = `package matrix

name: "async-vs-sync"
brokers: rabbit: {driver: "fake", options: url: "amqp://guest:hunter2@127.0.0.1:5672/"}
axes: {
	broker:  ["rabbit"]
	mode:    ["fire-and-forget", "confirm-window", "confirm-each", "connection-per-message"]
	threads: [if _quick {[1, 5]}, [1, 2, 3, 4, 5]][0]
	latency: ["0ms", "1ms", "5ms", "50ms"]
}
skip: [{mode: "connection-per-message", latency: "50ms"}]     // CUE patterns; what they subsume is skipped
cell: {
	axis: _                                                   // filled with this combination
	publishers: {nodes: 1, threads: axis.threads, mode: axis.mode, maxInFlight: 10_000}
	measure: [if _quick {"3s"}, "30s"][0]
}
_quick: *false | bool @tag(quick,type=bool)                   // set by --quick
tables: [{split: ["broker"], rows: ["mode", "threads"], columns: ["latency"], values: ["publish.rate"]}]
`

func loaded(t *testing.T, text string, n Narrow) *Matrix {
	t.Helper()
	m, err := Load("dir/m.cue", []byte(text), n)
	if err != nil {
		t.Fatalf("load:\n%v", err)
	}
	return m
}

func expand(t *testing.T, text string, n Narrow) plan.Run {
	t.Helper()
	run, err := loaded(t, text, n).Run(context.Background())
	if err != nil {
		t.Fatalf("run:\n%v", err)
	}
	return run
}

func names(run plan.Run) []string {
	var out []string
	for i, c := range run.Cells {
		if c.Index != i {
			out = append(out, "WRONG INDEX")
		}
		out = append(out, c.Name())
	}
	return out
}

func TestStudy(t *testing.T) {
	run := expand(t, study, Narrow{})
	if len(run.Cells) != 75 || len(run.Excluded) != 5 {
		t.Fatalf("%d cells and %d excluded, want 75 and 5", len(run.Cells), len(run.Excluded))
	}
	got := names(run)[:5]
	want := []string{
		"broker=rabbit mode=fire-and-forget threads=1 latency=0ms",
		"broker=rabbit mode=fire-and-forget threads=1 latency=1ms",
		"broker=rabbit mode=fire-and-forget threads=1 latency=5ms",
		"broker=rabbit mode=fire-and-forget threads=1 latency=50ms",
		"broker=rabbit mode=fire-and-forget threads=2 latency=0ms",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the first cells are %q, want the last axis to vary first: %q", got, want)
	}
	w := plan.Default()
	w.Publishers.Threads, w.Publishers.Mode, w.Publishers.MaxInFlight = 2, "confirm-window", 10_000
	w.Consumers.Threads = 2 // by the name of the axis: the template does not set it
	w.Network.Latency, w.Measure = plan.Duration(5*time.Millisecond), plan.Duration(30*time.Second)
	c := run.Cells[20+4+2]
	if !reflect.DeepEqual(c.Workload, w) {
		t.Errorf("%s:\n got %+v\nwant %+v", c.Name(), c.Workload, w)
	}
	if c.ID != plan.CellID("rabbit", w) || c.Label != "held in no memory" || !c.Guarantees.ConfirmedKept {
		t.Errorf("%s: id %s, label %q, guarantees %+v are not those of the workload and the driver", c.Name(), c.ID,
			c.Label, c.Guarantees)
	}
	x := run.Excluded[0]
	if x.Kind != "skipped" ||
		x.Reason != `by the pattern {mode: "connection-per-message", latency: "50ms"} at m.cue:11:8` {
		t.Errorf("a skipped combination says %s, %q", x.Kind, x.Reason)
	}
	if run.Agents != 2 || maxEstimate(run) != 75*32300*time.Millisecond {
		t.Errorf("%d agents for %s, want 2 for 75 cells of 32.3 s", run.Agents, maxEstimate(run))
	}
}

func TestRecordContainsNoPassword(t *testing.T) {
	run := expand(t, study, Narrow{Quick: true, Set: []string{`brokers.rabbit.options.url="amqp://u:hunter2@h/"`},
		Filter: []string{"threads=5"}})
	s := run.Source
	if strings.Contains(s.Text+strings.Join(s.Set, ""), "hunter2") {
		t.Errorf("the source of the run holds the password: %+v", s)
	}
	if s.File != "m.cue" || !strings.HasSuffix(s.Path, "/dir/m.cue") || len(s.SHA256) != 64 || !s.Quick ||
		len(s.Filter) != 1 {
		t.Errorf("the source of the run is %+v", s)
	}
	if !strings.Contains(string(run.Cells[0].Broker.Options), "hunter2@h/") {
		t.Error("--set did not replace the broker's URL, or the agents' copy lost its password")
	}
}

func TestNarrow(t *testing.T) {
	for _, c := range []struct {
		name  string
		n     Narrow
		cells int
		check func(plan.Cell) bool
	}{
		{"quick", Narrow{Quick: true}, 4*2*4 - 2,
			func(c plan.Cell) bool { return c.Workload.Measure.D() == 3*time.Second }},
		{"set replaces an axis", Narrow{Set: []string{"axes.threads=[7]"}}, 15,
			func(c plan.Cell) bool { return c.Workload.Publishers.Threads == 7 }},
		{"set after short", Narrow{Quick: true, Set: []string{"axes.threads=[7]", `cell.measure="1s"`}}, 15,
			func(c plan.Cell) bool {
				return c.Workload.Publishers.Threads == 7 && c.Workload.Measure.D() == time.Second
			}},
		{"set an expression", Narrow{Set: []string{"axes.threads=[for i in [1,2] {i*3}]"}}, 30,
			func(c plan.Cell) bool { return c.Workload.Publishers.Threads%3 == 0 }},
		{"set a new field", Narrow{Set: []string{"cell.consumers.prefetch=axis.threads*10"}}, 75,
			func(c plan.Cell) bool { return c.Workload.Consumers.Prefetch == c.Workload.Publishers.Threads*10 }},
		{"set a whole struct",
			Narrow{Set: []string{`cell.publishers={mode: axis.mode, batch: {min: 2, max: 9}, threads: axis.threads}`}},
			75,
			func(c plan.Cell) bool { return c.Workload.Publishers.Batch == plan.Batch{Min: 2, Max: 9} }},
		{"only one", Narrow{Filter: []string{"mode=confirm-each"}}, 20,
			func(c plan.Cell) bool { return c.Workload.Publishers.Mode == "confirm-each" }},
		{"only two of one axis and one of another",
			Narrow{Filter: []string{"mode=confirm-each,fire-and-forget", "threads=2", "threads=3"}}, 16,
			func(c plan.Cell) bool {
				return c.Workload.Publishers.Threads == 2 || c.Workload.Publishers.Threads == 3
			}},
	} {
		run := expand(t, study, c.n)
		if len(run.Cells) != c.cells {
			t.Errorf("%s: %d cells, want %d", c.name, len(run.Cells), c.cells)
		}
		for _, cell := range run.Cells {
			if !c.check(cell) {
				t.Errorf("%s: %s has %+v", c.name, cell.Name(), cell.Workload)
			}
		}
		if slices.Contains(names(run), "WRONG INDEX") {
			t.Errorf("%s: the cells' indexes are not their places in the run", c.name)
		}
	}
}

const head = `name: "x", brokers: {b: driver: "fake", s: driver: "simple"}
`

func TestByName(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       func(w *plan.Workload)
	}{
		{"all six",
			`axes: {broker: ["b"], mode: ["confirm-each"], nodes: [2], threads: [3], latency: ["5ms"], bindings: [4]}`,
			func(w *plan.Workload) {
				w.Publishers.Mode, w.Publishers.Nodes, w.Publishers.Threads = "confirm-each", 2, 3
				w.Consumers.Nodes, w.Consumers.Threads, w.Network.Latency, w.Topology.Bindings = 2, 3,
					plan.Duration(5*time.Millisecond), 4
			}},
		{"the template wins", `axes: {broker: ["b"], threads: [3], nodes: [2], latency: ["5ms"]}
			cell: {consumers: {threads: 1, nodes: 4}, latency: "7ms", publishers: nodes: 5}`, func(w *plan.Workload) {
			w.Publishers.Nodes, w.Publishers.Threads, w.Consumers.Nodes, w.Network.Latency = 5, 3, 4,
				plan.Duration(7*time.Millisecond)
		}},
		{"no consumers stay none", `axes: {broker: ["b"], threads: [3], nodes: [2]}, cell: consumers: nodes: 0`,
			func(w *plan.Workload) {
				w.Publishers.Nodes, w.Publishers.Threads, w.Consumers.Nodes = 2, 3, 0
			}},
		{"short forms",
			`axes: size: [100], cell: {axis: _, broker: "b", message: size: axis.size, publishers: {batch: 7, node: 1}, consumers: node: "follower", labels: {n: 5, s: "t"}}`,
			func(w *plan.Workload) {
				w.Publishers.Batch, w.Publishers.Node, w.Consumers.Node = plan.Batch{Min: 7, Max: 7}, "1", "follower"
				w.Labels = map[string]string{"n": "5", "s": "t"}
			}},
		{"conditions and arithmetic", `import "list"
			axes: {broker: ["b"], threads: [3]}
			_most: list.Max([4, 2])
			cell: {axis: _, if axis.threads > 2 {consumers: prefetch: axis.threads * _most}}`, func(w *plan.Workload) {
			w.Publishers.Threads, w.Consumers.Threads, w.Consumers.Prefetch = 3, 3, 12
		}},
		{"values derived from defaults and from axes by name", `axes: {broker: ["b"], threads: [3]}
			cell: {publishers: _, consumers: prefetch: publishers.maxInFlight + publishers.threads, latency: "1ms"}`, func(w *plan.Workload) {
			w.Publishers.Threads, w.Consumers.Threads, w.Consumers.Prefetch, w.Network.Latency = 3, 3, 1003,
				plan.Duration(time.Millisecond)
		}},
	} {
		text := head + c.text
		if strings.HasPrefix(c.text, "import") {
			first, rest, _ := strings.Cut(c.text, "\n")
			text = first + "\n" + head + rest
		}
		run := expand(t, text, Narrow{})
		w := plan.Default()
		c.want(&w)
		if len(run.Cells) != 1 || !reflect.DeepEqual(run.Cells[0].Workload, w) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, run.Cells, w)
		}
	}
}

func TestZip(t *testing.T) {
	run := expand(t, head+`axes: {nodes: [1, 2, 2], mode: ["confirm-each", "confirm-window"], threads: [4, 4, 8]}
		zip: [["nodes", "threads"]], cell: broker: "b"`, Narrow{})
	want := []string{
		"nodes=1 mode=confirm-each threads=4", "nodes=1 mode=confirm-window threads=4",
		"nodes=2 mode=confirm-each threads=4",
		"nodes=2 mode=confirm-window threads=4", "nodes=2 mode=confirm-each threads=8",
		"nodes=2 mode=confirm-window threads=8",
	}
	if got := names(run); !slices.Equal(got, want) {
		t.Errorf("zipped cells are %q, want %q", got, want)
	}
	if run.Agents != 4 {
		t.Errorf("%d agents, want the 4 of the largest cell", run.Agents)
	}
}

// A filter keeps every combination with the value: zipped axes may have equal values.
func TestFilterOfEqualValues(t *testing.T) {
	text := head + `axes: {nodes: [1, 2, 2], mode: ["confirm-each", "confirm-window", "confirm-each"]}
		zip: [["nodes", "mode"]], cell: broker: "b"`
	for filter, want := range map[string][]string{
		"nodes=2":           {"nodes=2 mode=confirm-window", "nodes=2 mode=confirm-each"},
		"mode=confirm-each": {"nodes=1 mode=confirm-each", "nodes=2 mode=confirm-each"},
	} {
		if got := names(expand(t, text, Narrow{Filter: []string{filter}})); !slices.Equal(got, want) {
			t.Errorf("--filter %s: got %q, want %q", filter, got, want)
		}
	}
}

func TestNotApplicable(t *testing.T) {
	run := expand(t, head+`axes: {broker: ["b", "s"], mode: ["fire-and-forget", "confirm-each"], prefetch: [0, 13]}
		brokers: b: options: storage: "file"
		cell: {axis: _, consumers: prefetch: axis.prefetch, publishers: {mandatory: true, node: "leader"}}`, Narrow{})
	var got []string
	for _, x := range run.Excluded {
		got = append(got, plan.Cell{Coordinates: x.Coordinates}.Name()+": "+x.Kind+": "+x.Reason)
	}
	golden(t, "na.golden", strings.Join(got, "\n")+"\n")
	if len(run.Cells) != 2 {
		t.Errorf("%d cells are left, want 2", len(run.Cells))
	}
}

func TestSkipSubsumes(t *testing.T) {
	run := expand(t, head+`axes: {broker: ["b", "s"], threads: [1, 2, 3, 4], mode: ["fire-and-forget"]}
		skip: [{broker: "b", threads: >2}, {broker: =~"^s", threads: 1 | 4}, {mode: string, threads: 2}]
		cell: {publishers: persistent: false, consumers: ack: "automatic"}`, Narrow{})
	want := []string{"broker=b threads=1 mode=fire-and-forget", "broker=s threads=3 mode=fire-and-forget"}
	if got := names(run); !slices.Equal(got, want) {
		t.Errorf("after skipping there are %q, want %q", got, want)
	}
}

func TestOrderAndTimes(t *testing.T) {
	run := expand(t, head+`cell: broker: "b"
		order: random: 9_007_199_254_740_993
		repeat: 3, settle: "2s", grace: "5m", strict: true`, Narrow{})
	if run.Order != (plan.Order{Random: true, Seed: 9_007_199_254_740_993}) || run.Repeat != 3 || !run.Strict ||
		run.Settle.D() != 2*time.Second || run.Grace.D() != 5*time.Minute {
		t.Errorf("got order %+v, repeat %d, settle %s, grace %s, strict %v", run.Order, run.Repeat, run.Settle,
			run.Grace, run.Strict)
	}
	if want := 3 * (12300*time.Millisecond + 2*time.Second); maxEstimate(run) != want {
		t.Errorf("estimate %s, want %s", maxEstimate(run), want)
	}
}

// One evaluation may serve several combinations. The result is the same as with separate evaluations.
func TestSharedEvaluationsChangeNothing(t *testing.T) {
	text := string(large(500))
	shared := expand(t, text, Narrow{})
	m := loaded(t, text, Narrow{})
	if m.refers == nil {
		t.Fatal("the template's axes are not known: nothing is shared")
	}
	m.refers = nil
	alone, err := m.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(shared, alone) {
		t.Error("shared evaluations give other cells")
	}
	// fields of standard axes that the template refers to and does not set
	for _, c := range expand(t, head+`axes: {broker: ["b"], threads: [for i in [0, 1, 2, 3, 4] for j in [1, 2, 3, 4, 5] {5*i + j}]}
		cell: {publishers: _, consumers: prefetch: publishers.threads * 10}`, Narrow{}).Cells {
		if w := c.Workload; w.Consumers.Prefetch != 10*w.Publishers.Threads {
			t.Errorf("%s: got prefetch %d, want 10 times the threads", c.Name(), w.Consumers.Prefetch)
		}
	}
	for _, text := range []string{`cell: {axis: threads: <3}`,
		`cell: {axis: _, labels: {for k, v in axis {(k): "\(v)"}}}`,
		`cell: {axis: _, let a = axis, labels: x: a.threads}`} {
		m := loaded(t, head+`axes: {broker: ["b"], threads: [1, 2]}, `+text, Narrow{})
		if m.refers != nil {
			t.Errorf("%s: takes %v for all that the template refers to", text, m.refers)
		}
	}
}

// Goroutines that remain after a cancelled expansion would accumulate. The bubble fails if any remains.
func TestExpandStops(t *testing.T) {
	m := loaded(t, string(large(1000)), Narrow{})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := m.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("with an ended context Run gives %v", err)
		}
	})
}

func maxEstimate(run plan.Run) time.Duration {
	_, high := Estimate(run)
	return high
}

// In a matrix with a simulated network, cells without one use the same kind of connections. In other matrices no
// network is simulated. Ids depend only on the load. A filter does not change the connections of a cell.
func TestCellsOfASimulatedNetworkUseTheSameConnections(t *testing.T) {
	run := func(latencies string, filter ...string) plan.Run {
		r, err := loaded(t, `package matrix
name: "m"
brokers: a: {driver: "fake", options: url: "fake://a:1"}
axes: latency: `+latencies+`
cell: {axis: _, broker: "a", network: latency: axis.latency}
`, Narrow{Filter: filter}).Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	mixed, bare := run(`["0ms", "5ms"]`), run(`["0ms"]`)
	if c := mixed.Cells; !c[0].Simulated || c[1].Simulated {
		t.Errorf("simulated: %v at 0 ms, %v at 5 ms; want it only at 0 ms", c[0].Simulated, c[1].Simulated)
	}
	if c := bare.Cells[0]; c.Simulated || c.ID != mixed.Cells[0].ID {
		t.Errorf("without latency: simulated %v, id %s, want %s", c.Simulated, c.ID, mixed.Cells[0].ID)
	}
	filtered := run(`["0ms", "5ms"]`, "latency=0ms")
	if c := filtered.Cells; len(c) != 1 || !c[0].Simulated || c[0].ID != mixed.Cells[0].ID {
		t.Errorf("filter latency=0ms: got %+v, want the cell of the whole matrix, with simulated connections", c)
	}
	faults := expand(t, `name: "m", brokers: b: {driver: "fake"}, axes: fault: ["none", "cut", "pause"]
cell: {axis: _, faults: {none: [], cut: [{kind: "cut", at: "1s", for: "1s"}], pause: [{kind: "pause", target: "b", at: "1s", for: "1s"}]}[axis.fault]}`, Narrow{})
	for _, c := range faults.Cells {
		if !c.Simulated {
			t.Errorf("%s: got bare connections, want those of the cell with a cut", c.Coordinates)
		}
	}
}

// The default table shows the latency from the intended send time for cells that have it.
func TestDefaultTable(t *testing.T) {
	const closed, open, both = "publish.p50 publish.p99", "publish.intended.p50 publish.intended.p99",
		"publish.p99 publish.intended.p99 publish.p50"
	for cell, want := range map[string]string{
		`publishers: {}`:                                    closed,
		`publishers: rate: 1000`:                            open,
		`publishers: rate: 1000, consumers: nodes: 0`:       open,
		`publishers: rate: [0, 1000, 0][axis.threads - 1]`:  both,
		`publishers: {rate: 1000, mode: "fire-and-forget"}`: closed,
		`groups: {a: {}, b: publishers: rate: 1000}`:        both,
		`search: {while: "p99 < 50ms && lost == 0"}`:        open,
	} {
		run := expand(t, `name: "m", brokers: b: {driver: "fake"}, axes: {broker: ["b"], threads: [1, 2, 3]}
cell: {axis: _, `+cell+`}`, Narrow{})
		want := "publish.rate consume.rate " + want + " e2e.p50 e2e.p99"
		if got := strings.Join(run.Tables[0].Values, " "); len(run.Tables) != 1 || got != want {
			t.Errorf("%s: got the values %s, want %s", cell, got, want)
		}
	}
}
