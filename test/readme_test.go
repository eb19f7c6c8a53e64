package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/test/process"
)

// Every command of the README works.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	newReader(t).executePage(t, "README.md", 8)
}

// Every command of the tutorial works, in the order of its parts.
func TestTutorialCommands(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	for _, part := range []struct {
		page     string
		commands int
	}{{"1-first-run.md", 6}, {"2-your-broker.md", 10}, {"3-write-a-matrix.md", 6}, {"4-fleet.md", 13}} {
		t.Run(part.page, func(t *testing.T) { r.executePage(t, "docs/tutorial/"+part.page, part.commands) })
	}
}

// reader executes the commands of pages as a reader does: in one folder, with the files that the pages show.
type reader struct {
	dir      string
	port     string // of the control plane
	programs string // folder
}

func newReader(t *testing.T) *reader {
	t.Helper()
	folder, err := plain()
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{dir: t.TempDir(), port: freePort(t), programs: folder}
	matrices, err := filepath.Abs("../matrices")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(matrices, filepath.Join(r.dir, "matrices")); err != nil {
		t.Fatal(err)
	}
	return r
}

// pageBlocks finds the kind and the content of the blocks of code.
var pageBlocks = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// executePage writes the matrices of a page and executes its commands in order. Other blocks must be marked as text.
func (r *reader) executePage(t *testing.T, page string, commands int) {
	text, err := os.ReadFile(filepath.Join("..", page))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, m := range pageBlocks.FindAllStringSubmatch(string(text), -1) {
		switch kind, content := m[1], m[2]; kind {
		case "text":
		case "cue":
			name := regexp.MustCompile(`^// (\S+\.cue)\n`).FindStringSubmatch(content)
			if name == nil {
				t.Fatalf("%s: first line of a matrix: got no file name, want \"// NAME.cue\":\n%s", page, content)
			}
			if err := os.WriteFile(filepath.Join(r.dir, name[1]), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		case "sh":
			for command := range strings.Lines(content) {
				r.execute(t, strings.TrimSpace(command))
				ran++
			}
		default:
			t.Errorf("%s: kind of a code block: got %q, want sh, cue or text:\n%s", page, kind, content)
		}
	}
	if ran < commands {
		t.Errorf("%s: executed commands: got %d, want at least %d", page, ran, commands)
	}
}

// execute runs a command. Daemons run until the test ends.
func (r *reader) execute(t *testing.T, command string) {
	t.Helper()
	r.useLab(t, command)
	command = strings.ReplaceAll(command, "127.0.0.1:4222", "127.0.0.1:"+r.port)
	fields := strings.Fields(command)
	fleet := []string{"fleet", "agents", "--server", "nats://127.0.0.1:" + r.port}
	switch {
	case command == "make build", command == `export PATH="$PWD/bin:$PATH"`: // TestMain does the same
	case fields[0] == "lockstep-controller", fields[0] == "lockstep-agent":
		start(t, r.dir, strings.TrimPrefix(fields[0], "lockstep-"), fields[1:]...)
		process.Eventually(t, "the expected list of agents after "+command, func() bool {
			out, err := exec.Command(filepath.Join(r.programs, "ctl"), fleet...).Output()
			return err == nil && (fields[0] == "lockstep-controller" || strings.Contains(string(out), fields[len(fields)-1]+" "))
		})
	default:
		cmd := exec.Command("sh", "-c", shortened(command))
		cmd.Dir = r.dir
		cmd.Env = append(os.Environ(), "PATH="+r.programs+string(os.PathListSeparator)+os.Getenv("PATH"),
			"XDG_CONFIG_HOME="+filepath.Join(r.dir, "config"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
}

// useLab replaces the usual addresses of brokers in the reader's matrices by those of the lab.
func (r *reader) useLab(t *testing.T, command string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(r.dir, "*.cue"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.Contains(command, filepath.Base(file)) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for usual, variableOf := range map[string]string{`amqp://guest:guest@(127\.0\.0\.1|localhost):5672/?`: "LOCKSTEP_RABBITMQ_URL",
			`(127\.0\.0\.1|localhost):9092`: "LOCKSTEP_KAFKA_BROKERS"} {
			if at := regexp.MustCompile(usual); at.Match(text) {
				text = at.ReplaceAll(text, []byte(variable(t, variableOf)))
			}
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// shortened returns a command with flags that let its run take seconds: fewer cells and repetitions, and 2 s for each.
// The rate is low, because other tests use the brokers of the lab at the same time.
func shortened(command string) string {
	if strings.HasPrefix(command, "ctl runs cleanup ") {
		return command + " --yes" // the reader confirms at the terminal
	}
	if !strings.HasPrefix(command, "ctl run ") || strings.Contains(command, "--resume") {
		return command
	}
	if strings.Contains(command, "matrices/quick.cue") {
		return command + ` --filter mode=confirm-each --filter load=1000/s --set cell.measure='"2s"'`
	}
	command = strings.Replace(command, "repeat=6", "repeat=2", 1)
	more := []string{`--set cell.measure='"2s"'`, `--set cell.warmup='"100ms"'`, "--set cell.publishers.rate=1000", "--set repeat=1"}
	if strings.Contains(command, "steps.cue") {
		more = append(more, "--filter size=100")
	} else {
		more = append(more, "--filter threads=1")
	}
	if strings.Contains(command, "rabbit.cue") {
		more = append(more, "--filter size=100")
	}
	for _, flag := range more {
		if path, _, _ := strings.Cut(flag, "="); !strings.Contains(command, path+"=") {
			command += " " + flag
		}
	}
	return command
}
