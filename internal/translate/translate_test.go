package translate

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cuelang.org/go/cue/format"
	"github.com/goccy/go-yaml"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func open(t *testing.T, name string) File {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return File{Name: name, Text: text}
}

// golden compares with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (write it with -update)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs; with -update it becomes\n%s", name, got)
	}
}

// inputs are all translated inputs and their golden files.
var inputs = []struct {
	golden string
	files  []string
}{
	{"steady-kafka.cue", []string{"steady.workload.yaml", "kafka-throughput.driver.yaml"}},
	{"highest-kafka.cue", []string{"highest.workload.yaml", "kafka-idempotent.driver.yaml"}},
	{"wide-rabbitmq-quorum.cue", []string{"wide.workload.yaml", "rabbitmq-quorum.driver.yaml"}},
	{"highest-rabbitmq-stream.cue", []string{"highest.workload.yaml", "rabbitmq-stream.driver.yaml"}},
	{"wide-nats.cue", []string{"wide.workload.yaml", "nats.driver.yaml"}},
	{"wide-artemis.cue", []string{"wide.workload.yaml", "artemis.driver.yaml"}},
	{"consume.cue", []string{"consume-spec.js"}},
	{"sizes.cue", []string{"sizes-spec.js"}},
	{"various.cue", []string{"various-spec.json"}},
}

func translated(t *testing.T, names []string) *Result {
	t.Helper()
	var result *Result
	var err error
	if len(names) == 2 {
		result, err = OMB(open(t, names[0]), open(t, names[1]))
	} else {
		result, err = PerfTest(open(t, names[0]))
	}
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestGolden(t *testing.T) {
	for _, in := range inputs {
		t.Run(in.golden, func(t *testing.T) {
			text, err := format.Source([]byte(translated(t, in.files).Matrix))
			if err != nil {
				t.Fatal(err)
			}
			golden(t, in.golden, string(text))
		})
	}
}

// Every key of an input is either used or listed as left out.
func TestNothingIsDropped(t *testing.T) {
	for _, in := range inputs {
		t.Run(in.golden, func(t *testing.T) {
			r := translated(t, in.files)
			reported := map[string]bool{}
			for _, line := range r.Used {
				reported[line] = true
			}
			for _, l := range r.Lost {
				reported[fmt.Sprintf("%s:%d: %s", l.File, l.Line, l.Key)] = true
				if !strings.Contains(r.Matrix, l.String()) {
					t.Errorf("the matrix does not contain: %s", l)
				}
			}
			n := 0
			for _, name := range in.files {
				for _, key := range keysOf(t, open(t, name)) {
					n++
					if !mentioned(reported, name, key) {
						t.Errorf("%s: the key %q is neither used nor left out", name, key)
					}
				}
			}
			if n < 4 {
				t.Errorf("only %d keys were checked", n)
			}
		})
	}
}

func mentioned(reported map[string]bool, file, key string) bool {
	for line := range reported {
		if strings.HasPrefix(line, file+":") && (strings.HasSuffix(line, " "+key) ||
			strings.HasSuffix(line, ": "+key)) {
			return true
		}
	}
	return false
}

// keysOf returns the keys of a file, including nested properties, without the package's own parser.
func keysOf(t *testing.T, f File) []string {
	t.Helper()
	var tree any
	if err := yaml.Unmarshal(bytes.ReplaceAll(f.Text, []byte("\t"), []byte(" ")), &tree); err != nil {
		t.Fatal(err)
	}
	var keys []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, inner := range v {
				keys = append(keys, key)
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		case string:
			for line := range strings.Lines(v) {
				if key, _, is := strings.Cut(strings.TrimSpace(line), "="); is && strings.Contains(key, ".") &&
					!strings.ContainsAny(key, "/ ") {
					keys = append(keys, key)
				}
			}
		}
	}
	walk(tree)
	return keys
}

// All errors are reported at once, with file and line.
func TestErrorsOfInputs(t *testing.T) {
	var reported strings.Builder
	for _, try := range []func() (*Result, error){
		func() (*Result, error) { return OMB(open(t, "faulty.workload.yaml"), open(t, "faulty.driver.yaml")) },
		func() (*Result, error) { return OMB(open(t, "steady.workload.yaml"), open(t, "pulsar.driver.yaml")) },
		func() (*Result, error) { return OMB(open(t, "steady.workload.yaml"), open(t, "nats.driver.yaml")) },
		func() (*Result, error) { return PerfTest(open(t, "faulty-spec.json")) },
		func() (*Result, error) {
			return OMB(File{"empty.yaml", nil}, File{"broken.yaml", []byte("name: x\nurls: [a,\n b: c\n")})
		},
		func() (*Result, error) {
			return OMB(File{"list.yaml", []byte("- a\n")}, File{"two.yaml", []byte("a: 1\n---\nb: 2\n")})
		},
		func() (*Result, error) { return PerfTest(File{"table.json", []byte(`{"name": "a"}`)}) },
		func() (*Result, error) { return PerfTest(File{"alias.json", []byte("[&a {name: x}, *a]")}) },
	} {
		result, err := try()
		var all Errors
		if !errors.As(err, &all) || result != nil {
			t.Fatalf("%v, %v: want errors", result, err)
		}
		reported.WriteString(err.Error() + "\n\n")
	}
	golden(t, "errors.txt", reported.String())
}

// A secret that is left out is not printed either.
func TestSecretsAreNotListed(t *testing.T) {
	for _, in := range inputs {
		for _, l := range translated(t, in.files).Lost {
			if strings.Contains(l.String(), "hunter2") {
				t.Errorf("%s shows a password: %s", in.golden, l)
			}
		}
	}
	if text := translated(t, inputs[0].files).Matrix; strings.Contains(text, "hunter2") {
		t.Error("the password of sasl.jaas.config is in the matrix")
	}
}

