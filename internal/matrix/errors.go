package matrix

import (
	"fmt"
	"strings"
)

// Error is one mistake in a matrix or in what narrows it.
type Error struct {
	File    string `json:"file"` // or "--set", "--filter"
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"` // of the field, as in "cell.publishers.mode"
	Message string `json:"message"`
}

// Error is the fault on one line, beginning with its place.
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

// Errors are all faults found, in the order of their places. It is the error of Load and Expand.
type Errors []Error

// Error is one line a fault.
func (f Errors) Error() string {
	lines := make([]string, len(f))
	for i, x := range f {
		lines[i] = x.Error()
	}
	return strings.Join(lines, "\n")
}
