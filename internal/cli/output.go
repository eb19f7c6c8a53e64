package cli

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/files"
	"example.org/lockstep/lockstep/internal/terminal"
)

// width returns the width of a terminal in columns, or 0 if out is not a terminal: then tables have no limit.
func width(out io.Writer) int {
	if terminal.Is(out) {
		if w, _, err := term.GetSize(int(terminal.File(out).Fd())); err == nil && w > 0 {
			return w
		}
	}
	return 0
}

// formatFlag adds the flag --output, -o. It accepts these formats; the first one is the default.
func formatFlag(c *cobra.Command, format *string, formats ...string) {
	*format = formats[0]
	last := len(formats) - 1
	c.Flags().VarP(&formatValue{format, formats}, "output", "o",
		"print as `format`: "+strings.Join(formats[:last], ", ")+" or "+formats[last])
	completeFlag(c, "output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

type formatValue struct {
	format  *string
	formats []string
}

func (v *formatValue) String() string { return *v.format }

func (v *formatValue) Set(format string) error {
	if !slices.Contains(v.formats, format) {
		return fmt.Errorf("unknown format; use one of %s", strings.Join(v.formats, ", "))
	}
	*v.format = format
	return nil
}

func (v *formatValue) Type() string { return "format" }

// fileFlag adds the flag --file, -f, for the file that a command writes.
func fileFlag(c *cobra.Command, file *string, usage string) {
	c.Flags().StringVarP(file, "file", "f", "", usage)
}

// tabulate prints a table in the width of the terminal.
func tabulate(out io.Writer, head []string, rows [][]string) error {
	return display.NewTable(head, rows).Write(out, width(out))
}

// minText is the minimum width of a wrapped column.
const minText = 30

// tabulateText prints a table whose last column has sentences. They are wrapped in a terminal with this number of
// columns; 0: no terminal.
func tabulateText(out io.Writer, columns int, head []string, rows [][]string) error {
	last, left := len(head)-1, columns
	for i := range last {
		widest := display.Width(head[i])
		for _, row := range rows {
			widest = max(widest, display.Width(row[i]))
		}
		left -= widest + 2 // and the gap
	}
	if left < minText {
		return display.NewTable(head, rows).Write(out, columns)
	}
	var wrapped [][]string
	for _, row := range rows {
		for i, line := range display.Wrap(row[last], left) {
			next := make([]string, len(head))
			if i == 0 {
				copy(next, row)
			}
			next[last] = line
			wrapped = append(wrapped, next)
		}
	}
	return display.NewTable(head, wrapped).Write(out, columns)
}

func printJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.Local().Format(time.DateTime)
}

// writeOutput writes a file atomically. flag names the flag of its path in errors.
func writeOutput(what, path, flag string, write func(io.Writer) error) error {
	err := files.WriteOutput(path, 0o644, write)
	switch {
	case errors.Is(err, files.ErrFolder):
		return fmt.Errorf("write %s: %w; pass another file with %s", what, err, flag)
	case err != nil:
		return fmt.Errorf("write %s: %w", what, err)
	}
	return nil
}

// emit writes output in a format to standard output, or to the file of -f, whose path it prints. A terminal gets no
// format that it cannot show.
func emit(stdout io.Writer, what, format, file string, write func(io.Writer) error) error {
	switch {
	case file != "":
		if err := writeOutput(what, file, "--file", write); err != nil {
			return err
		}
		_, err := fmt.Fprintln(stdout, file)
		return err
	case terminal.Is(stdout) && (format == "html" || format == "parquet"):
		return usageErrorf("print %s as %s: standard output is a terminal; pass -f FILE", what, format)
	}
	return write(stdout)
}

// hexDigest returns the SHA-256 of a text in hexadecimal digits.
func hexDigest(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }
