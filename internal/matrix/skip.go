package matrix

import (
	"fmt"
	"path/filepath"
	"slices"

	"cuelang.org/go/cue"
)

// pattern excludes combinations. It is a struct, and matches a combination if every field matches. Each field is
// compared once with each value of its axis.
type pattern struct {
	text  string
	place string
	fits  map[int][]bool // axis: one entry per value
}

func (p pattern) subsumes(combo []int) bool {
	for a, fits := range p.fits {
		if !fits[combo[a]] {
			return false
		}
	}
	return true
}

// readSkip reads the field skip.
func (l *loader) readSkip() {
	for i, v := range elements(l.doc.root.LookupPath(cue.ParsePath("skip"))) {
		if v.Validate() != nil {
			continue // reported by the validation
		}
		path := fmt.Sprintf("skip[%d]", i)
		it, err := v.Fields()
		if err != nil || !hasFields(v) {
			l.doc.add(v.Pos(), path,
				show(v)+" is no pattern; give a struct of axes, as in {mode: \"confirm-each\", threads: >3}")
			continue
		}
		pos := v.Pos()
		p := pattern{text: show(v), place: fmt.Sprintf("%s:%d:%d", filepath.Base(pos.Filename()), pos.Line(),
			pos.Column()), fits: map[int][]bool{}}
		ok := true
		for it.Next() {
			ok = l.readSkipField(p, it.Selector().Unquoted(), it.Value(), path) && ok
		}
		if ok {
			l.skip = append(l.skip, p)
		}
	}
}

func (l *loader) readSkipField(p pattern, name string, v cue.Value, path string) bool {
	a := l.space.find(name)
	if a < 0 {
		if !l.doc.root.LookupPath(cue.MakePath(cue.Str("axes"), cue.Str(name))).Exists() {
			l.doc.add(v.Pos(), path, l.space.noAxis(name))
		}
		return false
	}
	values := elements(l.doc.root.LookupPath(cue.MakePath(cue.Str("axes"), cue.Str(name))))
	fits := make([]bool, len(values))
	for i, x := range values {
		fits[i] = v.Subsume(x) == nil
	}
	p.fits[a] = fits
	// A value that the axis of the file does not have is a mistake. A narrowed axis may lack it.
	if v.IsConcrete() && !slices.Contains(fits, true) && len(l.doc.narrow.Set) == 0 && !l.doc.narrow.Quick {
		l.doc.add(place(v), join(path, name), noValue(trimQuotes(show(v)), name, l.space.axes[a].texts()))
		return false
	}
	return true
}

func trimQuotes(s string) string {
	if len(s) > 1 && s[0] == '"' && s[len(s)-1] == '"' {
		return s[1 : len(s)-1]
	}
	return s
}
