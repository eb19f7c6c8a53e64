package sink

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/record"
)

var update = flag.Bool("update", false, "write dashboards/SCHEMA.md")

const (
	document = "../../dashboards/SCHEMA.md"
	mark     = "<!-- From here on written from internal/sink: go test ./internal/sink -update -->\n"
)

// tables returns the schema as text.
func tables() string {
	var b strings.Builder
	for _, m := range schema() {
		fmt.Fprintf(&b, "\n## %s\n\n%s Its time is %s.\n\n| tag | |\n|---|---|\n", m.Name, m.Doc, m.Time)
		for _, c := range m.Tags {
			fmt.Fprintf(&b, "| `%s` | %s |\n", c.Key, c.Doc)
		}
		b.WriteString("\n| field | type | unit | |\n|---|---|---|---|\n")
		for _, c := range m.Fields {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.Key, c.Type, c.Unit, c.Doc)
		}
	}
	return b.String()
}

// TestTheDocumentIsTheSchema proves that the document contains the complete schema.
func TestTheDocumentIsTheSchema(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	prose, got, found := strings.Cut(string(text), mark)
	if !found {
		t.Fatalf("%s has no line %q", document, mark)
	}
	if *update {
		if err := os.WriteFile(document, []byte(prose+mark+tables()), 0o644); err != nil {
			t.Fatal(err)
		}
		got = tables()
	}
	if want := tables(); got != want {
		t.Errorf("%s does not describe the points that are written; go test ./internal/sink -update writes it anew",
			document)
	}
}

// TestPointsKeepToTheSchema proves that every tag, field and type of the points is described.
func TestPointsKeepToTheSchema(t *testing.T) {
	x := newWorld(nil)
	for c := range record.Counters() {
		for agent := range x.agents {
			x.window(agent, 0).Counts[c] = 7
		}
	}
	for _, s := range record.AllSeries() {
		x.window(0, 0).Record(s, 5)
		x.window(0, 0).Record(s, -5)
	}
	x.report(0, 0, func(s *record.Snapshot) {
		s.Host = record.HostSample{AgentCPU: 1, AgentRSS: 1, HasBroker: true, BrokerCPU: 1, BrokerRSS: 1}
		s.Probes = []record.ProbeSample{{Name: "memory", Value: 5}, {Name: "segments", Value: 3}, {Name: "cpu", Node: "n", Value: 2}}
		s.Events = []record.Event{{Kind: record.EventGap, Nanos: 5, Detail: "x"}}
	})
	x.report(1, 0, nil)
	described, seen := map[string]string{}, map[string]bool{}
	for _, m := range schema() {
		for _, c := range m.Tags {
			described[m.Name+" tag "+c.Key] = "string"
		}
		for _, c := range m.Fields {
			described[m.Name+" "+c.Key] = c.Type
		}
	}
	bounds := 0
	for _, p := range append(x.stream(), groupedWorld().stream()...) {
		seen[p.Measurement] = true
		for key := range p.Tags {
			if strings.HasPrefix(key, "axis_") {
				key = "axis_*"
			}
			if described[p.Measurement+" tag "+key] == "" {
				t.Errorf("%s has the tag %s, which is not described", p.Measurement, key)
			}
		}
		for key, v := range p.Fields {
			got := ""
			switch v.(type) {
			case int64:
				got = "int"
			case float64:
				got = "float"
			case string:
				got = "string"
			}
			if strings.HasSuffix(key, boundSuffix) {
				bounds++
				key = "*" + boundSuffix
			}
			if (p.Measurement == measureGroup || p.Measurement == measureBroker) && described[p.Measurement+" "+key] == "" {
				key = "*"
			}
			if want := described[p.Measurement+" "+key]; got != want || got == "" {
				t.Errorf("%s has the field %s of type %T, described is %q", p.Measurement, key, v, want)
			}
		}
		if p.Time.Before(began) || p.Time.After(began.Add(time.Hour)) {
			t.Errorf("%s is of %v", p.Measurement, p.Time)
		}
	}
	if bounds == 0 {
		t.Error("no value says how sure it is")
	}
	if len(seen) != len(schema()) {
		t.Errorf("only %v were written", slices.Sorted(maps.Keys(seen)))
	}
}
