package plan

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	_ "example.org/lockstep/lockstep/pkg/drivers/all"
)

var update = flag.Bool("update", false, "rewrite docs/reference/values.md")

// The documentation lists every value with the text of its entry.
func TestValuesAreDocumented(t *testing.T) {
	const file = "../../docs/reference/values.md"
	want := document()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the list of values says; rewrite it with: go test ./internal/plan -update", file)
	}
}

// document returns a row per value. Values that differ only in the statistic share a row.
func document() string {
	var b strings.Builder
	b.WriteString("# Values\n\nThe values that tables can show, for example `values: [\"publish.rate\", \"broker.memory.p50\"]`. The list is generated from `internal/plan/values.go` and `metrics.go`.\n")
	b.WriteString("\n| value | unit | description |\n|---|---|---|\n")
	known := map[string]int{}
	type row struct {
		stem string
		ends []string
		info ValueInfo
	}
	var rows []row
	for _, v := range Values() {
		stem, end := v.Name, ""
		for _, e := range points() {
			if s, is := strings.CutSuffix(v.Name, "."+e); is && v.Name != "backlog.max" {
				stem, end = s, e
				break
			}
		}
		at, seen := known[stem+string(v.Unit)]
		if !seen || end == "" {
			at = len(rows)
			known[stem+string(v.Unit)] = at
			rows = append(rows, row{stem: stem, info: v})
		}
		if end != "" {
			rows[at].ends = append(rows[at].ends, end)
		}
	}
	for _, r := range rows {
		doc := r.info.Doc
		if strings.HasPrefix(r.stem, "broker.") {
			doc, _, _ = strings.Cut(doc, "; ") // without the statistic
		}
		if len(r.ends) > 0 {
			r.stem += ".{" + strings.Join(r.ends, ",") + "}"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.stem, r.info.Unit, doc)
	}
	b.WriteString("\nMetrics of the broker (`broker.*`) are sampled once per second.\nTables show the sum over nodes, or their maximum where no sum is declared.\n" +
		"Shown are the mean of the measurement weighted by time, and the median and maximum of its samples.\n" +
		"Latencies are in seconds in records and CSV; `max` is exact, the others to three digits.\n")
	b.WriteString("\n## Metrics of one driver\n\nDrivers declare further metrics.\n`ctl drivers NAME` lists those of a driver, also of an external one.\n" +
		"\n| value | driver | unit | description |\n|---|---|---|---|\n")
	for _, name := range drivers.Names() {
		d, err := drivers.Lookup(name)
		if err != nil {
			panic(err)
		}
		for _, f := range Metrics(nil).Join(d.Info().Metrics...) {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", MetricValue(f.Name, "{"+strings.Join(MetricStatistics(), ",")+"}"), name,
				f.Unit, f.Doc)
		}
	}
	return b.String()
}

// points returns the suffixes of names that are statistics of one distribution.
func points() (ends []string) {
	for _, q := range HighestQuantiles() {
		ends = append(ends, q.Name+".highest")
	}
	for _, q := range Quantiles() {
		ends = append(ends, q.Name)
	}
	return append(ends, MetricStatistics()...)
}

// Values of metrics that only a driver declares have its unit and direction, also of a group.
func TestValuesOfADriver(t *testing.T) {
	m := Metrics{{Name: "segments.open", Unit: "pages", Doc: "open segments", LowerIsBetter: true}}
	for name, title := range map[string]string{"broker.segments.open.p50": "Broker segments open p50",
		"bulk/broker.segments.open.p50": "bulk: Broker segments open p50"} {
		if v, is := m.ValueNamed(name); !is || v != (ValueInfo{name, title, "pages", LowerIsBetter, 0,
			"open segments; median of its samples"}) {
			t.Errorf("%s is %+v (known: %v)", name, v, is)
		}
	}
	for _, name := range []string{"broker.segments.open", "broker.segments.open.p99", "broker.segments.p50",
		"segments.open.p50", "broker.p50"} {
		if _, is := m.ValueNamed(name); is {
			t.Errorf("%s is a value", name)
		}
	}
	if n := len(m.Values()) - len(Values()); n != len(MetricStatistics()) {
		t.Errorf("one metric has %d values", n)
	}
	if joined := m.Join(append(drivers.SharedMetrics(), drivers.MetricInfo{Name: "segments.open", Unit: "other"})...); len(
		joined) != 1 || joined[0] != m[0] {
		t.Errorf("joined with shared metrics: %+v", joined)
	}
}

// Value names are unique: a second value with the same name would be hidden.
func TestValueNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range Values() {
		if seen[v.Name] || v.Title == "" || v.Unit == "" || v.Doc == "" {
			t.Errorf("%+v: want one of this name, with title, unit and doc", v)
		}
		seen[v.Name] = true
	}
}
