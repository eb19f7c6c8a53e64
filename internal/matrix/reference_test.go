package matrix

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/schema"
)

var (
	schemaDefinition = regexp.MustCompile(`^#(\w+): *(.*)$`)
	schemaField      = regexp.MustCompile(`^\t("?[\w-]+"?|\[string\])([!?]?): *(.*?)(?: @default\((.*)\))?(?: @sets\(.*\))?$`)
	// sentenceEnd matches the end of a sentence and the beginning of the next one.
	sentenceEnd = regexp.MustCompile("([^ .][.]) ([A-Z0-9\"{`])")
)

// places are the paths of types in a matrix, as "ctl explain" uses them. Headings of fields begin with them. Fields of
// other types have the name of the type.
var places = map[string]string{"Matrix": "", "Axes": "axes.", "Repeat": "repeat.", "Random": "order.", "Broker": "brokers.NAME.",
	"Process": "brokers.NAME.process.", "Influx": "influx.", "Cell": "cell.", "Publishers": "publishers.", "Stage": "publishers.profile.",
	"Lifetime": "publishers.lifetime.", "Batch": "publishers.batch.", "Consumers": "consumers.", "Spread": "consumers.process.",
	"Topology": "topology.", "Churn": "topology.churn.", "Message": "message.", "SizeRange": "message.size.", "Payload": "message.payload.",
	"Keys": "message.keys.", "Steady": "steady.", "Search": "search.", "Fault": "faults.", "Retry": "retry.", "Rule": "require.",
	"Group": "groups.NAME.", "Network": "network.", "Drain": "drain.", "Table": "tables."}

// TestReferenceOfMatrices proves that docs/reference/matrix.md contains the schema's comment of every field.
func TestReferenceOfMatrices(t *testing.T) {
	const file = "../../docs/reference/matrix.md"
	text := documented(schema.Source)
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(kept) != text {
		t.Error("docs/reference/matrix.md differs from the schema; run: go test ./internal/matrix -run TestReference -update")
	}
	checkFieldHeadings(t, text)
}

// checkFieldHeadings checks that the heading of each field is unique, and that "ctl explain" describes the field by it.
func checkFieldHeadings(t *testing.T, text string) {
	t.Helper()
	seen, explained := map[string]bool{}, 0
	for _, m := range regexp.MustCompile(`(?m)^##+ (.*)$`).FindAllStringSubmatch(text, -1) {
		heading := strings.ToLower(strings.ReplaceAll(m[1], ".", "")) // as in the anchor
		if seen[heading] {
			t.Errorf("two headings have the anchor of %s", m[1])
		}
		seen[heading] = true
		if !strings.HasPrefix(m[0], "### ") || strings.HasSuffix(m[1], ".NAME") || m[1][0] >= 'A' && m[1][0] <= 'Z' {
			continue // a type, a field of any name, or a field of a file that is no matrix
		}
		if _, known := Explain(m[1]); !known {
			t.Errorf("ctl explain %s: no such field", m[1])
		}
		explained++
	}
	if explained < 150 || !seen["publishersrate"] || !seen["requirerule"] {
		t.Errorf("only %d fields were looked up", explained)
	}
}

// minimal is the matrix at the beginning of the reference. TestDocsMatrices of test/repo checks it.
const minimal = `name: "mine"
brokers: {
	rabbit: {driver: "rabbitmq", options: url: "amqp://guest:guest@localhost:5672/"}
	kafka: {driver: "kafka", options: {brokers: ["localhost:9092"], partitions: 4}}
}
axes: {
	broker: ["rabbit", "kafka"]
	mode: ["confirm-window", "confirm-each"]
	threads: [1, 4]
}
`

