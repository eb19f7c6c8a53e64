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
	schemaField      = regexp.MustCompile(`^\t("?[\w-]+"?)([!?]?): *(.*?)(?: @default\((.*)\))?(?: @sets\(.*\))?$`)
)

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
	for _, field := range []string{"`measure`", "`require`", "`idle`"} {
		if !strings.Contains(text, field) {
			t.Errorf("the reference lacks %s", field)
		}
	}
}

// minimal is the matrix at the beginning of the reference. TestDocsMatrices of test/repo checks it.
const minimal = `name: "mine"
brokers: {
	rabbit: {driver: "rabbitmq", options: url: "amqp://guest:guest@localhost:5672/"}
	kafka: {driver: "kafka", options: brokers: ["localhost:9092"]}
}
axes: {
	broker: ["rabbit", "kafka"]
	mode: ["confirm-window", "confirm-each"]
	threads: [1, 4]
}
`

// documented returns a section of each definition of the schema, with a list of its fields.
func documented(schema string) string {
	var b strings.Builder
	b.WriteString("# Matrices\n\nA matrix is a CUE file whose top level is a `Matrix`.\nThis one has eight cells:\n\n```cue\n" +
		minimal + "```\n\nEach section below describes a type. Required fields are marked; all others are optional.\n" +
		"This page is generated from schema/schema.cue. `ctl explain` prints that schema, with the options of every driver.\n" +
		"`ctl explain publishers.maxInFlight` describes one field.\n")
	var comment []string
	inside := false
	for _, line := range strings.Split(schema, "\n") {
		trimmed := strings.TrimSpace(line)
		switch m := schemaDefinition.FindStringSubmatch(line); {
		case strings.HasPrefix(trimmed, "//"):
			comment = append(comment, strings.TrimSpace(strings.TrimPrefix(trimmed, "//")))
			continue
		case m != nil && m[2] == "{":
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", m[1], strings.Join(comment, " "))
			inside = true
		case m != nil:
			fmt.Fprintf(&b, "\n## %s\n\n%s. In CUE: `%s`.\n", m[1], strings.TrimSuffix(strings.Join(comment, " "), "."), m[2])
		case line == "}":
			inside = false
		case inside:
			documentField(&b, line, strings.Join(comment, " "))
		}
		comment = nil
	}
	return b.String()
}

// documentField writes the line of a field: its name, its type, its default and its comment.
func documentField(b *strings.Builder, line, comment string) {
	m := schemaField.FindStringSubmatch(line)
	if m == nil {
		return
	}
	kind := "`" + m[3] + "`"
	if name, is := strings.CutPrefix(m[3], "#"); is && !strings.Contains(name, " ") {
		kind = fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name))
	}
	if m[2] == "!" {
		kind += ", required"
	}
	if m[4] != "" {
		kind += ", default `" + m[4] + "`"
	}
	fmt.Fprintf(b, "- **`%s`** (%s): %s\n", m[1], kind, comment)
}
