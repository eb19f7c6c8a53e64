package matrix

import (
	"regexp"

	"strings"

	"cuelang.org/go/cue"
)

// A rule is a part of a schema in a form that Go can check by itself: fast enough for every cell, and able to say in
// plain words what is allowed. Where a schema uses more of CUE than a rule can hold, rough is set and CUE decides.
type rule struct {
	value  cue.Value // what it was made from
	any    bool      // everything is allowed
	rough  bool      // only CUE knows
	words  string    // what is allowed, where a definition says so in its comment
	arms   []arm     // scalars
	object *object
	elem   *rule // of a list
	filled bool  // the list may not be empty
}

// arm is one of the alternatives for a scalar.
type arm struct {
	kind     cue.Kind
	equal    []any // string, bool or float64: one of these
	unequal  []any // none of these
	least    *float64
	most     *float64
	above    bool // least itself is not allowed
	patterns []*regexp.Regexp
	duration bool
}

// object is what is allowed in a struct.
type object struct {
	names  []string // in the order of the schema
	fields map[string]field
	rest   *rule // of any other name; nil: there are no others
}

type field struct {
	rule     *rule
	required bool
}

// compile makes the rule of a schema's value.
func compile(v cue.Value) *rule {
	r := &rule{value: v}
	switch kind := v.IncompleteKind(); {
	case kind == cue.TopKind && isBare(v):
		r.any = true
	default:
		r.alternative(v)
	}
	return r
}

// inner unwraps what CUE gives as an expression of one operand, as it does for a default that the other alternative includes.
func inner(v cue.Value) cue.Value {
	for {
		op, args := v.Expr()
		if op != cue.NoOp || len(args) != 1 {
			return v
		}
		if next, _ := args[0].Expr(); next == cue.NoOp {
			return v
		}
		v = args[0]
	}
}

// isBare tells whether v is "_" itself rather than an expression of several kinds.
func isBare(v cue.Value) bool {
	op, _ := inner(v).Expr()
	return op == cue.NoOp
}

// alternative adds what v allows to the rule.
func (r *rule) alternative(v cue.Value) {
	if name, doc := definition(v); name != "" {
		if name == "#Duration" || name == "#Positive" {
			a := arm{kind: cue.StringKind, duration: true}
			a.patterns = patternsOf(v)
			r.arms, r.words = append(r.arms, a), doc
			return
		}
		switch kind := v.IncompleteKind(); {
		case kind&(cue.StructKind|cue.ListKind) == 0:
			r.words = doc
		case kind != cue.StructKind && kind != cue.ListKind: // a scalar or a struct: its comment says it shorter than its parts
			r.words, _, _ = strings.Cut(doc, ". ")
			r.rough = true
			return
		}
		v = cue.Dereference(v)
	}
	switch v.IncompleteKind() {
	case cue.StructKind:
		r.fields(v)
		return
	case cue.ListKind:
		if op, _ := inner(v).Expr(); op != cue.OrOp {
			r.list(v)
			return
		}
	}
	v = inner(v)
	op, args := v.Expr()
	if op == cue.OrOp {
		for _, alt := range args {
			r.alternative(alt)
		}
		return
	}
	a := arm{kind: v.IncompleteKind()}
	if !a.narrow(v) {
		r.rough = true
		return
	}
	r.arms = append(r.arms, a)
}

func (r *rule) fields(v cue.Value) {
	if op, _ := v.Expr(); r.object != nil || (op != cue.NoOp && op != cue.SelectorOp) {
		r.rough = true
	}
	o := &object{fields: map[string]field{}}
	it, err := v.Fields(cue.Optional(true))
	if err != nil {
		r.rough = true
		return
	}
	for it.Next() {
		name := it.Selector().Unquoted()
		o.names = append(o.names, name)
		o.fields[name] = field{rule: compile(it.Value()), required: it.FieldType()&cue.RequiredConstraint != 0}
	}
	if rest := v.LookupPath(cue.MakePath(cue.AnyString)); rest.Exists() {
		o.rest = compile(rest)
	} else if v.Allows(cue.AnyString) {
		o.rest = &rule{any: true}
	}
	r.object = o
}

func (r *rule) list(v cue.Value) {
	if elem := v.LookupPath(cue.MakePath(cue.AnyIndex)); elem.Exists() && r.elem == nil {
		r.elem = compile(elem)
		if n, err := v.Len().Int64(); err == nil && n > 0 {
			r.rough = true
		}
		if it, err := v.List(); err == nil && it.Next() {
			r.rough, r.filled = true, true // some elements are fixed
		}
		return
	}
	r.rough = true
}

// narrow takes over one conjunct of a scalar, or all of those of a conjunction. It reports whether it could.
func (a *arm) narrow(v cue.Value) bool {
	if name, _ := definition(v); name != "" {
		v = cue.Dereference(v)
	}
	v = inner(v)
	op, args := v.Expr()
	switch op {
	case cue.AndOp:
		for _, x := range args {
			if !a.narrow(x) {
				return false
			}
		}
		return true
	case cue.GreaterThanEqualOp, cue.GreaterThanOp:
		f, ok := number(args[0])
		a.least, a.above = &f, op == cue.GreaterThanOp
		return ok
	case cue.LessThanEqualOp:
		f, ok := number(args[0])
		a.most = &f
		return ok
	case cue.NotEqualOp:
		x, ok := scalar(args[0])
		a.unequal = append(a.unequal, x)
		return ok
	case cue.RegexMatchOp:
		s, err := args[0].String()
		re, bad := regexp.Compile(s)
		a.patterns = append(a.patterns, re)
		return err == nil && bad == nil
	case cue.NoOp:
		if x, ok := scalar(v); ok {
			a.equal = []any{x}
			return true
		}
		switch v.IncompleteKind() {
		case cue.StringKind, cue.IntKind, cue.NumberKind, cue.BoolKind, cue.FloatKind:
			return true
		}
	}
	return false
}

func patternsOf(v cue.Value) []*regexp.Regexp {
	var a arm
	a.narrow(cue.Dereference(v))
	return a.patterns
}

func number(v cue.Value) (float64, bool) {
	f, err := v.Float64()
	return f, err == nil || strings.Contains(err.Error(), "rounded")
}

// scalar is the value of a concrete string, bool or number; numbers are float64.
func scalar(v cue.Value) (any, bool) {
	switch v.Kind() {
	case cue.StringKind:
		s, err := v.String()
		return s, err == nil
	case cue.BoolKind:
		b, err := v.Bool()
		return b, err == nil
	case cue.IntKind, cue.FloatKind:
		return number(v)
	}
	return nil, false
}
