package matrix

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"lockstep/schema"
)

var (
	schemaDefinition = regexp.MustCompile(`^#(\w+): *(.*)$`)
	schemaField      = regexp.MustCompile(`^\t("?[\w-]+"?)([!?]?): *(.*?)(?: @default\((.*)\))?(?: @sets\(.*\))?$`)
)

// TestReferenceOfMatrices proves that docs/matrix.md contains the schema's comment of every field.
func TestReferenceOfMatrices(t *testing.T) {
	const file = "../../docs/matrix.md"
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
		t.Error("docs/matrix.md differs from the schema; run: go test ./internal/matrix -run TestReferenceOfMatrices -update")
	}
	for _, field := range []string{"`measure`", "`require`", "`idle`"} {
		if !strings.Contains(text, field) {
			t.Errorf("the reference lacks %s", field)
		}
	}
}

// documented returns a table of each definition of the schema.
func documented(schema string) string {
	var b strings.Builder
	b.WriteString("# Matrices\n\nA matrix is a CUE file whose top level is a `Matrix`.\n" +
		"Fields with `!` are required; all others are optional.\n" +
		"This page is generated from schema/schema.cue. `ctl explain` prints that schema, with the options of every driver.\n")
	var comment []string
	inside := false
	for _, line := range strings.Split(schema, "\n") {
		trimmed := strings.TrimSpace(line)
		switch m := schemaDefinition.FindStringSubmatch(line); {
		case strings.HasPrefix(trimmed, "//"):
			comment = append(comment, strings.TrimSpace(strings.TrimPrefix(trimmed, "//")))
			continue
		case m != nil && m[2] == "{":
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| field | values | default | |\n|---|---|---|---|\n", m[1],
				strings.Join(comment, " "))
			inside = true
		case m != nil:
			fmt.Fprintf(&b, "\n## %s\n\n%s. In CUE: `%s`.\n", m[1], strings.TrimSuffix(strings.Join(comment, " "), "."), m[2])
		case line == "}":
			inside = false
		case inside:
			documentField(&b, line, comment)
		}
		comment = nil
	}
	return b.String()
}

func documentField(b *strings.Builder, line string, comment []string) {
	m := schemaField.FindStringSubmatch(line)
	if m == nil {
		return
	}
	preset := m[4]
	if preset != "" {
		preset = "`" + preset + "`"
	}
	quoted := strings.NewReplacer("|", "\\|").Replace
	fmt.Fprintf(b, "| `%s%s` | `%s` | %s | %s |\n", m[1], strings.TrimSuffix(m[2], "?"), quoted(m[3]), quoted(preset),
		quoted(strings.Join(comment, " ")))
}
