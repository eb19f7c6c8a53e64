// Package translate writes matrices from what other tools measure with: workloads and driver files of the OpenMessaging
// Benchmark, and scenario files of RabbitMQ PerfTest. It knows their formats and the words of matrices, and reads and
// writes text alone.
package translate

import (
	"fmt"
	"slices"
	"strings"
)

// File is an input.
type File struct {
	Name string // for people: in faults and comments
	Text []byte
}

// Lost is something in an input that has no counterpart in a matrix, or only a near one.
type Lost struct {
	File string
	Line int
	Key  string // as it is written there; "" is the file as a whole
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
	Matrix string // CUE; what was lost is a comment in it
	Lost   []Lost
	// Used are the keys whose meaning the matrix has, each as "file:line: key". Every key of the inputs is here or in
	// Lost.
	Used []string
}

// Fault is one thing that makes an input useless.
type Fault struct {
	File string
	Line int
	Text string
}

// Faults are all that is wrong with the inputs, as one error.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = fmt.Sprintf("%s:%d: %s", one.File, one.Line, one.Text)
	}
	return strings.Join(lines, "\n")
}

// report gathers what becomes of the inputs.
type report struct {
	files  []string // in the order of reading
	faults Faults
	lost   []Lost
	used   []string
}

func (r *report) fault(file string, line int, format string, a ...any) {
	r.faults = append(r.faults, Fault{file, line, fmt.Sprintf(format, a...)})
}

// result ends a translation. The order is that of the inputs, file by file.
func (r *report) result(write func(lost []Lost) string) (*Result, error) {
	if len(r.faults) > 0 {
		slices.SortStableFunc(r.faults, func(a, b Fault) int { return r.order(a.File, b.File, a.Line, b.Line) })
		return nil, Faults(once(r.faults))
	}
	slices.SortStableFunc(r.lost, func(a, b Lost) int { return r.order(a.File, b.File, a.Line, b.Line) })
	r.lost = once(r.lost)
	return &Result{Matrix: write(r.lost), Lost: r.lost, Used: r.used}, nil
}

// once keeps the first of what is there several times.
func once[T comparable](all []T) []T {
	seen := map[T]bool{}
	return slices.DeleteFunc(all, func(one T) bool {
		again := seen[one]
		seen[one] = true
		return again
	})
}

// order sorts by file, as they were read, and line.
func (r *report) order(fileA, fileB string, a, b int) int {
	if fileA != fileB {
		return slices.Index(r.files, fileA) - slices.Index(r.files, fileB)
	}
	return a - b
}
