package terminal

import (
	"fmt"
	"io"
	"os"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Writer writes text that others may have a part in to a terminal: control characters but line ends and tabs, changes
// of the direction of text, and bytes that are not UTF-8 become escapes such as \x1b and \u202e. It is safe for
// concurrent use.
type Writer struct {
	out  io.Writer
	mu   sync.Mutex
	rest []byte // the beginning of a character whose other bytes are still to come
}

// NewWriter returns a Writer to out.
func NewWriter(out io.Writer) *Writer { return &Writer{out: out} }

// Write writes p in one write.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := append(w.rest, p...)
	w.rest = nil
	var clean []byte
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			w.rest = text
			break
		}
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			clean = fmt.Appendf(clean, `\x%02x`, text[0])
		case r == '\n' || r == '\t' || !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r):
			clean = append(clean, text[:size]...)
		case r < utf8.RuneSelf:
			clean = fmt.Appendf(clean, `\x%02x`, r)
		default:
			clean = fmt.Appendf(clean, `\u%04x`, r)
		}
		text = text[size:]
	}
	if _, err := w.out.Write(clean); err != nil {
		return 0, err
	}
	return len(p), nil
}

// File returns the file that out, or the Writer that it is, writes to; nil if it is none.
func File(out io.Writer) *os.File {
	if w, is := out.(*Writer); is {
		out = w.out
	}
	f, _ := out.(*os.File)
	return f
}

// Is reports whether out is a terminal, whatever it can do.
func Is(out io.Writer) bool {
	f := File(out)
	return f != nil && term.IsTerminal(int(f.Fd()))
}
