package cli

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
)

// compareReference compares a page of docs/reference with its generated text. -update writes it.
func compareReference(t *testing.T, page, text string) {
	t.Helper()
	file := filepath.Join("../../docs/reference", page)
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
		t.Errorf("docs/reference/%s differs from the code; update it: go test ./internal/cli -run TestReference -update", page)
	}
}

// subcommands matches the lines of a help text that list commands.
var subcommands = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) +[A-Z]`)

// connection matches the flags that select a fleet. The reference shows them once, before the commands.
var connection = regexp.MustCompile(`(?m)^ +--(ca|cert|context|creds|key|server) .*\n( {16,}\S.*\n)*`)

// TestReferenceOfCommands proves that docs/reference/cli.md contains the help of every command.
func TestReferenceOfCommands(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Commands\n\nGenerated from the help texts of the programs (`--help`).\n" +
		"The packages install the same as man pages: `man ctl`.\n" +
		"See also [exit codes](exit-codes.md) and [environment variables](environment.md).\n\n" +
		"## Connection flags\n\n\"connection flags\" in the help of a command of ctl stands for these flags:\n\n```text\n")
	attach := helpOf(t, "ctl", []string{"runs", "attach"})
	b.WriteString(strings.Join(connection.FindAllString(attach, -1), "") + "```\n")
	for _, program := range []string{"ctl", "lockstep-controller", "lockstep-agent"} {
		document(t, &b, program, nil)
	}
	compareReference(t, "cli.md", b.String())
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		if !c.IsAvailableCommand() || c.Name() == "completion" || c.Name() == "help" {
			return
		}
		if !strings.Contains(b.String(), "\n## "+c.CommandPath()+"\n") {
			t.Errorf("the reference lacks the command %s", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	for _, root := range Commands() {
		check(root)
	}
}

// helpOf returns the help of a command.
func helpOf(t *testing.T, program string, path []string) string {
	t.Helper()
	run := map[string]func(context.Context, []string, io.Reader, io.Writer, io.Writer) int{"ctl": Ctl,
		"lockstep-controller": Controller, "lockstep-agent": Agent}[program]
	var out, faults bytes.Buffer
	if code := run(t.Context(), append(append([]string{}, path...), "--help"), nil, &out, &faults); code != 0 {
		t.Fatalf("%s %s --help: %d\n%s", program, strings.Join(path, " "), code, &faults)
	}
	return out.String()
}

// document writes the help of a command and of its subcommands, without the flag --help.
func document(t *testing.T, b *strings.Builder, program string, path []string) {
	t.Helper()
	out := helpOf(t, program, path)
	name := strings.Join(append([]string{program}, path...), " ")
	for line := range strings.Lines(out) {
		if display.Width(strings.TrimRight(line, "\n")) > 100 {
			t.Errorf("help of %s: a line has more than 100 columns: %s", name, line)
		}
	}
	if i := strings.Index(out, ": - "); i >= 0 {
		t.Errorf("help of %s: the lines of a list are joined: %s", name, out[i:min(len(out), i+60)])
	}
	text := regexp.MustCompile(`(?m)^  -h, --help .*\n`).ReplaceAllString(out, "")
	if shorter := connection.ReplaceAllString(text, ""); program == "ctl" && strings.Count(text, "[$LOCKSTEP_") > 4 {
		before, after, _ := strings.Cut(shorter, "\nFlags:\n")
		text = before + "\nFlags:\n      connection flags\n" + after
	}
	text = regexp.MustCompile(`\nFlags:\n(\n|$)`).ReplaceAllString(text, "\n")
	text = regexp.MustCompile(`\nUse "[^\n]*" for more information about a command.\n`).ReplaceAllString(text, "")
	fmt.Fprintf(b, "\n## %s\n\n```text\n%s\n```\n", name, strings.TrimSpace(text))
	_, list, any := strings.Cut(out, "Available Commands:\n")
	if any {
		list, _, _ = strings.Cut(list, "\n\n")
	} else if len(path) == 0 { // the commands of ctl are in groups
		_, list, _ = strings.Cut(out, "Usage:\n")
		list, _, _ = strings.Cut(list, "\nFlags:\n")
	}
	for _, m := range subcommands.FindAllStringSubmatch(list, -1) {
		if m[1] != "help" && m[1] != "completion" {
			document(t, b, program, append(append([]string{}, path...), m[1]))
		}
	}
}

// TestReferenceOfExitCodes proves that docs/reference/exit-codes.md contains the exit codes with their comments.
func TestReferenceOfExitCodes(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "cli.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	text := "# Exit codes\n\nGenerated from `internal/cli/cli.go`.\n\n| code | meaning |\n|---|---|\n"
	ast.Inspect(file, func(n ast.Node) bool {
		if v, is := n.(*ast.ValueSpec); is && strings.HasPrefix(v.Names[0].Name, "Exit") {
			text += fmt.Sprintf("| %s | %s |\n", v.Values[0].(*ast.BasicLit).Value, strings.TrimSpace(v.Comment.Text()))
		}
		return true
	})
	compareReference(t, "exit-codes.md", text+"\nThese are the exit codes of ctl. "+
		"Controllers and agents use 0, 1, 2 and 130.\nThe help of a command lists the codes that it uses: `ctl run --help`.\n")
}

// TestReferenceOfFlags proves that docs/reference/flags.md contains every flag with its meaning and a remedy.
func TestReferenceOfFlags(t *testing.T) {
	text := "# Flags\n\nA flag in the last column of a row marks numbers that may not be properties of the broker.\n" +
		"The tables of a run omit `shared-host`: a line above them names its cells.\n" +
		"Generated from the texts below the tables. `ctl explain NAME` prints the meaning and the remedy of one flag.\n" +
		"[How to measure a broker honestly](../concepts/honest.md) describes how they are detected.\n\n" +
		"| flag | meaning | remedy | used in comparisons between runs |\n|---|---|---|---|\n"
	for _, f := range plan.Flags() {
		meaning, remedy := report.Meaning(f)
		used := "yes"
		if f.Incomparable() {
			used = "no"
		}
		if meaning == "" || remedy == "" {
			t.Errorf("flag %s: no meaning or no remedy", f)
		}
		text += fmt.Sprintf("| `%s` | %s | %s | %s |\n", f, meaning, remedy, used)
	}
	text += "\nThe same column has these words for a whole row. A note below the table gives the reason.\n\n" +
		"| word | meaning |\n|---|---|\n"
	for _, state := range report.States {
		text += fmt.Sprintf("| `%s` | %s |\n", state[0], state[1])
	}
	compareReference(t, "flags.md", text)
}

// otherVariables are the environment variables that no flag names.
var otherVariables = []struct{ names, programs, meaning string }{
	{"LOCKSTEP_TOKEN", "all", "token that the control plane requires"},
	{"LOCKSTEP_USER, LOCKSTEP_PASSWORD", "all", "user and password that the control plane requires"},
	{"INFLUX_URL, INFLUX_ORG, INFLUX_BUCKET, INFLUX_TOKEN", "ctl, lockstep-controller",
		"InfluxDB to which points are written. INFLUX_HOST, or the names with INFLUXDB_V2_, are the same"},
	{"NO_COLOR", "ctl", "disables colours, if it is set"},
	{"XDG_CONFIG_HOME", "ctl", "folder of lockstep/contexts.json (default ~/.config)"},
	{"XDG_STATE_HOME", "ctl", "folder of lockstep/created-runs (default ~/.local/state)"},
	{"LOCKSTEP_CLOCK", "all", "for tests only: wrong clock of the process"},
}

// TestReferenceOfEnvironment proves that docs/reference/environment.md contains every environment variable.
func TestReferenceOfEnvironment(t *testing.T) {
	rows := map[string][]string{} // the programs, by the other cells of the row
	inHelp, preset := regexp.MustCompile(` \[\$([A-Z_]+)\]`), regexp.MustCompile(` \(default[^)]*\)`)
	for _, root := range Commands() {
		var visit func(c *cobra.Command)
		visit = func(c *cobra.Command) {
			c.LocalFlags().VisitAll(func(f *pflag.Flag) {
				_, usage := pflag.UnquoteUsage(f)
				for _, m := range inHelp.FindAllStringSubmatch(usage, -1) {
					row := fmt.Sprintf("| `%s` | PROGRAMS | `--%s` | %s |\n", m[1], f.Name, strings.ReplaceAll(
						preset.ReplaceAllString(inHelp.ReplaceAllString(usage, ""), ""), "|", "\\|"))
					if !slices.Contains(rows[row], root.Name()) {
						rows[row] = append(rows[row], root.Name())
					}
				}
			})
			for _, sub := range c.Commands() {
				visit(sub)
			}
		}
		visit(root)
	}
	text := "# Environment variables\n\nGenerated from the flags of the programs.\n" +
		"A flag on the command line has precedence over its variable.\n" +
		"Variables of repeatable flags contain a list, separated by commas or white space.\n\n" +
		"| variable | programs | flag | meaning |\n|---|---|---|---|\n"
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		text += strings.Replace(row, "PROGRAMS", strings.Join(rows[row], ", "), 1)
	}
	for _, v := range otherVariables {
		text += fmt.Sprintf("| `%s` | %s | | %s |\n", strings.ReplaceAll(v.names, ", ", "`, `"), v.programs, v.meaning)
	}
	text += "\nHooks receive variables of their own: see [Hooks](schedules.md#hooks).\n"
	for _, name := range variablesRead(t) {
		if !strings.Contains(text, "`"+name+"`") && name != "USER" && name != hookDirectory {
			t.Errorf("internal reads the variable %s, which the reference lacks", name)
		}
	}
	compareReference(t, "environment.md", text)
}

// variablesRead returns the variables that the packages of internal read by a literal name.
func variablesRead(t *testing.T) (names []string) {
	t.Helper()
	read := regexp.MustCompile(`os\.(?:Getenv|LookupEnv)\("([A-Z_]+)"\)`)
	files, err := filepath.Glob("../*/*.go")
	if err != nil || len(files) < 100 {
		t.Fatalf("found %d files, %v", len(files), err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range read.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	if len(names) < 8 {
		t.Errorf("only %d variables were found: %q", len(names), names)
	}
	return names
}
