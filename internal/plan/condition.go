package plan

import (
	"fmt"
	"slices"
	"strings"
)

// Condition is a rule over a task's values and flags, such as "p99 < 50ms && lost == 0 && !backlog". The zero Condition always holds.
type Condition struct {
	text string
	root term
}

func (c Condition) String() string { return c.text }

// Holds tells whether the condition holds for the values of an outcome, and if not, which part of it failed and by what value. A
// value without a number holds in no comparison, negated or not: what is not known cannot be relied on.
func (c Condition) Holds(values map[string]Value) (holds bool, why string) {
	failures := c.Fails(values)
	return len(failures) == 0, reasons(failures, "; ")
}

// Failure is why a condition does not hold.
type Failure struct {
	Why     string
	Unknown bool // a value has no number, or only a bound: the condition may hold or not
}

func reasons(all []Failure, separator string) string {
	whys := make([]string, len(all))
	for i, f := range all {
		whys[i] = f.Why
	}
	return strings.Join(whys, separator)
}

// Fails returns why the condition does not hold, each reason once; there are none if it holds.
func (c Condition) Fails(values map[string]Value) []Failure {
	if c.root == nil {
		return nil
	}
	return c.root.fails(values)
}

// Names lists the values that the condition compares, by their full names, each once.
func (c Condition) Names() []string {
	var names []string
	if c.root != nil {
		c.root.each(func(name string) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		})
	}
	return names
}

// A term is a part of a condition. Negation stands only at flags: ParseCondition moves it down (De Morgan), and turns comparisons round.
type term interface {
	// fails returns why the term does not hold, each reason once; there are none if it holds.
	fails(values map[string]Value) []Failure
	not() term
	each(func(name string))
}

// both is a conjunction; it fails by each of its parts.
type both []term

func (b both) fails(values map[string]Value) []Failure {
	var all []Failure
	for _, t := range b {
		for _, f := range t.fails(values) {
			if !slices.Contains(all, f) {
				all = append(all, f)
			}
		}
	}
	return all
}

func (b both) not() term {
	out := make(either, len(b))
	for i, t := range b {
		out[i] = t.not()
	}
	return out
}

func (b both) each(f func(string)) {
	for _, t := range b {
		t.each(f)
	}
}

// either is a disjunction; it fails when all of its parts do. That is unknown if every reason of one of them is.
type either []term

func (e either) fails(values map[string]Value) []Failure {
	var all []Failure
	unknown := false
	for _, t := range e {
		failures := t.fails(values)
		if len(failures) == 0 {
			return nil
		}
		part := Failure{reasons(failures, "; "), !slices.ContainsFunc(failures, func(f Failure) bool { return !f.Unknown })}
		unknown = unknown || part.Unknown
		if !slices.Contains(all, part) {
			all = append(all, part)
		}
	}
	return []Failure{{reasons(all, ", and "), unknown}}
}

func (e either) not() term {
	out := make(both, len(e))
	for i, t := range e {
		out[i] = t.not()
	}
	return out
}

func (e either) each(f func(string)) { both(e).each(f) }

// flagged holds if any value has the flag, or none if negated.
type flagged struct {
	flag    Flag
	negated bool
}

func (f flagged) fails(values map[string]Value) []Failure {
	has := false
	for _, v := range values {
		has = has || slices.Contains(v.Flags, f.flag)
	}
	switch {
	case has == !f.negated:
		return nil
	case has && f.flag == Backlog:
		return []Failure{{Why: backlogged}}
	case has:
		return []Failure{{Why: string(f.flag)}}
	}
	return []Failure{{Why: "not " + string(f.flag)}}
}

// backlogged is also why a latency has no number then.
const backlogged = "backlog: receiving did not keep up with sending"

func (f flagged) not() term         { return flagged{f.flag, !f.negated} }
func (f flagged) each(func(string)) {}

// operand is one side of a comparison: a value by its name, or a constant.
type operand struct {
	name   string // full; empty: a constant
	text   string // as it was written
	number float64
	unit   Unit // of a constant: Seconds, Bytes, or Count for a plain number; PerSecond for one written with /s
	column int
}

func (o operand) value(values map[string]Value) (float64, string) {
	if o.name == "" {
		return o.number, ""
	}
	v, has := values[o.name]
	switch {
	case !has:
		return 0, fmt.Sprintf("%s is not in the record", o.text)
	case v.NA == string(Backlog):
		return 0, backlogged
	case v.NA != "":
		return 0, fmt.Sprintf("%s has no number: %s", o.text, v.NA)
	}
	return v.Number, ""
}

type comparison struct {
	left, right operand
	op          string
	unit        Unit
}

// opposites are what is left of operators when they are negated.
var opposites = map[string]string{"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}

func (c comparison) fails(values map[string]Value) []Failure {
	if c.known(values) {
		return nil
	}
	a, why := c.left.value(values)
	b, other := c.right.value(values)
	var missing []Failure
	for _, w := range []string{why, other} {
		if f := (Failure{w, w != backlogged}); w != "" && !slices.Contains(missing, f) {
			missing = append(missing, f)
		}
	}
	holds := map[string]bool{"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}[c.op]
	switch {
	case missing != nil:
		return missing
	case values[c.left.name].Over > 0 || values[c.right.name].Over > 0:
		return c.bounded(values, a, b)
	case holds:
		return nil
	case c.left.name == "":
		why = fmt.Sprintf("%s is %s, and %s is not %s it", c.right.text, quantity(b, c.unit), c.left.text, c.op)
	case c.right.name == "":
		why = fmt.Sprintf("%s is %s, not %s %s", c.left.text, quantity(a, c.unit), c.op, c.right.text)
	default:
		why = fmt.Sprintf("%s is %s, not %s %s, %s", c.left.text, quantity(a, c.unit), c.op, c.right.text, quantity(b, c.unit))
	}
	return []Failure{{Why: why}}
}

// bounded is fails for a value of which only a lower bound is known (Value.Over): the bound decides, or the result is unknown.
func (c comparison) bounded(values map[string]Value, a, b float64) []Failure {
	value, other, op := c.left, c.right, c.op
	if values[value.name].Over == 0 { // the value is on the left from here on
		value, other, op, a, b = c.right, c.left, mirrored[op], b, a
	}
	limit := other.text
	if other.name != "" {
		limit = fmt.Sprintf("%s, %s", other.text, quantity(b, c.unit))
	}
	switch above := a >= b && values[other.name].Over == 0; {
	case above && (op == ">" || op == ">=" || op == "!="):
		return nil
	case above:
		return []Failure{{Why: fmt.Sprintf("%s is more than %s, not %s %s", value.text, quantity(a, c.unit), op, limit)}}
	}
	return []Failure{{fmt.Sprintf("%s is more than %s: whether it is %s %s is not known", value.text, quantity(a, c.unit), op, limit), true}}
}

// mirrored are the operators with their sides exchanged.
var mirrored = map[string]string{"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}

// known tells whether the comparison holds for a value without a number, by what it is less than.
func (c comparison) known(values map[string]Value) bool {
	value, limit, less := c.left, c.right, c.op == "<" || c.op == "<="
	if value.name == "" {
		value, limit, less = c.right, c.left, c.op == ">" || c.op == ">="
	}
	than, is := values[value.name].LessThan()
	return is && less && limit.name == "" && than <= limit.number
}

func (c comparison) not() term {
	c.op = opposites[c.op]
	return c
}

func (c comparison) each(f func(string)) {
	for _, o := range []operand{c.left, c.right} {
		if o.name != "" {
			f(o.name)
		}
	}
}
