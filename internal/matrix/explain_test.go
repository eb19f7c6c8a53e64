package matrix

import (
	"strings"
	"testing"
)

// TestExplain finds fields by their paths, through definitions, lists, alternatives and names that the user chooses.
func TestExplain(t *testing.T) {
	for path, want := range map[string]Field{
		"publishers.maxInFlight":      {"int & >=1 & <=100_000_000", "1000", "maximum number of unconfirmed messages"},
		"cell.publishers.maxInFlight": {"int & >=1 & <=100_000_000", "1000", "maximum number of unconfirmed messages"},
		"drain.idle":                  {"#Positive", `"5s"`, "without a delivery"},
		"brokers.rabbit.driver":       {"string", "", "driver"},
		"repeat.until":                {"string", "", "confidence interval"},
		"faults.for":                  {"#Positive", "", "Duration."},
		"groups.bulk.message.size":    {"", "100", "envelope"},
		"name":                        {"#Name", "", "records"},
	} {
		f, known := Explain(path)
		if !known || want.Type != "" && f.Type != want.Type || f.Default != want.Default || !strings.Contains(f.Doc, want.Doc) {
			t.Errorf("%s: %+v, known %v; want %+v", path, f, known, want)
		}
	}
	for _, path := range []string{"publishers.maxinflight", "publishers", "nothing", "brokers.rabbit.size", "", "."} {
		if f, known := Explain(path); known != (path == "publishers") {
			t.Errorf("%q: %+v, known %v", path, f, known)
		}
	}
}
