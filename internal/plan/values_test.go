package plan

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
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
	b.WriteString("\nMetrics of the broker (`broker.*`) are sampled once per second and summed over nodes.\n" +
		"Shown are the mean of the measurement weighted by time, and the median and maximum of its samples.\n" +
		"Latencies are in seconds in records and CSV; `max` is exact, the others to three digits.\n")
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
