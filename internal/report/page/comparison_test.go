package page

import (
	"bytes"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/stats"
)

// TestComparisonsNeedNothingAndEscape proves that the page has no script, no reference to other hosts, and no markup
// from users.
func TestComparisonsNeedNothingAndEscape(t *testing.T) {
	evil := `<script>alert("x")</script>`
	sample := compare.Sample{Summary: stats.Summarize([]float64{1, 2, 3, 4}, 0.95), Numbers: []float64{1, 2, 3, 4}}
	c := compare.Comparison{Sides: []compare.Side{{Mark: "A", Run: evil}, {Mark: evil}}, Effect: 0.05, Alpha: 0.05,
		Differences: []compare.Difference{{Of: "broker " + evil, What: evil, Values: []string{evil, "x"}}},
		Left:        []compare.Left{{Cell: evil, Reason: evil}},
		Values: []compare.Value{{Name: "publish.p99", Unit: plan.Seconds, Better: plan.LowerIsBetter,
			Rows: []compare.Row{{Name: evil,
				Sides:   []compare.Sample{sample, sample},
				Changes: []compare.Change{{Finding: compare.Worse, Ratio: &stats.Change{Estimate: 2}}}}}}}}
	var out bytes.Buffer
	if err := WriteComparison(&out, c); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	if strings.Contains(page, evil) || strings.Count(page, "<script") != 1 {
		t.Error("text of users is markup")
	}
	for _, from := range []string{"http://", "https://", "src=", "@import", "url("} {
		if strings.Contains(page, from) {
			t.Errorf("the page has %q", from)
		}
	}
	for _, want := range []string{"Content-Security-Policy", `class="worse"`, "Other differences", "Not compared"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}
