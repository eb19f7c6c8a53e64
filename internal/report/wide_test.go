package report

import (
	"strings"
	"testing"
)

// Wide characters take two columns and combining characters none: columns stay aligned.
func TestWideCharactersStayInLine(t *testing.T) {
	table := Table{Axes: []string{"key"}, Head: []string{"key", "n"},
		Rows: [][]Field{{{Text: "東京"}, {Text: "1"}}, {{Text: "ab"}, {Text: "2"}}, {{Text: "e\u0301"}, {Text: "3"}},
			{{Text: "👩‍👩‍👧‍👦"}, {Text: "4"}}, {{Text: "🇩🇪"}, {Text: "5"}}}}
	var out strings.Builder
	if err := writeText(&out, []Table{table}, 0); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"1": "東京  ", "2": "ab    ", "3": "e\u0301     ", "4": "👩‍👩‍👧‍👦    ",
		"5": "🇩🇪    "} {
		if !strings.Contains(out.String(), want+text) {
			t.Errorf("%q does not follow %q in\n%s", text, want, out.String())
		}
	}
}
