package matrix

import (
	"strings"
	"testing"
)

func TestCommands(t *testing.T) {
	for file, text := range map[string]string{
		"d.cue":  `mine: {command: ["python3", "driver.py"], env: A: "b", dir: "x"}`,
		"d.json": `{"mine": {"command": ["python3", "driver.py"], "env": {"A": "b"}, "dir": "x"}}`,
	} {
		got, err := Commands(file, []byte(text))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if c := got["mine"]; len(got) != 1 || len(c.Command) != 2 || c.Command[1] != "driver.py" || c.Env["A"] != "b" ||
			c.Dir != "x" {
			t.Errorf("%s: got %+v", file, got)
		}
	}
}

func TestErrorsOfDriverFiles(t *testing.T) {
	for text, want := range map[string][]string{
		"a: {comand: [\"x\"]}\nb: {command: \"x\"}\n": {"d.cue:1:", "comand", `did you mean "command"`, "d.cue:2:",
			"b.command"},
		"a: command: []\n":     {"d.cue:1:", "a.command"},
		"a: command: [\"\"]\n": {"d.cue:1:", "the program is missing"},
		"\n":                   {"the file has no driver"},
		"a: {\n":               {"d.cue:"},
	} {
		_, err := Commands("d.cue", []byte(text))
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %q is not in\n%v", text, part, err)
			}
		}
	}
}
