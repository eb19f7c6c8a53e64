package plan

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Literals says where text, CUE or JSON, holds a secret as it is rather than a reference such as ${env:NAME}: one line for each, with the number of its line in text
// and without the secret. A password that is its user's name is none.
func Literals(text string) []string {
	var found []string
	for i, line := range strings.Split(text, "\n") {
		for _, what := range literals(line) {
			found = append(found, fmt.Sprintf("line %d: %s", i+1, what))
		}
	}
	return found
}

func literals(text string) []string {
	var found []string
	for _, part := range userinfo.FindAllStringSubmatch(text, -1) {
		user := strings.TrimSuffix(part[1][strings.LastIndex(part[1], "/")+1:], ":")
		if part[2] != user && isLiteral(part[2]) {
			found = append(found, "the password in "+Redact(part[0]))
		}
	}
	for _, re := range fields {
		for _, part := range re.FindAllStringSubmatch(text, -1) {
			if isLiteral(part[2]) {
				found = append(found, "the text in "+Redact(part[0]))
			}
		}
	}
	return found
}

// isLiteral tells whether what stands in a secret's place is the secret itself. Text that CUE still fills in (\(name)) is judged when that is done.
func isLiteral(s string) bool {
	return s != "" && reference.FindString(s) != s && !(strings.HasPrefix(s, `\(`) && strings.HasSuffix(s, ")"))
}

// Literals says where a run that a matrix was expanded into holds secrets as they are: by broker, and in influx.
func (r Run) Literals() []string {
	var found []string
	known := map[string]bool{}
	add := func(where, text string) {
		if known[where+text] {
			return
		}
		known[where+text] = true
		for _, what := range literals(text) {
			found = append(found, where+": "+what)
		}
	}
	for _, c := range r.Cells {
		for _, b := range append(c.Brokers(), c.Broker) { // also one that only stands there, as its groups have their own
			add("brokers."+b.Name, string(b.Options))
			add("brokers."+b.Name+".via", b.Via)
		}
	}
	if r.Influx != nil {
		text, _ := json.Marshal(r.Influx) // plain strings always marshal
		add("influx", string(text))
	}
	return found
}
