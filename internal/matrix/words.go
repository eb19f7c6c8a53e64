package matrix

import (
	"strconv"
	"strings"

	"cuelang.org/go/cue"
)

// definition is the name of the definition that v is a reference to, and what its comment says.
func definition(v cue.Value) (name, doc string) {
	root, path := v.ReferencePath()
	sels := path.Selectors()
	if len(sels) == 0 || !sels[len(sels)-1].LabelType().IsDefinition() {
		return "", ""
	}
	return sels[len(sels)-1].String(), comment(root.LookupPath(path))
}

// comment is the text of the comment before a field or a definition, on one line.
func comment(v cue.Value) string {
	var lines []string
	for _, group := range v.Doc() {
		lines = append(lines, strings.Fields(group.Text())...)
	}
	return strings.Join(lines, " ")
}

// allowed says in words what the rule allows.
func (r *rule) allowed() string {
	if r.words != "" && len(r.arms) > 0 && r.object == nil {
		return r.words
	}
	var names, others []string
	for _, a := range r.arms {
		if len(a.equal) > 0 {
			names = appendNew(names, quote(a.equal[0]))
		} else {
			others = appendNew(others, a.describe())
		}
	}
	if len(names) == 2 && names[0] == "true" || len(names) == 1 && len(others) == 1 && strings.Contains(others[0], "true") {
		names, others = nil, []string{"true or false"}
	}
	if r.words != "" {
		others, names = []string{r.words}, nil
	}
	if r.object != nil {
		others = append(others, r.object.describe())
	}
	switch {
	case r.elem != nil && r.filled:
		others = append(others, "a list that is not empty")
	case r.elem != nil:
		others = append(others, "a list")
	}
	switch {
	case len(names) == 1 && len(others) == 0:
		return names[0]
	case len(names) > 0 && len(others) == 0:
		return "one of " + strings.Join(names, ", ")
	case len(names)+len(others) == 0: // no rule could hold it: as it is written
		return "a value " + show(r.value)
	}
	return strings.Join(append(names, others...), ", or ")
}

func (o *object) describe() string {
	if o.rest != nil {
		return "a struct {name: …}"
	}
	return "a struct {" + strings.Join(o.names, ", ") + "}"
}

func (a arm) describe() string {
	word := map[cue.Kind]string{cue.IntKind: "a whole number", cue.StringKind: "a string", cue.BoolKind: "true or false"}[a.kind]
	switch {
	case word == "":
		word = "a number"
	case a.kind == cue.StringKind && len(a.patterns) > 0:
		word += " that matches " + a.patterns[0].String()
	}
	if len(a.unequal) > 0 {
		word += " other than " + quote(a.unequal[0])
	}
	switch {
	case a.least != nil && a.most != nil:
		word += " from " + plainNumber(*a.least) + " to " + plainNumber(*a.most)
	case a.least != nil && a.above:
		word += " above " + plainNumber(*a.least)
	case a.least != nil:
		word += ", at least " + plainNumber(*a.least)
	case a.most != nil:
		word += ", at most " + plainNumber(*a.most)
	}
	return word
}

func plainNumber(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func quote(x any) string {
	switch x := x.(type) {
	case string:
		return strconv.Quote(x)
	case float64:
		return plainNumber(x)
	case bool:
		return strconv.FormatBool(x)
	}
	return "?"
}

func appendNew(list []string, s string) []string {
	for _, x := range list {
		if x == s {
			return list
		}
	}
	return append(list, s)
}

// choices are the strings that the rule lists, for suggestions.
func (r *rule) choices() []string {
	var out []string
	for _, a := range r.arms {
		if a.duration {
			return nil
		}
		for _, x := range a.equal {
			if s, ok := x.(string); ok {
				out = appendNew(out, s)
			}
		}
	}
	return out
}
