package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"example.org/lockstep/lockstep/internal/plan"
)

// ConditionError is one error in the text of a condition.
type ConditionError struct {
	Column  int // in characters, from 1
	Message string
}

// ConditionErrors are all errors of a condition, in order of column.
type ConditionErrors []ConditionError

// Error returns all errors on one line.
func (f ConditionErrors) Error() string {
	texts := make([]string, len(f))
	for i, x := range f {
		texts[i] = fmt.Sprintf("column %d: %s", x.Column, x.Message)
	}
	return strings.Join(texts, "; ")
}

// ParseCondition parses a condition over the values of a workload's outcomes. The error is of type ConditionErrors.
//
//	condition  = part { "||" part }
//	part       = factor { "&&" factor }
//	factor     = "!" factor | "(" condition ")" | flag | operand op operand
//	op         = "==" | "!=" | "<" | "<=" | ">" | ">="
//	operand    = value | number | duration
//
// Values are those of metrics.Values, and the short names p50 … max and rate. A short name stands for the latency or
// rate at the consumers, or at the publishers if there are no consumers.
func ParseCondition(text string, w plan.Workload, metrics plan.Metrics) (Condition, error) {
	p := &conditionParser{short: shortNames(w), metrics: metrics}
	for _, q := range plan.Quantiles() {
		p.words = append(p.words, q.Name)
	}
	p.words = append(p.words, "rate")
	p.tokens = p.scan(text)
	root := p.any(false)
	if t := p.peek(); t.kind != tokenEnd {
		p.report(t, "unexpected %s; remove it or write && or || before it", t)
	}
	if len(p.errors) > 0 {
		slices.SortStableFunc(p.errors, func(a, b ConditionError) int { return a.Column - b.Column })
		return Condition{}, p.errors
	}
	return Condition{both{root}, p.compared}, nil
}

type conditionParser struct {
	short    map[string]string
	metrics  plan.Metrics
	words    []string // short names, in order
	tokens   []token  // without the end token, which peek returns repeatedly
	at       int
	end      int      // column of the end
	compared []string // names of the compared values, each once
	errors   ConditionErrors
	listed   bool // an error has listed the valid names
}

func (p *conditionParser) report(t token, format string, args ...any) {
	f := ConditionError{t.column, fmt.Sprintf(format, args...)}
	if !slices.ContainsFunc(p.errors, func(x ConditionError) bool { return x.Column == f.Column }) {
		p.errors = append(p.errors, f)
	}
}

func (p *conditionParser) peek() token {
	if p.at < len(p.tokens) {
		return p.tokens[p.at]
	}
	return token{column: p.end}
}

// take consumes and returns the next token if it is one of the signs.
func (p *conditionParser) take(signs ...string) (token, bool) {
	t := p.peek()
	if t.kind != tokenSign || !slices.Contains(signs, t.text) {
		return t, false
	}
	p.at++
	return t, true
}

// any and the functions that it calls return the negation of what they parse if negated is true.
func (p *conditionParser) any(negated bool) term { return p.list("||", negated, p.all) }

func (p *conditionParser) all(negated bool) term { return p.list("&&", negated, p.factor) }

// list parses parts that are joined by a sign. By De Morgan's laws, negation exchanges the signs.
func (p *conditionParser) list(sign string, negated bool, part func(negated bool) term) term {
	parts := []term{part(negated)}
	for {
		if _, more := p.take(sign); !more {
			break
		}
		parts = append(parts, part(negated))
	}
	switch {
	case len(parts) == 1:
		return parts[0]
	case (sign == "||") != negated:
		return either(parts)
	}
	return both(parts)
}

func (p *conditionParser) factor(negated bool) term {
	if _, not := p.take("!"); not {
		return p.factor(!negated)
	}
	if open, is := p.take("("); is {
		inner := p.any(negated)
		if t, closed := p.take(")"); !closed {
			if t.kind == tokenEnd {
				p.report(open, "this bracket is not closed")
			} else {
				p.report(t, "unexpected %s; remove it or write && or || before it", t)
			}
			p.skip()
			p.take(")")
		}
		return inner
	}
	return p.compare(negated)
}

// compare parses a flag or a comparison.
func (p *conditionParser) compare(negated bool) term {
	first := p.peek()
	if first.kind == tokenWord && slices.Contains(plan.Flags(), plan.Flag(first.text)) {
		p.at++
		if t, is := p.take("==", "!=", "<", "<=", ">", ">="); is {
			p.report(t, "a flag cannot be compared: write %s or !%s", first.text, first.text)
			p.skip()
		}
		return flagged{plan.Flag(first.text), negated}
	}
	left, ok := p.operand(true)
	if !ok {
		p.skip()
		return both{}
	}
	op, is := p.take("==", "!=", "<", "<=", ">", ">=")
	if !is {
		if !p.unitAfterBlank(left, op) {
			p.report(token{column: left.column},
				"%s needs a comparison, for example p99 < 50ms; only flags need none (%s)", left.text, strings.Join(flagNames(), ", "))
		}
		p.skip()
		return both{}
	}
	right, ok := p.operand(false)
	if !ok {
		p.skip()
		return both{}
	}
	switch t := p.peek(); {
	case p.unitAfterBlank(right, t):
		p.skip()
	case t.kind == tokenSign && opposites[t.text] != "":
		p.report(t, "comparisons cannot be chained: join two comparisons by &&")
		p.skip()
	}
	if negated {
		op.text = opposites[op.text]
	}
	if left.name == "" && right.name != "" {
		left, right, op.text = right, left, mirrored[op.text]
	}
	return comparison{left: left, right: right, op: op.text, unit: p.fit(left, right)}
}

