package matrix

import (
	"fmt"
	"strings"
)

// Error is one error in a matrix or in a command-line option that changes it.
type Error struct {
	File    string `json:"file"` // or "--set", "--filter"
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"` // of the field: "cell.publishers.mode"
	Message string `json:"message"`
}

// Error returns the error on one line, beginning with its position.
func (f Error) Error() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
	}
	b.WriteString(": ")
	if f.Path != "" {
		b.WriteString(f.Path + ": ")
	}
	b.WriteString(f.Message)
	return b.String()
}

// Errors are all errors, in the order of their positions. It is the error type of Load and Matrix.Run.
type Errors []Error

// Error returns one line per error.
func (f Errors) Error() string {
	lines := make([]string, len(f))
	for i, x := range f {
		lines[i] = x.Error()
	}
	return strings.Join(lines, "\n")
}
