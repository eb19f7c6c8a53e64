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

// Writer writes text of unknown origin to a terminal. It replaces control characters except line breaks and tabs,
// characters that change the text direction, and invalid UTF-8 by escapes such as \x1b and \u202e. It is safe for
// concurrent use.
type Writer struct {
	out  io.Writer
	mu   sync.Mutex
	rest []byte // the beginning of an incomplete character
}

// NewWriter returns a Writer to out.
func NewWriter(out io.Writer) *Writer { return &Writer{out: out} }

// Write writes p with one call of the underlying writer.
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

// File returns the file that out writes to, also through a Writer; nil if it is not a file.
func File(out io.Writer) *os.File {
	if w, is := out.(*Writer); is {
		out = w.out
	}
	f, _ := out.(*os.File)
	return f
}

// Is reports whether out is a terminal, including terminals without control sequences.
func Is(out io.Writer) bool {
	f := File(out)
	return f != nil && term.IsTerminal(int(f.Fd()))
}
