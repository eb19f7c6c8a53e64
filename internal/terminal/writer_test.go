package terminal

import (
	"errors"
	"strings"
	"testing"
)

func TestWriter(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain\n\tgrün 兎🐇 e\u0301\n", "plain\n\tgrün 兎🐇 e\u0301\n"},
		{"\x1b[2J\x1b]0;OWNED\a\x1b]8;;http://h\x1b\\", `\x1b[2J\x1b]0;OWNED\x07\x1b]8;;http://h\x1b\`},
		{"\u009b2J\u009d0;x\u009c", `\u009b2J\u009d0;x\u009c`},
		{"a\u202eb\u2066c\u200ed\u061ce", `a\u202eb\u2066c\u200ed\u061ce`},
		{"a\x9bb\xffc\xc2d", `a\x9bb\xffc\xc2d`}, // invalid UTF-8: some terminals treat this byte as CSI
		{"a\rb\bc\x7fd\x00e\v\f", `a\x0db\x08c\x7fd\x00e\x0b\x0c`},
	} {
		for size := 1; size <= len(c.in); size++ { // characters are divided between writes
			var out strings.Builder
			w := NewWriter(&out)
			for at := 0; at < len(c.in); at += size {
				part := c.in[at:min(at+size, len(c.in))]
				if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
					t.Fatalf("%d bytes of %d were written: %v", n, len(part), err)
				}
			}
			if out.String() != c.want {
				t.Errorf("%q in parts of %d is %q, want %q", c.in, size, out.String(), c.want)
			}
		}
	}
	broken := errors.New("gone")
	if _, err := NewWriter(failing{broken}).Write([]byte("x")); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// Foreign texts are printed above the block without control characters. Those of the block itself are kept.
func TestBoardEscapesText(t *testing.T) {
	var out strings.Builder
	b := NewBoard(&out, fixed, func(int) []string { return nil })
	if _, err := b.Write([]byte("a\x1b]0;OWNED\a\u202e\n")); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if text := out.String(); !strings.Contains(text, `a\x1b]0;OWNED\x07\u202e`) || strings.Contains(text, "\x1b]0") {
		t.Errorf("the board wrote %q", text)
	}
}
