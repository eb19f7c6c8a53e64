package matrix

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"

	"example.org/lockstep/lockstep/internal/plan"
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

var plainName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$-]*$`)

// setFile is the prefix of the file name for the text of a --set. It identifies errors in that text.
const setFile = "--set "

func errorAt(pos token.Pos, path, message string) Error {
	f := Error{File: pos.Filename(), Path: path, Message: message}
	if pos.IsValid() && !strings.HasPrefix(f.File, setFile) {
		f.Line, f.Column = pos.Line(), pos.Column()
	}
	return f
}

// cueErrors converts errors of CUE's parser, compiler or evaluator into errors in plain words.
func cueErrors(file string, err error) Errors {
	var out Errors
	list := errors.Errors(err)
	for i := 0; i < len(list); i++ {
		e := list[i]
		path := pathOf(e)
		if n := disjunction(list[i:]); n > 0 {
			out = append(out, errorAt(lastPosition(e, list[i+n-1]), path, explainDisjunction(list[i:i+n])))
			i += n - 1
			continue
		}
		out = append(out, errorAt(lastPosition(e), path, plain(e)))
	}
	for i := range out {
		if out[i].File == "" {
			out[i].File = file
		}
	}
	return out
}

func pathOf(e errors.Error) string {
	path := ""
	for _, p := range e.Path() {
		p = strings.Trim(p, `"`)
		if _, err := strconv.Atoi(p); err == nil {
			path += "[" + p + "]"
			continue
		}
		path = join(path, p)
	}
	return path
}

// lastPosition returns the last position outside of the schema in the errors. It is usually that of the conflicting
// value.
func lastPosition(list ...errors.Error) token.Pos {
	for i := len(list) - 1; i >= 0; i-- {
		for _, pos := range slices.Backward(errors.Positions(list[i])) {
			if pos.Filename() != schemaFile {
				return pos
			}
		}
	}
	return token.NoPos
}

// disjunction returns the number of errors at the head of list that together explain why no alternative matches.
func disjunction(list []errors.Error) int {
	if !strings.Contains(message(list[0]), "errors in empty disjunction") {
		return 0
	}
	n := 1
	for n < len(list) && pathOf(list[n]) == pathOf(list[0]) {
		n++
	}
	return n
}

func explainDisjunction(list []errors.Error) string {
	var found, valid []string
	for _, e := range list[1:] {
		m := conflict.FindStringSubmatch(message(e))
		if m == nil {
			return plain(list[len(list)-1])
		}
		valid, found = appendNew(valid, m[1]), appendNew(found, m[2])
	}
	if len(found) > 1 && len(valid) == 1 { // CUE returns the two in either order
		found, valid = valid, found
	}
	return fmt.Sprintf("%s is not valid here; give one of %s", strings.Join(found, ", "), strings.Join(valid, ", "))
}

func message(e errors.Error) string {
	format, args := e.Msg()
	return strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
}

var (
	conflict  = regexp.MustCompile(`^conflicting values (.+?) and (.+?)(?: \(mismatched types .+\))?$`)
	reference = regexp.MustCompile(`^reference "(.+)" not found$`)
	bound     = regexp.MustCompile(`^invalid value (.+) \(out of bound (.+)\)$`)
	undefined = regexp.MustCompile(`undefined field: (.+)$`)
	openValue = regexp.MustCompile(`^(?:incomplete|non-concrete) value (.+)$`)
	noPackage = regexp.MustCompile(`(?:package|import) "(.+)" (?:imported but not defined|not found)`)
)

// plain rewrites CUE's message for users without knowledge of CUE.
func plain(e errors.Error) string {
	text := message(e)
	if m := conflict.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("it has several values that conflict: %s and %s", m[1], m[2])
	}
	if m := reference.FindStringSubmatch(text); m != nil {
		if m[1] == "axis" {
			return unboundName + "axis in this scope; write axis: _ in the same cell: {…} to refer to the values of the combination"
		}
		return unboundName + m[1] + " in this scope; put text into double quotes"
	}
	if m := bound.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("%s is not valid here; give a value %s", m[1], m[2])
	}
	if m := undefined.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("it refers to a field %q that is not set", m[1])
	}
	if m := openValue.FindStringSubmatch(text); m != nil {
		return "it is not concrete: " + m[1]
	}
	if m := noPackage.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("unknown package %q; a matrix can import CUE's standard packages and lockstep.test/schema", m[1])
	}
	if strings.HasSuffix(text, notPresent) {
		return "it is missing"
	}
	return text
}

// notPresent is the end of CUE's message for a missing required field.
const notPresent = "field is required but not present"

// unboundName is the beginning of the message for an undefined name.
const unboundName = "there is no name "

// findings collects errors that many combinations may have in common, each once.
type findings struct {
	known map[string]int // by position and path: index into list, or -1 if it was reported before
	list  []finding
}

type finding struct {
	err   Error
	combo string // the first combination with this error
	more  int
}

func newFindings(reported Errors) *findings {
	f := &findings{known: map[string]int{}}
	for _, x := range reported {
		f.known[keyOf(x)] = -1
		if x.Line > 0 {
			f.known[placeOf(x)] = -1 // one error per position is enough
		}
	}
	return f
}

func placeOf(x Error) string { return fmt.Sprintf("%s:%d:%d", x.File, x.Line, x.Column) }

func keyOf(x Error) string { return placeOf(x) + " " + x.Path }

func (f *findings) add(x Error, combo string) {
	key := keyOf(x)
	i, known := f.known[key]
	if _, known := f.known[placeOf(x)]; known {
		return
	}
	switch {
	case !known:
		f.known[key] = len(f.list)
		f.list = append(f.list, finding{err: x, combo: combo})
	case i >= 0:
		f.list[i].more++
	}
}

func (f *findings) errs() Errors {
	out := make(Errors, len(f.list))
	for i, x := range f.list {
		out[i] = x.err
		switch {
		case x.combo != "" && x.more > 0:
			out[i].Message += fmt.Sprintf(" — in the combination %s and in at least %d more", x.combo, x.more)
		case x.combo != "":
			out[i].Message += " — in the combination " + x.combo
		}
	}
	return out
}

// tidy sorts errors by position, removes duplicates and hides secrets.
func tidy(file string, errs Errors, scrub *plan.Scrubber) Errors {
	for i := range errs {
		errs[i].File, errs[i].Message = scrub.Scrub(errs[i].File), scrub.Scrub(errs[i].Message)
	}
	unbound := map[string]bool{}
	for _, f := range errs {
		if strings.HasPrefix(f.Message, unboundName) {
			unbound[placeOf(f)] = true
		}
	}
	errs = slices.DeleteFunc(errs, func(f Error) bool { // a consequence of an undefined name at the same position
		return unbound[placeOf(f)] && !strings.HasPrefix(f.Message, unboundName)
	})
	slices.SortStableFunc(errs, func(a, b Error) int {
		if a.File != b.File { // the matrix first, then command-line options
			if a.File == file || b.File == file {
				return cmp.Compare(b2i(b.File == file), b2i(a.File == file))
			}
			return strings.Compare(a.File, b.File)
		}
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), strings.Compare(a.Path, b.Path))
	})
	return slices.CompactFunc(errs, func(a, b Error) bool {
		return a.File == b.File && a.Line == b.Line && a.Column == b.Column &&
			(a.Message == b.Message || a.Path == b.Path && a.Line > 0)
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
