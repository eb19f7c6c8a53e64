// Command man writes the man pages of the programs into a folder, from the commands in internal/cli.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"example.org/lockstep/lockstep/internal/cli"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: man DIR VERSION")
		os.Exit(2)
	}
	for _, variable := range os.Environ() { // defaults of flags
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "LOCKSTEP_") {
			_ = os.Unsetenv(name) // fails only for names without characters
		}
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "write man pages:", err)
		os.Exit(1)
	}
}

func write(dir, version string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, root := range cli.Commands() {
		section := "8" // daemons
		if root.Name() == "ctl" {
			section = "1"
		}
		if name := root.Flag("name"); name != nil {
			name.DefValue = "host name"
		}
		prepare(root)
		err := doc.GenManTreeFromOpts(root, doc.GenManTreeOptions{Path: dir, CommandSeparator: "-",
			Header: &doc.GenManHeader{Section: section, Source: "Lockstep " + version, Manual: "Lockstep"}})
		if err != nil {
			return err
		}
	}
	return nil
}

// prepare converts the texts of a command and its subcommands to Markdown.
func prepare(c *cobra.Command) {
	c.DisableAutoGenTag = true
	c.Long = markdown(c.Long)
	for _, sub := range c.Commands() {
		prepare(sub)
	}
}

// markdown separates lists from their paragraphs, and makes a code block of lines that begin with two spaces.
func markdown(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		before := ""
		if len(lines) > 0 {
			before = lines[len(lines)-1]
		}
		switch {
		case strings.HasPrefix(line, "  "):
			if line = "    " + line; !strings.HasPrefix(before, "    ") {
				lines = append(lines, "")
			}
		case strings.HasPrefix(line, "- ") && !strings.HasPrefix(before, "- "):
			lines = append(lines, "")
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
