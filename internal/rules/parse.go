package rules

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
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

// mismatch returns an error text if a value cannot be compared with a constant because of their units; empty if it can.
func mismatch(value operand, of plan.Unit, with operand) string {
	n := strings.TrimSuffix(with.text, "/s")
	switch {
	case of == with.unit || of == plan.Text && with.unit == plan.PerSecond:
	case of == plan.Seconds && with.unit == plan.Count:
		return fmt.Sprintf("%s is a time: write a duration, %sms or %ss", value.text, n, n)
	case of == plan.Seconds:
		return fmt.Sprintf("%s is a time: write a duration, as 50ms", value.text)
	case with.unit == plan.Count: // rates, counts, cores and bytes accept a plain number
	case of == plan.PerSecond || of == plan.Text:
		return fmt.Sprintf("%s is a rate: write messages per second, as 20_000", value.text)
	case of == plan.Bytes:
		return fmt.Sprintf("%s is memory: write bytes, as 500MiB", value.text)
	default:
		return fmt.Sprintf("%s is a plain number: write it without a unit", value.text)
	}
	return ""
}

func flagNames() (names []string) {
	for _, f := range plan.Flags() {
		names = append(names, string(f))
	}
	return names
}

// shortNames maps the short names of conditions to values. With consumers they are the quantiles of end-to-end latency
// and the consume rate. Without consumers they are the publish rate and the quantiles of publish latency. That is from
// the intended send time in open loop, and from the call in closed loop.
func shortNames(w plan.Workload) map[string]string {
	latency, rate := "e2e", "consume.rate"
	if w.Consumers.Nodes == 0 {
		latency, rate = "publish", "publish.rate"
		if w.Publishers.Open() || w.Search != nil {
			latency = "publish.intended"
		}
	}
	names := map[string]string{"rate": rate}
	for _, q := range plan.Quantiles() {
		names[q.Name] = latency + "." + q.Name
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

// constant parses a number ("20_000", "0.5"), a rate ("20_000/s"), a duration ("50ms", "1m30s") or an amount of memory
// ("500MiB").
func constant(text string) (number float64, unit plan.Unit, ok bool) {
	plain := strings.ReplaceAll(text, "_", "")
	if rate, is := strings.CutSuffix(plain, "/s"); is {
		n, err := strconv.ParseFloat(rate, 64)
		return n, plan.PerSecond, err == nil
	}
	if n, err := strconv.ParseFloat(plain, 64); err == nil {
		return n, plan.Count, true
	}
	if d, err := time.ParseDuration(plain); err == nil {
		return d.Seconds(), plan.Seconds, true
	}
	for _, m := range memoryUnits {
		if head, is := strings.CutSuffix(plain, m.name); is {
			n, err := strconv.ParseFloat(head, 64)
			return n * m.bytes, plan.Bytes, err == nil
		}
	}
	return 0, "", false
}

// Memory parses an amount of memory or disk: bytes such as "1073741824", or with a unit, such as "4GiB" or "500MB". ok
// is false if the text is none, or not a whole number of bytes.
func Memory(text string) (bytes int64, ok bool) {
	n, unit, ok := constant(text)
	if !ok || unit != plan.Bytes && unit != plan.Count || n < 0 || n != math.Trunc(n) || n >= math.MaxInt64 {
		return 0, false
	}
	return int64(n), true
}

// memoryUnits are in the order of matching. B is last, because it is a suffix of all others.
var memoryUnits = []struct {
	name  string
	bytes float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}}

const regressionForm = `write it as "no worse than baseline by 5%" or "publish.rate, publish.p99 no worse than baseline NAME by 5% at 95%"`

var regressionPattern = regexp.MustCompile(`^\s*(?:(\S+(?:\s*,\s*[^\s,]+)*)\s+)?no\s+worse\s+than\s+baseline(?:\s+(\S+))?\s+by\s+(\S+?)\s*%(?:\s+at\s+(\S+?)\s*%)?\s*$`)

// ParseRegression parses such a rule. is is false if the text is not meant as a comparison with a baseline. The error
// names all mistakes. metrics are those of the run.
func ParseRegression(text string, metrics plan.Metrics) (r plan.Regression, is bool, err error) {
	words := strings.Fields(text)
	if !slices.Contains(words, "worse") && !slices.Contains(words, "baseline") {
		return r, false, nil
	}
	m := regressionPattern.FindStringSubmatch(text)
	if m == nil {
		return r, true, errors.New("it names no value to compare with a baseline; " + regressionForm)
	}
	r = plan.Regression{Baseline: m[2]}
	var problems []string
	for name := range strings.SplitSeq(m[1], ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		info, _ := metrics.ValueNamed(name)
		switch why := notAValue(name, metrics); {
		case why != "":
			problems = append(problems, why)
		case info.Better == plan.NeitherBetter:
			problems = append(problems,
				name+" has no better direction; use another value, or a condition such as "+name+
					" < …")
		}
		r.Values = append(r.Values, name)
	}
	effect, confidence, wrong := percentages(m[3], "the maximum regression", m[4])
	r.Effect, r.Confidence = effect, confidence
	if problems = append(problems, wrong...); problems != nil {
		return r, true, errors.New(strings.Join(problems, "; "))
	}
	return r, true, nil
}

const untilForm = `write it as "ci < 5%", "ci(publish.p99) < 5%" or "ci(publish.p99) < 5% at 90%"`

var untilPattern = regexp.MustCompile(`^\s*ci\s*(?:\(([^()]*)\)\s*)?<\s*(\S+?)\s*%\s*(?:at\s+(\S+?)\s*%\s*)?$`)

// ParseStopRule parses "ci(VALUE) < N% at C%". The value and the confidence are optional. The error names all
// mistakes. metrics are those of the run.
func ParseStopRule(text string, metrics plan.Metrics) (plan.StopRule, error) {
	u := plan.StopRule{Rule: text}
	m := untilPattern.FindStringSubmatch(text)
	if m == nil {
		return u, fmt.Errorf("%q is no condition for the end of repetitions; %s", text, untilForm)
	}
	var problems []string
	if strings.Contains(text, "(") {
		u.Value = strings.TrimSpace(m[1])
		if why := notAValue(u.Value, metrics); why != "" {
			problems = append(problems, why)
		}
	}
	within, confidence, wrong := percentages(m[2], "the maximum deviation of the median", m[3])
	u.Within, u.Confidence = within, confidence
	if problems = append(problems, wrong...); problems != nil {
		return u, errors.New(strings.Join(problems, "; "))
	}
	return u, nil
}

// percentages parses an effect and a confidence in percent, and returns them as fractions. An empty confidence is the
// default. what describes the effect in errors.
func percentages(effect, what, confidence string) (e, c float64, wrong []string) {
	parse := func(text string, above, example float64, what string) float64 {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n > above && n < 100) {
			wrong = append(wrong, fmt.Sprintf("%s%% is not between %g%% and 100%%; give %s, for example %g%%", text, above,
				what, example))
			return 0
		}
		return n / 100
	}
	e, c = parse(effect, 0, 5, what), plan.DefaultConfidence
	if confidence != "" {
		c = parse(confidence, 50, 95, "a confidence")
	}
	return e, c, wrong
}

// notAValue returns why a name is not that of a value with a number; empty if it is.
func notAValue(name string, metrics plan.Metrics) string {
	info, known := metrics.ValueNamed(name)
	switch {
	case known && info.Unit != plan.Text:
		return ""
	case known:
		return fmt.Sprintf("%s is no single number; take publish.rate or consume.rate", name)
	}
	names := metrics.Names()
	_, plain := plan.SplitGroup(name)
	return fmt.Sprintf("unknown value %q", name) + plan.DidYouMean(plain, names) +
		" (docs/reference/values.md lists them: " + strings.Join(slices.Compact(names[:3]), ", ") + ", …)"
}
