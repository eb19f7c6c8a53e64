package matrix

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; with -update it becomes\n%s", path, got)
	}
}

// Every matrix of testdata with errors is compared with its error messages.
func TestFaultsGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.cue")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Load(filepath.Base(file), text, Narrow{})
		var faults Errors
		if !errors.As(err, &faults) {
			t.Errorf("%s was taken: %v", file, err)
			continue
		}
		golden(t, strings.TrimSuffix(filepath.Base(file), ".cue")+".golden", faults.Error()+"\n")
		for _, f := range faults {
			for _, jargon := range []string{"disjunction", "subsum", "incomplete", "bottom", "_|_", "non-concrete",
				"conflicting"} {
				if strings.Contains(f.Message, jargon) {
					t.Errorf("%s: %q is CUE's jargon: %s", file, jargon, f.Message)
				}
			}
		}
		if n := strings.Count(string(text), "// wrong"); n > 0 && n != len(faults) {
			t.Errorf("%s: %d mistakes are marked and %d are reported", file, n, len(faults))
		}
	}
}

func errorsText(t *testing.T, text string, n Narrow) string {
	t.Helper()
	m, err := Load("m.cue", []byte(text), n)
	if err == nil {
		_, err = m.Run(context.Background())
	}
	var faults Errors
	if !errors.As(err, &faults) {
		t.Errorf("no faults in %s: %v", text, err)
		return ""
	}
	return faults.Error()
}

func TestErrorsOfNarrowing(t *testing.T) {
	var out []string
	for _, n := range []Narrow{
		{Filter: []string{"mod=x", "mode=confirm-eech,confirm-each", "threads"}},
		{Set: []string{"axes.threads", "axes.threads=", "axes.threads[0]=1", "axes.threads=[1,"}},
		{Set: []string{"cell.publishers.mode=confirm-each"}},
		{Set: []string{"cell.publishers.mode=confirmed", "cell.publishers.maxInFligh=3"}},
		{Set: []string{`brokers.rabbit.options.url="amqp://u:hunter2@h/"`,
			`brokers.rabbit.options.urls=["amqp://u:hunter2@h/", 5]`}},
		{Set: []string{"axes.threads=[0]", "axes.thread=[1]"}},
	} {
		got := errorsText(t, study, n)
		if strings.Contains(got, "hunter2") {
			t.Errorf("a fault shows a password: %s", got)
		}
		out = append(out, got)
	}
	golden(t, "narrow.golden", strings.Join(out, "\n\n")+"\n")
}

