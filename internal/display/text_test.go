package display

import (
	"strings"
	"testing"
)

// TestWidth proves that characters of one or more code points have the width that terminals use, in any locale.
func TestWidth(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0, "na\u00efve": 5, "nai\u0308ve": 5, "消息队列": 8, "queue队列": 9, "한국어": 6,
		"🐇": 2, "👩‍👩‍👧‍👦": 2, "🇩🇪": 2, "👍🏽": 2, "❤️": 2, "±": 1, "─": 1, "µ": 1, "…": 1, "¹˒²": 3,
	} {
		if got := Width(text); got != want {
			t.Errorf("Width(%q) = %d, want %d", text, got, want)
		}
	}
}

// TestCut proves that a cut line is not too wide, and never ends inside a character or with an active style.
func TestCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line    string
		columns int
		want    string
	}{
		{"confirm-window", 14, "confirm-window"},
		{"confirm-window", 8, "confirm…"},
		{"消息队列", 8, "消息队列"},
		{"消息队列", 6, "消息…"},
		{"a👩‍👩‍👧‍👦b", 3, "a…"},
		{"ab", 0, ""},
	} {
		if got := Cut(c.line, c.columns); got != c.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", c.line, c.columns, got, c.want)
		}
	}
	painted := "\x1b[31minvalid\x1b[0m"
	if got := Cut(painted, 4); StyledWidth(got) != 4 || got[len(got)-4:] != "\x1b[0m" {
		t.Errorf("a cut that leaves a style on: %q", got)
	}
}

// TestClean proves that foreign texts cannot move the cursor.
func TestClean(t *testing.T) {
	t.Parallel()
	if got := Clean("a\x1b[2Jb\nc\u202ed\u009be\t👩‍👧"); got != "a�[2Jb c�d�e 👩‍👧" {
		t.Errorf("%q", got)
	}
}

func TestWrapKeepsWordsWhole(t *testing.T) {
	got := Wrap("one twothree four", 8)
	if len(got) != 3 || got[1] != "twothree" {
		t.Errorf("got %q", got)
	}
}

// A table cell with a foreign text is one line without control characters.
func TestControlCharactersOfTables(t *testing.T) {
	var b strings.Builder
	if err := NewTable([]string{"A\x1b[1m", "B"}, [][]string{{"one\ntwo", "\x1b[2J"}, {"x", "\u202e"}}).Write(&b,
		0); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Count(text, "\n") != 4 || strings.ContainsAny(text, "\x1b\u202e\t") ||
		!strings.Contains(text, "one two") {
		t.Errorf("%q", text)
	}
}
