package translate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// value is one value of an input with its position.
type value struct {
	line   int
	text   string  // of a scalar
	quoted bool    // a scalar that is a string because of quotes or a block
	block  int     // first line of a block of text; 0: none
	null   bool    // no value
	list   []value // of a list
	isList bool
	table  *table // of a table
}

// describe returns a description of the value for error messages.
func (v value) describe() string {
	switch {
	case v.table != nil:
		return "a table"
	case v.isList:
		return "a list"
	case v.null:
		return "nothing"
	}
	return strconv.Quote(v.text)
}

// table holds the keys of one level of an input. A key that is taken counts as used, unless it is dropped.
type table struct {
	report *report
	file   string
	path   string // path of the keys above, for messages: "producerConfig: "
	line   int
	keys   []*entry
}

type entry struct {
	key   string
	name  string // lookup name
	line  int
	value value
	done  bool // used or dropped
}

// readTable reads a file that is one table. It returns nil and reports an error otherwise.
func readTable(f File, r *report) *table {
	v, ok := read(f, r)
	if ok && v.table == nil {
		r.invalid(f.Name, v.line, "the file is %s; give keys and values", v.describe())
	}
	return v.table
}

// read reads a YAML file. This includes JSON, also with single quotes.
func read(f File, r *report) (value, bool) {
	r.files = append(r.files, f.Name)
	parsed, err := parser.ParseBytes(f.Text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var known yaml.Error
		if errors.As(err, &known) && known.GetToken() != nil {
			r.invalid(f.Name, known.GetToken().Position.Line, "%s", known.GetMessage())
		} else {
			r.invalid(f.Name, 1, "%v", err)
		}
		return value{}, false
	}
	var bodies []ast.Node
	for _, d := range parsed.Docs {
		if d.Body != nil {
			bodies = append(bodies, d.Body)
		}
	}
	switch len(bodies) {
	case 0:
		r.invalid(f.Name, 1, "the file is empty")
		return value{}, false
	case 1:
	default:
		r.invalid(f.Name, bodies[1].GetToken().Position.Line, "a second YAML document begins here; split the file")
		return value{}, false
	}
	in := reader{report: r, file: f.Name}
	return in.value(bodies[0], ""), true
}

// reader converts the nodes of the YAML library to values.
type reader struct {
	report *report
	file   string
}

func (in reader) value(n ast.Node, path string) value {
	v := value{line: n.GetToken().Position.Line}
	switch n := n.(type) {
	case *ast.AnchorNode:
		return in.value(n.Value, path)
	case *ast.TagNode:
		return in.value(n.Value, path)
	case *ast.AliasNode:
		in.report.invalid(in.file, v.line, "%san alias: write the value out", path)
		v.null = true
	case *ast.NullNode:
		v.null = true
	case *ast.MappingNode:
		v.table = in.table(v.line, n.Values, path)
	case *ast.MappingValueNode:
		v.table = in.table(v.line, []*ast.MappingValueNode{n}, path)
	case *ast.SequenceNode:
		v.isList = true
		for i, item := range n.Values {
			v.list = append(v.list, in.value(item, fmt.Sprintf("%s[%d] ", path, i)))
		}
	case *ast.LiteralNode:
		v.text, v.block, v.quoted = n.Value.Value, v.line+1, true
	case *ast.StringNode:
		v.text = n.Value
		if origin := strings.TrimSpace(n.GetToken().Origin); strings.HasPrefix(origin, `"`) ||
			strings.HasPrefix(origin, "'") {
			v.quoted = true
		}
	case ast.ScalarNode:
		v.text = n.GetToken().Value
	default:
		in.report.invalid(in.file, v.line, "%s%s: write the value out", path, n.Type())
		v.null = true
	}
	return v
}

func (in reader) table(line int, pairs []*ast.MappingValueNode, path string) *table {
	t := &table{report: in.report, file: in.file, path: path, line: line}
	for _, pair := range pairs {
		key := pair.Key.GetToken().Value
		at := pair.Key.GetToken().Position.Line
		if first := t.find(key); first != nil {
			in.report.invalid(in.file, at, "%s%s is duplicated: first in line %d", path, key, first.line)
			continue
		}
		t.keys = append(t.keys, &entry{key: key, name: key, line: at, value: in.value(pair.Value, path+key+": ")})
	}
	return t
}

// properties parses a block of text as Java properties: one key, = or :, and a value per line.
func (e *entry) properties(t *table) *table {
	inner := &table{report: t.report, file: t.file, path: t.path + e.key + ": ", line: e.line}
	first := e.value.block
	if first == 0 {
		first = e.value.line
	}
	for i, text := range strings.Split(e.value.text, "\n") {
		text = strings.TrimSpace(text)
		if text == "" || text[0] == '#' || text[0] == '!' {
			continue
		}
		at := strings.IndexAny(text, "=:")
		if at < 1 {
			t.report.invalid(t.file, first+i, "%s: give lines of key=value", e.key)
			continue
		}
		key := strings.TrimSpace(text[:at])
		inner.keys = append(inner.keys, &entry{key: key, name: key, line: first + i,
			value: value{line: first + i, text: strings.TrimSpace(text[at+1:]), quoted: true}})
	}
	return inner
}

// inner reads a key whose value is a block of properties.
func (t *table) inner(name string) *table {
	e := t.take(name)
	if e == nil {
		return &table{report: t.report, file: t.file, line: t.line}
	}
	if e.value.table != nil || e.value.isList {
		t.invalid(e, "it is %s; give lines of key=value", e.value.describe())
		return &table{report: t.report, file: t.file, line: e.line}
	}
	return e.properties(t)
}

