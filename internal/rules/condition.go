// Package rules parses and evaluates the rules of matrices: conditions over values and flags, the end of repetitions,
// and comparisons with a baseline. They name values and units in the same way.
//
//	require    = condition | regression
//	while      = condition
//	until      = "ci" [ "(" value ")" ] "<" percentage [ "at" percentage ]
//	condition  = part { "||" part }
//	part       = factor { "&&" factor }
//	factor     = "!" factor | "(" condition ")" | flag | operand op operand
//	op         = "==" | "!=" | "<" | "<=" | ">" | ">="
//	operand    = value | number | duration
//	regression = [ value { "," value } ] "no worse than baseline" [ name ] "by" percentage [ "at" percentage ]
package rules

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
)

// Condition is a rule over a task's values and flags, such as "p99 < 50ms && lost == 0 && !backlog". The zero Condition
// always holds.
type Condition struct {
	root  both
	names []string // of the compared values
}

// Holds reports whether the condition holds for the values of an outcome. If not, why names the failed parts with their
// values. A comparison with a value without a number never holds, negated or not.
func (c Condition) Holds(values map[string]plan.Value) (holds bool, why string) {
	failures := c.Fails(values)
	return len(failures) == 0, reasons(failures, "; ")
}

// Failure is one reason why a condition does not hold.
type Failure struct {
	Why     string
	Unknown bool // a value has no number or only a bound: it is not known whether the condition holds
}

func reasons(all []Failure, separator string) string {
	whys := make([]string, len(all))
	for i, f := range all {
		whys[i] = f.Why
	}
	return strings.Join(whys, separator)
}

// Fails returns the reasons why the condition does not hold, each once. It returns none if the condition holds.
func (c Condition) Fails(values map[string]plan.Value) []Failure {
	return c.root.fails(values)
}

// Names returns the full names of the values that the condition compares, each once.
func (c Condition) Names() []string { return c.names }

// Regressions returns the comparisons in a run's rules, each text once, by the name of their baseline.
func Regressions(r plan.Run) map[string][]plan.Regression {
	all := map[string][]plan.Regression{}
	seen := map[string]bool{}
	for _, c := range r.Cells {
		for _, required := range c.Require {
			if seen[required.Text] {
				continue
			}
			seen[required.Text] = true
			if rule, is, err := ParseRegression(required.Text, r.Metrics); is && err == nil {
				name := r.BaselineOf(rule)
				all[name] = append(all[name], rule)
			}
		}
	}
	return all
}

// term is a part of a condition. Only flags can be negated: ParseCondition resolves other negations with De Morgan's
// laws and opposite comparison operators.
type term interface {
	// fails returns the reasons why the term does not hold, each once. It returns none if the term holds.
	fails(values map[string]plan.Value) []Failure
}

// both is a conjunction. Its failures are those of all its parts.
type both []term