// skip moves to the next &&, || or closing bracket, or to the end.
func (p *conditionParser) skip() {
	for t := p.peek(); t.kind != tokenEnd; t = p.peek() {
		if t.kind == tokenSign && (t.text == "&&" || t.text == "||" || t.text == ")") {
			return
		}
		p.at++
	}
}

// unitAfterBlank reports a unit that a blank separates from its number.
func (p *conditionParser) unitAfterBlank(o operand, t token) bool {
	if o.name != "" || t.kind != tokenWord {
		return false
	}
	_, _, unit := constant(o.text + t.text)
	if unit {
		p.report(t, "write the unit without a blank: %s%s", o.text, t.text)
	}
	return unit
}

// operand parses a value or a constant. It reports an error for anything else.
func (p *conditionParser) operand(first bool) (operand, bool) {
	t := p.peek()
	o := operand{text: t.text, column: t.column}
	switch t.kind {
	case tokenWord:
		p.at++
		if o.name = p.resolve(t); !slices.Contains(p.compared, o.name) {
			p.compared = append(p.compared, o.name)
		}
		return o, true
	case tokenConstant:
		p.at++
		var ok bool
		if o.number, o.unit, ok = constant(t.text); !ok {
			p.report(t, "%s is neither a number (20_000) nor a duration (50ms)", t)
		}
		return o, true
	}
	if first {
		p.report(t, "expected a comparison or a flag, found %s", t)
	} else {
		p.report(t, "expected a number, a duration or a value, found %s", t)
	}
	return o, false
}

// resolve returns the full name of a value. It reports an error for an unknown name.
func (p *conditionParser) resolve(t token) string {
	if full := p.short[t.text]; full != "" {
		return full
	}
	if _, known := p.metrics.ValueNamed(t.text); known {
		return t.text
	}
	if slices.Contains(plan.Flags(), plan.Flag(t.text)) {
		p.report(t, "%s is a flag, not a value: write %s or !%s by itself", t.text, t.text, t.text)
		return t.text
	}
	msg := fmt.Sprintf("unknown value or flag %q", t.text) +
		plan.DidYouMean(t.text, slices.Concat(p.words, p.metrics.Names(), flagNames()))
	if !p.listed {
		p.listed = true
		msg += fmt.Sprintf(" (available: %s, every value of docs/reference/values.md by its name, as publish.p99 or lost, and the flags %s)", strings.Join(p.words, ", "), strings.Join(flagNames(), ", "))
	}
	p.report(t, "%s", msg)
	return t.text
}

// fit returns the unit of a comparison, which has a value on its left side unless both are constants. It reports an
// error if the units of the sides do not match.
func (p *conditionParser) fit(left, right operand) plan.Unit {
	a, b := p.unitOf(left), p.unitOf(right)
	switch {
	case a == "" || b == "": // an error was reported already
	case left.name == "":
		p.report(token{column: left.column}, "%s and %s are both constants: compare a value", left.text, right.text)
	case right.name == "":
		if why := mismatch(left, a, right); why != "" {
			p.report(token{column: right.column}, "%s", why)
		}
	case a != b && !(a == plan.Text && b == plan.PerSecond || a == plan.PerSecond && b == plan.Text):
		p.report(token{column: right.column}, "%s is in %s and %s in %s: they cannot be compared", left.text, a,
			right.text, b)
	}
	return a
}

func (p *conditionParser) unitOf(o operand) plan.Unit {
	if o.name == "" {
		return o.unit
	}
	info, _ := p.metrics.ValueNamed(o.name)
	return info.Unit
}

func flagNames() (names []string) {
	for _, f := range plan.Flags() {
		names = append(names, string(f))
	}
	return names
}

// tokenPattern matches blanks, a word, a constant, a sign, or a character that is none of these.
var tokenPattern = regexp.MustCompile(
	`[\s\pZ]+|(\pL[\pL\p{Nd}._-]*)|(\p{Nd}[\pL\p{Nd}._/]*)|(&&|\|\||[=!<>]=|[<>!()])|.`)

var meant = map[string]string{"=": "==", "&": "&&", "|": "||", "≤": "<=", "≥": ">=", "≠": "!=", "and": "&&",
	"AND": "&&", "or": "||", "OR": "||", "not": "!", "NOT": "!"}

// scan splits the text into tokens. A common wrong operator (meant) is reported, and replaced so that the rest can be
// checked.
func (p *conditionParser) scan(text string) []token {
	var out []token
	p.end = 1
	for _, m := range tokenPattern.FindAllStringSubmatch(text, -1) {
		t := token{tokenSign, m[0], p.end}
		p.end += utf8.RuneCountInString(m[0])
		switch better := meant[m[0]]; {
		case strings.TrimSpace(m[0]) == "":
			continue
		case better != "":
			p.report(t, "write %s instead of %s", better, t.text)
			t.text = better
		case m[1] != "":
			t.kind = tokenWord
		case m[2] != "":
			t.kind = tokenConstant
		case m[0] == ",":
			p.report(t, "%s is not valid here; write thousands as 20_000", t)
			continue
		case m[3] == "":
			p.report(t, "%s is not valid here", t)
			continue
		}
		out = append(out, t)
	}
	return out
}

type tokenKind int

const (
	tokenEnd tokenKind = iota
	tokenWord
	tokenConstant
	tokenSign
)

type token struct {
	kind   tokenKind
	text   string
	column int
}

func (t token) String() string {
	if t.kind == tokenEnd {
		return "the end"
	}
	return fmt.Sprintf("%q", t.text)
}