// Without names, PerfTest gives each consumer its own queue, bound by the same key: each receives every message. With a
// name they share one queue.
func TestQueuesWithoutNames(t *testing.T) {
	for params, want := range map[string][]string{
		`"consumer-count": 4`: {"subscriptions: 4", "threads: 1",
			"queues: 1"},
		`"consumer-count": 2, "consumer-channel-count": 3`: {"subscriptions: 6", "threads: 1"},
		`"consumer-count": 4, "queue-names": ["q"]`:        {"subscriptions: 1", "threads: 4"},
		`"consumer-count": 4, "queue-pattern": "q-%d", "queue-sequence-to": 2`: {"subscriptions: 1", "threads: 4",
			"queues: 2"},
		`"consumer-count": 0`:                       {"maxLength: 1", "nodes: 0"},
		`"consumer-count": 0, "queue-names": ["q"]`: {"nodes: 0", "subscriptions: 1"},
	} {
		r,
			err := PerfTest(File{"s.json", []byte(`[{"name": "s", "type": "simple", "params": [{"time-limit": 9, ` +
			params + `}]}]`)})
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range want {
			if !strings.Contains(r.Matrix, line) {
				t.Errorf("%s: no %q in\n%s", params, line, r.Matrix)
			}
		}
	}
}

// Without a rate the benchmark searches for one. A matrix publishes without a limit, and states the difference.
func TestMissingRateIsNoted(t *testing.T) {
	work := open(t, "steady.workload.yaml")
	work.Text = bytes.Replace(work.Text, []byte("producerRate: 50000\n"), nil, 1)
	r, err := OMB(work, open(t, "kafka-throughput.driver.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "no producerRate: the benchmark searches for the highest rate"; !strings.Contains(r.Matrix, want) {
		t.Errorf("remark %q: got none in\n%s", want, r.Matrix)
	}
}

// An axis that the cell does not use must not be zipped with others, because these would then not cross.
func TestPrefetchAloneIsOneAxis(t *testing.T) {
	r, err := PerfTest(File{"s.json", []byte(`[{"name": "s", "type": "varying", "params": [{"time-limit": 9}],
		"variables": [{"name": "consumerPrefetch", "values": [10, 1000]}, {"name": "producerCount", "values": [1, 2]}]}]`)})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(r.Matrix, "ackEvery") || strings.Contains(r.Matrix, "zip") {
		t.Errorf("prefetch and publishers do not cross:\n%s", r.Matrix)
	}
}

// Settings that a driver file omits have the defaults of Kafka's Java producer, not those of Lockstep's driver.
func TestDefaultsOfTheJavaProducer(t *testing.T) {
	for producer, want := range map[string][]string{
		"acks=all": {"idempotence: true",
			"batchBytes: 16384"},
		"acks=1": {"idempotence: false", "inFlight: 5",
			"batchBytes: 16384"},
		"acks=all\n  retries=0":                {"inFlight: 5", `"none"`},
		"acks=all\n  retries=7":                {`(resilience "vendor")`},
		"acks=all\n  enable.idempotence=false": {"inFlight: 5"},
		"acks=all\n  max.in.flight.requests.per.connection=2": {"inFlight: 2",
			"so idempotence is disabled"},
		"acks=all\n  max.in.flight.requests.per.connection=20": {"inFlight: 20"},
		"acks=all\n  max.in.flight.requests.per.connection=1\n  batch.size=65536": {"batchBytes: 65536",
			"so idempotence is disabled"},
	} {
		driver := "name: k\ndriverClass: io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver\n" +
			"commonConfig: bootstrap.servers=a:9092\nproducerConfig: |\n  " + producer + "\n"
		r, err := OMB(open(t, "wide.workload.yaml"), File{"d.yaml", []byte(driver)})
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range want {
			if !strings.Contains(r.Matrix, line) {
				t.Errorf("%q: no %q in\n%s", producer, line, r.Matrix)
			}
		}
		if strings.Contains(r.Matrix, "idempotence: true") != (producer == "acks=all" || strings.Contains(producer, "retries=7")) {
			t.Errorf("%q: idempotence in\n%s", producer, r.Matrix)
		}
	}
}

func TestNames(t *testing.T) {
	for text, want := range map[string]string{
		"1 producer / 1 consumers on 1 topic": "1-producer-1-consumers-on-1-topic", "": "fallback", "...": "fallback",
		"ä":                      "fallback",
		strings.Repeat("x", 150): strings.Repeat("x", 100), "a.b_c-": "a.b_c",
	} {
		if got := name(text, "fallback"); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// FuzzInputs proves that any input results in a matrix or in errors.
func FuzzInputs(f *testing.F) {
	for _, in := range inputs {
		for _, name := range in.files {
			text, err := os.ReadFile(filepath.Join("testdata", name))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	driver, err := os.ReadFile("testdata/kafka-throughput.driver.yaml")
	if err != nil {
		f.Fatal(err)
	}
	work, err := os.ReadFile("testdata/wide.workload.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, try := range []func() (*Result, error){
			func() (*Result, error) { return OMB(File{"w", text}, File{"d", driver}) },
			func() (*Result, error) { return OMB(File{"w", work}, File{"d", text}) },
			func() (*Result, error) { return PerfTest(File{"s", text}) },
		} {
			result, err := try()
			var all Errors
			if err != nil && (!errors.As(err, &all) || len(all) == 0) {
				t.Errorf("%v, %v", result, err)
			}
			if err == nil {
				if _, err := format.Source([]byte(result.Matrix)); err != nil || result.Matrix == "" {
					t.Errorf("%v in\n%s", err, result.Matrix)
				}
			}
		}
	})
}
