package matrix

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
)

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
	errs = withoutEchoes(errs)
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

// withoutEchoes removes errors that are consequences of an undefined name at the same position.
func withoutEchoes(errs Errors) Errors {
	unbound := map[string]bool{}
	for _, f := range errs {
		if strings.HasPrefix(f.Message, unboundName) {
			unbound[placeOf(f)] = true
		}
	}
	return slices.DeleteFunc(errs, func(f Error) bool {
		return unbound[placeOf(f)] && !strings.HasPrefix(f.Message, unboundName)
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