// rename sets the lookup name of all keys to PerfTest's name: "producer-count" is producerCount.
func (t *table) rename() {
	t.path = ""
	for i, e := range t.keys {
		e.name = camel(e.key)
		for _, before := range t.keys[:i] {
			if before.name == e.name {
				t.invalid(e, "it is duplicated: first in line %d", before.line)
			}
		}
	}
}

// with returns a table in which some keys have other values.
func (t *table) with(others []*entry) *table {
	inner := &table{report: t.report, file: t.file, line: t.line, keys: slices.Clone(others)}
	for _, e := range t.keys {
		if inner.find(e.name) == nil {
			inner.keys = append(inner.keys, e)
		} else if !e.done {
			t.drop(e, "the variable of the same name has priority")
		}
	}
	return inner
}

// note records a remark on the whole table, or on the file.
func (t *table) note(why string, a ...any) {
	t.report.lost = append(t.report.lost, Lost{t.file, t.line, "", fmt.Sprintf(why, a...)})
}

// fail records an error of the whole table, or of the file.
func (t *table) fail(format string, a ...any) { t.report.invalid(t.file, t.line, format, a...) }

func (t *table) find(name string) *entry {
	for _, e := range t.keys {
		if e.name == name {
			return e
		}
	}
	return nil
}

// take returns a key and marks it as used. It returns nil if the key is missing or has no value.
func (t *table) take(name string) *entry {
	e := t.find(name)
	if e == nil {
		return nil
	}
	t.use(e)
	if e.value.null {
		return nil
	}
	return e
}

// peek returns a key's text without marking the key as used; "" if it is missing.
func (t *table) peek(name string) string {
	if e := t.find(name); e != nil {
		return e.value.text
	}
	return ""
}

func (t *table) use(e *entry) {
	if !e.done {
		e.done = true
		t.report.used = append(t.report.used, fmt.Sprintf("%s:%d: %s%s", t.file, e.line, t.path, e.key))
	}
}

// lose records that a key has no counterpart, with the reason.
func (t *table) lose(name, why string, a ...any) {
	if e := t.find(name); e != nil {
		t.drop(e, why, a...)
	}
}

func (t *table) drop(e *entry, why string, a ...any) {
	e.done = true
	t.report.lost = append(t.report.lost, Lost{t.file, e.line, t.path + e.key, fmt.Sprintf(why, a...)})
}

// remark records a remark on a key that is used.
func (t *table) remark(name, why string, a ...any) {
	if e := t.find(name); e != nil {
		t.report.lost = append(t.report.lost, Lost{t.file, e.line, t.path + e.key, fmt.Sprintf(why, a...)})
	}
}

// rest drops all keys that were not used.
func (t *table) rest(of string) {
	for _, e := range t.keys {
		if !e.done {
			t.drop(e, "no known key of %s: ignored; check the spelling", of)
		}
	}
}

func (t *table) invalid(e *entry, format string, a ...any) {
	t.report.invalid(t.file, e.line, "%s%s: %s", t.path, e.key, fmt.Sprintf(format, a...))
}

// text returns a key's text, or fallback if it is missing.
func (t *table) text(name, fallback string) string {
	e := t.take(name)
	if e == nil {
		return fallback
	}
	if e.value.table != nil || e.value.isList {
		t.invalid(e, "it is %s; give text", e.value.describe())
		return fallback
	}
	return e.value.text
}

// required returns a number that must be given.
func (t *table) required(name string, minimum, maximum int64) int64 {
	if t.find(name) == nil {
		t.fail("%s%s is missing: give a number of at least %d", t.path, name, minimum)
		return minimum
	}
	return t.number(name, minimum, minimum, maximum)
}

// number returns a whole number within limits, or fallback if it is missing.
func (t *table) number(name string, fallback, minimum, maximum int64) int64 {
	e := t.take(name)
	if e == nil {
		return fallback
	}
	n, ok := e.value.whole()
	switch {
	case !ok:
		t.invalid(e, "it is %s; give a whole number", e.value.describe())
		return fallback
	case n < minimum || n > maximum:
		t.invalid(e, "%d is out of range: give %d to %d", n, minimum, maximum)
		return fallback
	}
	return n
}

// decimal returns a number within limits, which may have a fraction, or fallback if it is missing.
func (t *table) decimal(name string, fallback, minimum, maximum float64) float64 {
	e := t.take(name)
	if e == nil {
		return fallback
	}
	n, ok := e.value.real()
	if !ok || n < minimum || n > maximum {
		t.invalid(e, "it is %s; give a number from %v to %v", e.value.describe(), minimum, maximum)
		return fallback
	}
	return n
}

// yes returns a Boolean, or fallback if it is missing.
func (t *table) yes(name string, fallback bool) bool {
	e := t.take(name)
	if e == nil {
		return fallback
	}
	switch strings.ToLower(e.value.text) {
	case "true":
		return true
	case "false":
		return false
	}
	t.invalid(e, "it is %s; give true or false", e.value.describe())
	return fallback
}

// real parses a number.
func (v value) real() (float64, bool) {
	if v.table != nil || v.isList || v.null {
		return 0, false
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(v.text, "_", ""), 64)
	return n, err == nil && !math.IsInf(n, 0) && !math.IsNaN(n)
}

// whole parses a whole number, which may be written as 30.0 or 1e3.
func (v value) whole() (int64, bool) {
	n, ok := v.real()
	return int64(n), ok && n == math.Trunc(n) && math.Abs(n) < 1<<53
}
