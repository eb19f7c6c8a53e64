package translate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Defaults of PerfTest.
const (
	perfURI = "amqp://localhost"
	// perfWindow is the maximum number of messages in flight per publisher where PerfTest has no limit (confirm: 0).
	perfWindow = 100_000
	// perfCounted is the maximum duration of a measurement by count.
	perfCounted = "10m"
	// perfFactors are the fractions of the highest rate at which rate-vs-latency measures after it has found that rate.
	perfFactors = "0.01, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.96, 0.97, 0.98, 0.99, 1, 1.01, 1.02, 1.03, 1.04, 1.05"
)

// PerfTest translates a scenario file of RabbitMQ PerfTest's HTML tools (PerfTestMulti). Errors have type Errors.
func PerfTest(scenarios File) (*Result, error) {
	r := &report{}
	runs := readScenarios(scenarios, r)
	from := fmt.Sprintf("A matrix from RabbitMQ PerfTest's scenario file %s, by ctl import perftest.",
		base(scenarios.Name))
	stem, _, _ := strings.Cut(base(scenarios.Name), ".")
	return r.result(func(lost []Lost) string { return matrix(from, lost, perfFields(name(stem, "perftest"), runs)) })
}

// readScenarios reads the file and returns its measurements, in order.
func readScenarios(f File, r *report) []run {
	v, ok := read(f, r)
	if !ok {
		return nil
	}
	if !v.isList || len(v.list) == 0 {
		r.invalid(f.Name, v.line, "the file is %s; give a list of scenarios", v.describe())
		return nil
	}
	var runs []run
	seen := map[string]int{}
	for i, one := range v.list {
		if one.table == nil {
			r.invalid(f.Name, one.line, "scenario %d is %s; give keys and values", i+1, one.describe())
			continue
		}
		one.table.path = ""
		s := readScenario(one.table)
		if first, twice := seen[s.name]; twice && s.name != "" {
			r.invalid(f.Name, one.line, "scenario %q is duplicated: first in line %d", s.name, first)
		}
		seen[s.name] = one.line
		runs = append(runs, s.runs()...)
	}
	return runs
}

// scenario is one scenario of the file.
type scenario struct {
	table           *table
	name, kind, uri string
	params          []*table
	variables       []variable
}

// variable is a parameter with several values.
type variable struct {
	entry  *entry // the key with its values
	name   string
	values []value
}

func readScenario(t *table) *scenario {
	s := &scenario{table: t, name: name(t.text("name", ""), "")}
	if s.name == "" {
		t.fail("a scenario without a name")
	}
	s.kind = t.text("type", "")
	s.uri = t.text("uri", perfURI)
	remarkPassword(t, "uri", s.uri)
	t.lose("interval", "metrics are recorded every second")
	s.readParams(t)
	switch s.kind {
	case "simple":
		t.lose("variables", "PerfTest ignores them in a simple scenario")
	case "varying":
		s.readVariables(t)
	case "rate-vs-latency":
		t.lose("variables", "PerfTest ignores them in a rate-vs-latency scenario")
		t.remark("type",
			"PerfTest first measures the highest rate, then shares of it; here only the first step is measured, without a rate limit. "+
				"For the second step, set publishers.rate to "+perfFactors+" of the measured rate")
		if len(s.params) > 1 {
			s.params = s.params[:1]
		}
	default:
		t.fail("type %q is not one of simple, varying and rate-vs-latency", s.kind)
	}
	t.rest("a scenario")
	return s
}

func (s *scenario) readParams(t *table) {
	e := t.take("params")
	if e == nil || !e.value.isList || len(e.value.list) == 0 {
		t.fail("scenario %q has no params: give a list of at least one set of parameters", s.name)
		return
	}
	for i, one := range e.value.list {
		if one.table == nil {
			t.report.invalid(t.file, one.line, "set %d of params is %s; give keys and values", i+1,
				one.describe())
			continue
		}
		one.table.rename()
		if s.kind == "rate-vs-latency" && i > 0 {
			for _, unused := range one.table.keys {
				one.table.drop(unused,
					"PerfTest uses only the first set of parameters in a rate-vs-latency scenario")
			}
			continue
		}
		s.params = append(s.params, one.table)
	}
}

// aliases map alternative names of parameters to PerfTest's names.
var aliases = map[string]string{"body": "bodyFiles", "rate": "producerRateLimit", "consumerRate": "consumerRateLimit"}

func camel(key string) string {
	parts := strings.Split(key, "-")
	for i, part := range parts[1:] {
		if part != "" {
			parts[i+1] = strings.ToUpper(part[:1]) + part[1:]
		}
	}
	joined := strings.Join(parts, "")
	if other, is := aliases[joined]; is {
		return other
	}
	return joined
}

func (s *scenario) readVariables(t *table) {
	e := t.take("variables")
	if e == nil || !e.value.isList || len(e.value.list) == 0 {
		t.fail("scenario %q is varying and has no variables", s.name)
		return
	}
	for i, one := range e.value.list {
		if one.table == nil {
			t.report.invalid(t.file, one.line, "variable %d is %s; give keys and values", i+1, one.describe())
			continue
		}
		v := one.table
		v.path = ""
		if kind := v.text("type", "multicast"); kind != "multicast" {
			v.invalid(v.find("type"), "%q is not supported: PerfTest only has multicast", kind)
		}
		vary := variable{name: camel(v.text("name", "")), entry: v.take("values")}
		switch {
		case vary.name == "":
			t.report.invalid(t.file, one.line, "a variable without a name")
		case vary.entry == nil || !vary.entry.value.isList || len(vary.entry.value.list) == 0:
			t.report.invalid(t.file, one.line, "variable %s has no values", vary.name)
		case perfLost[vary.name] != "":
			v.drop(vary.entry, "of %s: %s", vary.name, perfLost[vary.name])
		case !slices.Contains(perfKnown, vary.name):
			v.drop(vary.entry, "of %s: no known parameter of PerfTest: ignored; check the spelling", vary.name)
		default:
			vary.values = vary.entry.value.list
			s.variables = append(s.variables, vary)
		}
		v.rest("a variable")
	}
}

// maxRuns limits the measurements of one scenario.
const maxRuns = 10_000

// runs returns the measurements of a scenario: each combination of its variables, the first one outermost, with each
// set of parameters. Measurements that are equal in a matrix occur once.
func (s *scenario) runs() []run {
	n := len(s.params)
	for _, v := range s.variables {
		if n *= len(v.values); n > maxRuns {
			s.table.fail("scenario %q has more than %d combinations", s.name, maxRuns)
			return nil
		}
	}
	sets := [][]*entry{nil}
	for _, v := range s.variables {
		var next [][]*entry
		for _, set := range sets {
			for _, x := range v.values {
				e := &entry{key: v.name, name: v.name, line: x.line, value: x, done: true}
				next = append(next, append(slices.Clone(set), e))
			}
		}
		sets = next
	}
	var all []run
	seen := map[string]bool{}
	for _, set := range sets {
		for i, params := range s.params {
			one := readRun(params.with(set), s.uri)
			if one.scenario = s.name; len(s.params) > 1 {
				one.scenario += "-" + strconv.Itoa(i+1)
			}
			if text := literal(one.fields()); !seen[text] {
				seen[text] = true
				all = append(all, one)
			}
		}
	}
	if len(all) < n {
		s.table.note("scenario %s has %d measurements; %d of them differ in a matrix", s.name, n, len(all))
	}
	return all
}
