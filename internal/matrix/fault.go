package matrix

import (
	"fmt"
	"strings"
)

// Fault is one mistake in a matrix or in what narrows it.
type Fault struct {
	File    string `json:"file"` // or "--set", "--only"
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"` // of the field, as in "cell.publishers.mode"
	Message string `json:"message"`
}

// Error is the fault on one line, beginning with its place.
func (f Fault) Error() string {
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

// Faults are all faults found, in the order of their places. It is the error of Load and Expand.
type Faults []Fault

// Error is one line a fault.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, x := range f {
		lines[i] = x.Error()
	}
	return strings.Join(lines, "\n")
}