func TestErrorsOfCombinations(t *testing.T) {
	var out []string
	for _, text := range []string{
		// Only found with a combination of two axes.
		`axes: {broker: ["b"], a: [1, 50], c: [1, 50]}, cell: {axis: _, publishers: maxInFlight: 1000 - axis.a*axis.c, labels: {a: axis.a, c: axis.c}}`,
		`axes: {broker: ["b"], colour: ["red", "blue", "green"], thread: [1]}`,
		`axes: {broker: ["b"], a: [1, 2, 3], c: [1, 2, 3]}, cell: {axis: _, labels: x: axis.a * axis.c}`,
		`axes: {broker: ["b"], threads: [1, 2], size: [100, 200]}, cell: {axis: _, message: size: axis.size, publishers: threads: 1, consumers: threads: 1}`,
		`axes: {mode: ["confirm-each"]}`,
		`axes: {who: ["b", "bb"]}, cell: {axis: _, broker: axis.who}`,
		`axes: {broker: ["b"], prefetch: [10, 1000]}, cell: {axis: _, consumers: {prefetch: axis.prefetch, ack: "every"}}`,
		`cell: {broker: "b", publishers: batch: {min: 9, max: 3}, drain: idle: "2m", latency: "1ms", network: latency: "2ms"}`,
		// Consumer i of a subscription reads queue i modulo queues.
		`axes: {broker: ["b"], queues: [2, 4, 8], threads: [2]}, cell: {axis: _, topology: queues: axis.queues, consumers: nodes: 2}`,
		`cell: {broker: "b", topology: queues: 3}`,
		`cell: {broker: "b", warmup: "auto", steady: {min: "2m"}, publishers: {count: 5, lifetime: connectAt: "1s"}}`,
		`cell: {broker: "b", warmup: "auto", publishers: profile: [{for: "1s", rate: 0}, {for: "1s", rate: 9}]}`,
		`cell: {broker: "b", measure: "4s", publishers: {count: 5, lifetime: connectAt: "1s"}, message: {size: [{min: 300, max: 200}, {min: 100}],
	payload: {kind: "file", file: "x.json", repeat: 0.1}, keys: skew: 1}, consumers: {ack: "automatic", prefetch: 0, nack: 0.5, process: {min: "2s", max: "1s"},
	lifetime: {connectAt: "5s", disconnectAt: "3s", stay: "2s"}}}`,
		`cell: {broker: "b", measure: "4s", publishers: {threads: 10, maxInFlight: 10_000, lifetime: {stay: "4s", away: "1s"}}, message: {size: [{size: 100_000_000, min: 100}],
	payload: file: "/x"}, consumers: {process: {mean: "60ms", max: "1s"}, lifetime: disconnectAt: "4s"}}`,
		`cell: {broker: "b", message: size: [], consumers: {process: "50ms"}}`,
		`cell: {broker: "b", publishers: {threads: 10, maxInFlight: 10_000}, message: size: {min: 100, max: 1_000_000}}`,
		`cell: {broker: "b", publishers: nodes: 2, topology: {queues: 4, churn: rate: 1}, consumers: {nodes: 3, threads: 2, colocate: true}}`,
		`axes: {broker: ["b"], kind: ["x", "y"]}, cell: {axis: _, if axis.kind == "y" {publishers: maxInFligh: 5}, labels: k: axis.kind}`,
	} {
		out = append(out, errorsText(t, head+text, Narrow{}))
	}
	golden(t, "combination.golden", strings.Join(out, "\n\n")+"\n")
}

// TestQueuesWithoutConsumers proves that any number of queues is valid without consumers, and with at
// least one consumer per queue.
func TestQueuesWithoutConsumers(t *testing.T) {
	for _, consumers := range []string{"nodes: 0", "threads: 3", "{nodes: 2, threads: 2}"} {
		m, err := Load("m.cue", []byte(head+`cell: {broker: "b", topology: queues: 3, consumers: `+consumers+`}`),
			Narrow{})
		if err == nil {
			_, err = m.Run(context.Background())
		}
		if err != nil {
			t.Errorf("3 queues, consumers %s: %v", consumers, err)
		}
	}
}

// A consumer that acknowledges at an interval, and has reached its maximum of unacknowledged messages, receives nothing
// until the interval ends. If drain.idle were shorter, waiting messages would count as lost.
func TestIdleTimeExceedsAckInterval(t *testing.T) {
	text := `package matrix
name: "x"
brokers: a: driver: "fake"
cell: {consumers: {ack: "interval", ackInterval: "3s", prefetch: %PREFETCH%}, drain: idle: "3s"}
`
	_, err := Load("x.cue", []byte(strings.ReplaceAll(text, "%PREFETCH%", "10")), Narrow{})
	if err == nil || !strings.Contains(err.Error(), "drain.idle") {
		t.Errorf("got %v, want a fault of drain.idle", err)
	}
	if _, err := Load("x.cue", []byte(strings.ReplaceAll(text, "%PREFETCH%", "0")), Narrow{}); err != nil {
		t.Errorf("without a bound nothing waits: %v", err)
	}
}

func TestInvalidRatesAndProfiles(t *testing.T) {
	for publishers, want := range map[string]string{
		`{rate: 5, profile: [{for: "1s", rate: 5}]}`:                     "publishers.profile: publishers.rate, 5, is also set",
		`{profile: [{for: "1s", rate: 0}, {for: "2s", rate: 0, to: 0}]}`: "publishers.profile: no stage has a rate above 0",
		`{arrivals: "poisson"}`:                                          `publishers.arrivals: "poisson" needs intended send times`,
	} {
		got := errorsText(t, "package matrix\nname: \"x\"\nbrokers: a: driver: \"fake\"\ncell: publishers: "+publishers+
			"\n", Narrow{})
		if !strings.Contains(got, want) || !strings.Contains(got, "m.cue:4") {
			t.Errorf("%s: %s\nwant %s", publishers, got, want)
		}
	}
}
