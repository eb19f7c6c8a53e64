package display

import (
	"strings"
	"testing"
)

// TestKeysAreBroken proves that a table which is too wide with wrapped headings breaks its keys at hyphens and blanks,
// only as far as necessary, and not below the minimum.
func TestKeysAreBroken(t *testing.T) {
	table := Table{Head: []string{"mode", "n", "Publish msg/s"}, Keys: 2, Break: 16, Rows: [][]Cell{
		{{Text: "connection-per-message-confirm"}, {Text: "1"}, {Text: "1,800", Tail: "*"}},
		{{Text: "confirm each message"}, {Text: "4"}, {Text: "30,000"}}}}
	for _, c := range []struct {
		width int
		want  string
	}{
		{0, `
mode                            n  Publish msg/s
──────────────────────────────  ─  ─────────────
connection-per-message-confirm  1         1,800*
confirm each message            4        30,000
`},
		{38, `
                            Publish
mode                     n   msg/s
───────────────────────  ─  ───────
connection-per-message-  1   1,800*
confirm
confirm each message     4  30,000
`},
		{30, `
                    Publish
mode             n   msg/s
───────────────  ─  ───────
connection-per-  1   1,800*
message-confirm
confirm each     4  30,000
message
`},
	} {
		var out strings.Builder
		if err := table.Write(&out, c.width); err != nil {
			t.Fatal(err)
		}
		if got := "\n" + out.String(); got != c.want {
			t.Errorf("width %d: got\n%s\nwant\n%s", c.width, got, c.want)
		}
		for line := range strings.Lines(out.String()) {
			if c.width > 0 && Width(strings.TrimRight(line, "\n")) > c.width {
				t.Errorf("a line is wider than %d: %s", c.width, line)
			}
		}
	}
}