func (b both) fails(values map[string]plan.Value) []Failure {
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

// either is a disjunction. It fails if all parts fail. The failure is unknown if at least one part has only unknown
// failures.
type either []term

func (e either) fails(values map[string]plan.Value) []Failure {
	var all []Failure
	unknown := false
	for _, t := range e {
		failures := t.fails(values)
		if len(failures) == 0 {
			return nil
		}
		part := Failure{reasons(failures, "; "), !slices.ContainsFunc(failures,
			func(f Failure) bool { return !f.Unknown })}
		unknown = unknown || part.Unknown
		if !slices.Contains(all, part) {
			all = append(all, part)
		}
	}
	return []Failure{{reasons(all, ", and "), unknown}}
}

// flagged holds if any value has the flag; negated, if none has it.
type flagged struct {
	flag    plan.Flag
	negated bool
}

func (f flagged) fails(values map[string]plan.Value) []Failure {
	has := false
	for _, v := range values {
		has = has || slices.Contains(v.Flags, f.flag)
	}
	switch {
	case has == !f.negated:
		return nil
	case has && f.flag == plan.Backlog:
		return []Failure{{Why: backlogged}}
	case has:
		return []Failure{{Why: string(f.flag)}}
	}
	return []Failure{{Why: "not " + string(f.flag)}}
}

// backlogged is the reason for the flag backlog, and for a latency without a number because of a backlog.
const backlogged = "backlog: receiving did not keep up with sending"

// operand is one side of a comparison: a named value or a constant.
type operand struct {
	name   string // full name; empty: a constant
	text   string // as written in the condition
	number float64
	unit   plan.Unit // of a constant: Seconds, Bytes, or Count for a plain number; PerSecond if written with /s
	column int
}

// interval is the set of numbers that a value may have. It is one number, or a range: within the bound of the value
// (Value.Bound), above a lower bound (Value.Over) or below an upper bound (Value.LessThan).
type interval struct {
	low, high    float64
	above, below bool // low, or high, is excluded
}

// interval returns the possible numbers of an operand, or the reason why it has none.
func (o operand) interval(values map[string]plan.Value) (interval, string) {
	v, has := values[o.name]
	than, less := v.LessThan()
	switch {
	case o.name == "":
		return interval{low: o.number, high: o.number}, ""
	case !has:
		return interval{}, fmt.Sprintf("%s is not in the record", o.text)
	case less:
		return interval{low: math.Inf(-1), high: than, below: true}, ""
	case v.NA == string(plan.Backlog):
		return interval{}, backlogged
	case v.NA != "":
		return interval{}, fmt.Sprintf("%s has no number: %s", o.text, v.NA)
	case v.Bound == 0 && slices.Contains(v.Flags, plan.ClockUnsafe):
		return interval{}, fmt.Sprintf("%s is clock-unsafe: its error is not known", o.text)
	case v.Over > 0:
		return interval{low: v.Number - v.Bound, high: math.Inf(1), above: true}, ""
	}
	return interval{low: v.Number - v.Bound, high: v.Number + v.Bound}, ""
}

// text formats the interval: "61.3 ms", "49.9 ms ± 5.00 ms", "more than 2.00 s".
func (i interval) text(unit plan.Unit) string {
	switch {
	case i.above:
		return "more than " + quantity(i.low, unit)
	case i.below:
		return "less than " + quantity(i.high, unit)
	case i.low < i.high:
		return fmt.Sprintf("%s ± %s", quantity((i.low+i.high)/2, unit), quantity((i.high-i.low)/2, unit))
	}
	return quantity(i.low, unit)
}

// quantity formats a number with its unit: "61.3 ms", "20,050/s", "3".
func quantity(x float64, unit plan.Unit) string {
	switch unit {
	case plan.Seconds:
		return display.Seconds(x)
	case plan.PerSecond, plan.Text:
		return display.Number(x) + "/s"
	case plan.Bytes:
		return display.Bytes(x)
	}
	return display.Number(x)
}

// always reports whether a comparison holds for every pair of numbers from two intervals.
func always(a interval, op string, b interval) bool {
	switch op {
	case "<":
		return a.high < b.low || a.high == b.low && (a.below || b.above)
	case "<=":
		return a.high <= b.low
	case ">", ">=":
		return always(b, mirrored[op], a)
	case "!=":
		return always(a, "<", b) || always(b, "<", a)
	}
	return a.low == a.high && a == b
}

// comparison has a value on its left side.
type comparison struct {
	left, right operand
	op          string
	unit        plan.Unit
}

// opposites maps each operator to its negation.
var opposites = map[string]string{"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}

// mirrored maps each operator to the one with exchanged sides.
var mirrored = map[string]string{"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}

// fails compares all possible numbers of the operands. The comparison holds for all, fails for all, or its result is
// unknown.
func (c comparison) fails(values map[string]plan.Value) []Failure {
	a, why := c.left.interval(values)
	b, other := c.right.interval(values)
	var missing []Failure
	for _, w := range []string{why, other} {
		if f := (Failure{w, w != backlogged}); w != "" && !slices.Contains(missing, f) {
			missing = append(missing, f)
		}
	}
	value, limit := fmt.Sprintf("%s is %s", c.left.text, a.text(c.unit)), c.op+" "+c.right.text
	if c.right.name != "" {
		limit += ", " + b.text(c.unit)
	}
	switch {
	case missing != nil:
		return missing
	case always(a, c.op, b):
		return nil
	case always(a, opposites[c.op], b):
		return []Failure{{Why: fmt.Sprintf("%s, not %s", value, limit)}}
	}
	return []Failure{{fmt.Sprintf("%s: whether it is %s is not known", value, limit), true}}
}
