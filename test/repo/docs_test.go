package repo

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/cli"
	_ "example.org/lockstep/lockstep/pkg/drivers/all"
)

// root is the folder of the repository.
const root = "../.."

// pages returns the documentation pages of the repository, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (e.Name() == "testdata" || e.Name() == ".git") {
			return filepath.SkipDir
		}
		if !e.Type().IsRegular() || filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		texts[strings.TrimPrefix(filepath.ToSlash(path), root+"/")] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(texts) < 40 {
		t.Fatalf("only %d pages of documentation were found", len(texts))
	}
	return texts
}

var (
	links    = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	headings = regexp.MustCompile(`(?m)^#+ (.+)$`)
	mentions = regexp.MustCompile("`((?:cmd|dashboards|deploy|docs|examples|internal|matrices|pkg|test)/[A-Za-z0-9_./-]*)`")
	matrices = regexp.MustCompile(`\bmatrices/[a-z0-9-]+\.cue\b`)
	// pageBlocks finds the kind and the content of the blocks of code.
	pageBlocks = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
)

// TestDocsNameWhatIsThere proves that the targets of links, and the files, folders and matrices that pages name, exist.
func TestDocsNameWhatIsThere(t *testing.T) {
	t.Parallel()
	checked := 0
	texts := pages(t)
	for page, text := range texts {
		for _, m := range links.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			checked++
			target := filepath.ToSlash(filepath.Join(filepath.Dir(page), m[1]))
			if m[1] == "" {
				target = page
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
			} else if m[2] != "" && !slices.Contains(anchors(texts[target]), m[2]) {
				t.Errorf("%s links to %s#%s, which is no heading", page, m[1], m[2])
			}
		}
		if page == "CHANGELOG.md" || page == "docs/reference/cli.md" { // history, and the generated reference
			continue
		}
		named := matrices.FindAllString(text, -1)
		for _, m := range mentions.FindAllStringSubmatch(text, -1) {
			named = append(named, m[1])
		}
		for _, path := range named {
			if strings.Contains(path, "NAME") {
				continue
			}
			checked++
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s names %s, which is not there", page, path)
			}
		}
	}
	if checked < 200 {
		t.Errorf("only %d links and names were looked up", checked)
	}
}