// importing describes the import of the schema, with ' for back-quotes. TestSchemaCanBeImported of package matrices
// follows it.
const importing = `
## Editors and cue vet

With the schema, the language server of CUE completes and describes the fields of a matrix, and 'cue vet' validates them.
A copy of the schema makes it importable in the folder of your matrices (CUE 0.15 or later):

'''sh
cue mod init matrices.example
mkdir -p cue.mod/pkg/lockstep.test/schema
ctl explain >cue.mod/pkg/lockstep.test/schema/schema.cue
'''

Begin the matrix with these lines.
'explicitopen' makes CUE reject unknown fields.

'''cue
@experiment(explicitopen)

package mine

import "lockstep.test/schema"

schema.#Matrix

name: "mine"
brokers: nats: {driver: "nats", options: embedded: true}
axes: rate: [100, 1000]
cell: {
	axis: _
	publishers: {rate: axis.rate, persistent: false}
}
'''

In a clone of Lockstep, the import needs no copy.
Fields that depend on an axis are incomplete, which '-c=false' allows:

'''sh
cue vet -c=false mine.cue
'''

'ctl vet' also validates each combination of axis values, the options of drivers, and rules.
`

// documented returns a section of each definition of the schema, with a section of each of its fields.
func documented(schema string) string {
	var b strings.Builder
	b.WriteString("# Matrices\n\nA matrix is a CUE file whose top level is a `Matrix`.\nThis one has eight cells:\n\n```cue\n" +
		minimal + "```\n\nEach section below describes a type, and each of its subsections a field.\n" +
		"The heading of a field is its path, which `ctl explain` accepts: `ctl explain publishers.rate`.\n" +
		"Required fields are marked; all others are optional.\n" +
		"This page is generated from schema/schema.cue. `ctl explain` prints that schema, with the options of every driver.\n" +
		strings.ReplaceAll(importing, "'", "`"))
	var comment []string
	inside := ""
	for _, line := range strings.Split(schema, "\n") {
		trimmed := strings.TrimSpace(line)
		switch m := schemaDefinition.FindStringSubmatch(line); {
		case strings.HasPrefix(trimmed, "//"):
			comment = append(comment, strings.TrimSpace(strings.TrimPrefix(trimmed, "//")))
			continue
		case m != nil && m[2] == "{":
			fmt.Fprintf(&b, "\n## %s (type)\n\n%s", m[1], paragraphs(comment))
			inside = m[1]
		case m != nil:
			text := strings.TrimSuffix(strings.Join(comment, " "), ".") + "."
			fmt.Fprintf(&b, "\n## %s (type)\n\n%s\nIn CUE: `%s`.\n", m[1], strings.ToUpper(text[:1])+text[1:], m[2])
		case line == "}":
			inside = ""
		case inside != "":
			documentField(&b, inside, line, comment)
		}
		comment = nil
	}
	return b.String()
}

// paragraphs returns a comment with each sentence on its own line, and at most three sentences in a paragraph.
func paragraphs(comment []string) string {
	var b strings.Builder
	for i, line := range strings.Split(sentenceEnd.ReplaceAllString(strings.Join(comment, " "), "$1\n$2"), "\n") {
		if i > 0 && i%3 == 0 {
			b.WriteString("\n")
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// documentField writes the section of a field: its path, its type, its default and its comment.
func documentField(b *strings.Builder, definition, line string, comment []string) {
	m := schemaField.FindStringSubmatch(line)
	if m == nil {
		return
	}
	place, known := places[definition]
	if !known {
		place = definition + "."
	}
	kind := "`" + m[3] + "`"
	if name, is := strings.CutPrefix(m[3], "#"); is && !strings.Contains(name, " ") {
		kind = fmt.Sprintf("[%s](#%s-type)", name, strings.ToLower(name))
	}
	if m[2] == "!" {
		kind += ", required"
	}
	if m[4] != "" {
		kind += ", default `" + m[4] + "`"
	}
	fmt.Fprintf(b, "\n### %s%s\n\n%s\n", place, strings.Replace(strings.Trim(m[1], `"`), "[string]", "NAME", 1), kind)
	if len(comment) > 0 {
		fmt.Fprintf(b, "\n%s", paragraphs(comment))
	}
}
