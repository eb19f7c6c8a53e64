package translate

import (
	"errors"
	"fmt"
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
		r.invalid(f.Name, bodies[1].GetToken().Position.Line, "a second document begins here; give one file at a time")
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