// TestDocsThatTheCodeNames proves that the pages that code, messages and units name exist.
func TestDocsThatTheCodeNames(t *testing.T) {
	t.Parallel()
	checked := 0
	named := regexp.MustCompile(`\bdocs/[a-z0-9/-]+\.md\b`)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() ||
			!slices.Contains([]string{".go", ".cue", ".py", ".service", ".sh", ".yaml", ".html"}, filepath.Ext(path)) {
			return err
		}
		text, err := os.ReadFile(path)
		for _, page := range named.FindAllString(string(text), -1) {
			checked++
			if _, err := os.Stat(filepath.Join(root, page)); err != nil {
				t.Errorf("%s names %s, which is not there", path, page)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 40 {
		t.Errorf("only %d names of pages were looked up", checked)
	}
}

// anchors returns the names of a page's headings in links.
func anchors(text string) (names []string) {
	for _, m := range headings.FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// TestDocsNameTestsThatAreThere proves that the tests that CONTRIBUTING.md names exist.
func TestDocsNameTestsThatAreThere(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(code, -1) {
			there[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\bTest[A-Z][A-Za-z0-9]*…?`).FindAllString(string(text), -1)
	for _, name := range named {
		if !there[name] && !strings.HasSuffix(name, "…") {
			t.Errorf("CONTRIBUTING.md names %s, which is not there", name)
		}
	}
	if len(named) < 40 {
		t.Errorf("only %d tests were looked up", len(named))
	}
}

var (
	commands = regexp.MustCompile("(?m)(?:^|`|-- )(?:go run \\./cmd/)?(ctl|lockstep-controller|lockstep-agent)( [^`\n]*)")
	flags    = regexp.MustCompile(`(?:^| )--([a-z][a-z-]*)`)
	labs     = regexp.MustCompile(`go run \./test/lab (?:run|up|install)((?: [a-z0-9]+(?:-[a-z0-9]+)*)+)`)
)

// helps returns the help texts of docs/reference/cli.md, by command: "ctl run". A test of internal/cli compares them
// with the programs.
func helps(t *testing.T, page string) map[string]string {
	t.Helper()
	of := map[string]string{}
	for _, section := range strings.Split(page, "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		of[name] = text
	}
	if of["ctl run"] == "" || of["lockstep-agent"] == "" {
		t.Fatal("docs/reference/cli.md has no help of ctl run, or none of agent")
	}
	return of
}

// TestDocsCommands proves that the commands, flags and lab parts that pages show exist.
func TestDocsCommands(t *testing.T) {
	t.Parallel()
	texts := pages(t)
	help := helps(t, texts["docs/reference/cli.md"])
	connection := help["Connection flags"]
	parts, err := os.ReadFile("../lab/part.go")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for page, text := range texts {
		if page == "CHANGELOG.md" || page == "docs/reference/cli.md" {
			continue
		}
		for _, m := range commands.FindAllStringSubmatch(text, -1) {
			name, rest, any := command(help, m[1], m[2])
			if !any {
				continue
			}
			checked++
			for _, f := range flags.FindAllStringSubmatch(rest, -1) {
				known := help[name]
				if strings.Contains(known, "\n      connection flags\n") {
					known += connection
				}
				if f[1] != "help" && !strings.Contains(known, "--"+f[1]+" ") {
					t.Errorf("%s shows %q: %s has no flag --%s", page, m[0], name, f[1])
				}
			}
		}
		for _, m := range labs.FindAllStringSubmatch(text, -1) {
			for _, part := range strings.Fields(m[1]) {
				if part != "all" && part != "tools" && !strings.Contains(string(parts), `{Name: "`+part+`"`) {
					t.Errorf("%s shows %q: the lab has no part %s", page, m[0], part)
				}
			}
		}
	}
	if checked < 60 {
		t.Errorf("only %d commands were looked up", checked)
	}
}

// command returns the longest command that the words begin with ("ctl schedule add") and the rest (" --at 02:00 …").
// Without a subcommand, the words are prose unless a flag follows.
func command(help map[string]string, program, words string) (name, rest string, is bool) {
	words, _, _ = strings.Cut(words, " #")
	name = program
	fields := strings.Fields(words)
	for len(fields) > 0 && help[name+" "+fields[0]] != "" {
		name, fields = name+" "+fields[0], fields[1:]
	}
	rest = strings.Join(fields, " ")
	return name, rest, name != program || strings.HasPrefix(rest, "--")
}

// TestTutorialsExecuteTheirCommands proves that README and the tutorial have commands with arguments only in blocks:
// these are executed by a test.
func TestTutorialsExecuteTheirCommands(t *testing.T) {
	t.Parallel()
	inline := regexp.MustCompile("`((?:ctl|lockstep-controller|lockstep-agent) [^`\n]+)`")
	name := regexp.MustCompile(`^[a-z-]+( [a-z]+){1,2}$`)
	checked := 0
	for page, text := range pages(t) {
		if page != "README.md" && !strings.HasPrefix(page, "docs/tutorial/") {
			continue
		}
		for _, m := range inline.FindAllStringSubmatch(pageBlocks.ReplaceAllString(text, ""), -1) {
			checked++
			if !name.MatchString(m[1]) {
				t.Errorf("%s: command %q is not in a code block, so it is not executed", page, m[1])
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d commands were looked up", checked)
	}
}

// TestDocsMatrices proves that the whole matrices in the documentation are valid.
func TestDocsMatrices(t *testing.T) {
	t.Parallel()
	checked := 0
	for page, text := range pages(t) {
		for _, m := range pageBlocks.FindAllStringSubmatch(text, -1) {
			if m[1] != "cue" || !regexp.MustCompile(`(?m)\A(//.*\n)*name: `).MatchString(m[2]) {
				continue
			}
			checked++
			file := filepath.Join(t.TempDir(), "page.cue")
			if err := os.WriteFile(file, []byte(m[2]), 0o644); err != nil {
				t.Fatal(err)
			}
			if code, out := ctl(t, "vet", file); code != 0 {
				t.Errorf("%s: ctl vet exited with %d:\n%s", page, code, out)
			}
		}
	}
	if checked < 3 {
		t.Errorf("only %d matrices were checked", checked)
	}
}

// ctl runs ctl in this process.
func ctl(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	var b bytes.Buffer
	code = cli.Ctl(t.Context(), args, strings.NewReader(""), &b, &b)
	return code, b.String()
}

// TestStudies proves that the commands of docs/studies fit their matrices: it plans them.
func TestStudies(t *testing.T) {
	planned := map[string]bool{}
	texts := pages(t)
	t.Chdir(root)
	for page, text := range texts {
		if !strings.HasPrefix(page, "docs/studies/") {
			continue
		}
		for _, m := range commands.FindAllStringSubmatch(text, -1) {
			verb, rest, _ := strings.Cut(strings.TrimSpace(m[2]), " ")
			if verb != "run" && verb != "plan" || !strings.Contains(rest, ".cue") || planned[rest] {
				continue
			}
			planned[rest] = true
			rest = regexp.MustCompile(` *--server \S+| *--detach`).ReplaceAllString(" "+rest, "")
			words, err := exec.Command("sh", "-c", "printf '%s\n' "+rest).Output() // removes quotes
			if err != nil {
				t.Fatal(err)
			}
			args := append([]string{"plan"}, strings.Split(strings.TrimSpace(string(words)), "\n")...)
			if code, out := ctl(t, args...); code != 0 {
				t.Errorf("%s: ctl plan %s exited with %d:\n%s", page, rest, code, out)
			}
		}
	}
	named := strings.Join(slices.Sorted(maps.Keys(planned)), "\n")
	for _, matrix := range []string{"mqperf-2017", "async-vs-sync", "prefetch", "versions", "bindings"} {
		if !strings.Contains(named, "matrices/"+matrix+".cue") {
			t.Errorf("no page of docs/studies runs matrices/%s.cue", matrix)
		}
	}
}

var tests = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// TestDocsNameTestsOfPermissions proves that the tests in the second table of docs/reference/permissions.md exist.
func TestDocsNameTestsOfPermissions(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range tests.FindAllStringSubmatch(string(text), -1) {
			known[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(pages(t)["docs/reference/permissions.md"], "<!-- tested -->\n")
	table, _, _ = strings.Cut(table, "<!-- /tested -->")
	rows := strings.Split(strings.TrimSpace(table), "\n")
	if len(rows) < 15 {
		t.Fatalf("the table has only %d lines", len(rows))
	}
	for _, row := range rows[2:] {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		for _, name := range strings.Split(cells[len(cells)-1], ", ") {
			if !known[name] {
				t.Errorf("there is no test %q: %s", name, row)
			}
		}
	}
}
