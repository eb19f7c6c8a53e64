// Package translate converts inputs of other tools to matrices: workloads and driver files of the OpenMessaging
// Benchmark, and scenario files of RabbitMQ PerfTest. It reads and writes text only.
package translate

import (
	"fmt"
	"slices"
	"strings"
)

// File is an input.
type File struct {
	Name string // used in messages and comments
	Text []byte
}

// Lost is a part of an input that has no exact counterpart in a matrix.
type Lost struct {
	File string
	Line int
	Key  string // as written in the input; "": the whole file
	Why  string
}

func (l Lost) String() string {
	if l.Key == "" {
		return fmt.Sprintf("%s:%d: %s", l.File, l.Line, l.Why)
	}
	return fmt.Sprintf("%s:%d: %s: %s", l.File, l.Line, l.Key, l.Why)
}

// Result is a translation.
type Result struct {
	Matrix string // CUE, not formatted; contains what was lost as a comment
	Lost   []Lost
	// Used are the keys that the matrix represents, each as "file:line: key". Every key of the inputs is in Used or in
	// Lost.
	Used []string
}

// Error is an error in an input.
type Error struct {
	File string
	Line int
	Text string
}

// Errors are all errors in the inputs.
type Errors []Error

func (f Errors) Error() string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = fmt.Sprintf("%s:%d: %s", one.File, one.Line, one.Text)
	}
	return strings.Join(lines, "\n")
}

// report collects the used, lost and invalid parts of the inputs.
type report struct {
	files  []string // in the order of reading
	errors Errors
	lost   []Lost
	used   []string
}

func (r *report) invalid(file string, line int, format string, a ...any) {
	r.errors = append(r.errors, Error{file, line, fmt.Sprintf(format, a...)})
}

// result ends a translation. Errors and losses are sorted by file, in the order of reading, and line.
func (r *report) result(write func(lost []Lost) string) (*Result, error) {
	if len(r.errors) > 0 {
		slices.SortStableFunc(r.errors, func(a, b Error) int { return r.order(a.File, b.File, a.Line, b.Line) })
		return nil, Errors(once(r.errors))
	}
	slices.SortStableFunc(r.lost, func(a, b Lost) int { return r.order(a.File, b.File, a.Line, b.Line) })
	r.lost = once(r.lost)
	return &Result{Matrix: write(r.lost), Lost: r.lost, Used: r.used}, nil
}

// once removes repeated elements.
func once[T comparable](all []T) []T {
	seen := map[T]bool{}
	return slices.DeleteFunc(all, func(one T) bool {
		again := seen[one]
		seen[one] = true
		return again
	})
}

// order compares by file, in the order of reading, and line.
func (r *report) order(fileA, fileB string, a, b int) int {
	if fileA != fileB {
		return slices.Index(r.files, fileA) - slices.Index(r.files, fileB)
	}
	return a - b
}
