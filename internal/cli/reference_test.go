package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"lockstep/internal/display"
)

// subcommands matches the lines of a help text that list commands.
var subcommands = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) {2,}\S`)

// TestReferenceOfCommands proves that docs/cli.md contains the help of every command.
func TestReferenceOfCommands(t *testing.T) {
	const file = "../../docs/cli.md"
	var b strings.Builder
	b.WriteString("# Commands\n\nGenerated from the help texts of the programs (`--help`) by a test.\nThe packages install the same as man pages: `man lockstep-ctl`.\n\nExit codes of ctl:\n\n- 0: success\n- 1: another error\n- 2: errors of the matrix or command line\n- 3: a cell failed or is invalid\n- 4: too few agents\n" +
		"- 5: a rule is violated\n- 6: a bundle was altered\n- 7: worse (`--fail-on-regression`)\n- 8: a rule is inconclusive\n- 130: interrupted\n")
	for _, program := range []string{"ctl", "controller", "agent"} {
		document(t, &b, program, nil)
	}
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(kept) != b.String() {
		t.Error("docs/cli.md differs from the help of the programs; update it: go test ./internal/cli -run TestReferenceOfCommands -update")
	}
}

// document writes the help of a command and of its subcommands.
func document(t *testing.T, b *strings.Builder, program string, path []string) {
	t.Helper()
	run := map[string]func(context.Context, []string, io.Reader, io.Writer, io.Writer) int{"ctl": Ctl,
		"controller": Controller, "agent": Agent}[program]
	name := strings.Join(append([]string{program}, path...), " ")
	var out, faults bytes.Buffer
	if code := run(t.Context(), append(append([]string{}, path...), "--help"), nil, &out, &faults); code != 0 {
		t.Fatalf("%s %s --help: %d\n%s", program, strings.Join(path, " "), code, &faults)
	}
	for line := range strings.Lines(out.String()) {
		if display.Width(strings.TrimRight(line, "\n")) > 100 {
			t.Errorf("help of %s: a line has more than 100 columns: %s", name, line)
		}
	}
	fmt.Fprintf(b, "\n## %s\n\n```text\n%s\n```\n", name, strings.TrimSpace(out.String()))
	_, list, any := strings.Cut(out.String(), "Available Commands:\n")
	if any {
		list, _, _ = strings.Cut(list, "\n\n")
	} else if len(path) == 0 { // the commands of ctl are in groups
		_, list, _ = strings.Cut(out.String(), "Usage:\n")
		list, _, _ = strings.Cut(list, "\nFlags:\n")
	}
	for _, m := range subcommands.FindAllStringSubmatch(list, -1) {
		if m[1] != "help" && m[1] != "completion" {
			document(t, b, program, append(append([]string{}, path...), m[1]))
		}
	}
}
