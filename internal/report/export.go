package report

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
)

// writeMarkdown writes tables in GitHub's Markdown.
func writeMarkdown(w io.Writer, tables []Table) error {
	out := bufio.NewWriter(w)
	for i, t := range tables {
		if i > 0 {
			out.WriteByte('\n')
		}
		if t.Title != "" {
			fmt.Fprintf(out, "### %s\n\n", MarkdownText(t.Title))
		}
		text := t.Layout().text(true)
		rule := make([]string, len(text.Head))
		for n := range rule {
			rule[n] = "---:"
			if text.Left(n) {
				rule[n] = "---"
			}
		}
		markdownRow(out, text.Head)
		fmt.Fprintf(out, "| %s |\n", strings.Join(rule, " | "))
		for _, row := range text.Rows {
			cells := make([]string, len(row))
			for n, c := range row {
				cells[n] = c.Text + c.Tail
			}
			markdownRow(out, cells)
		}
		if len(t.Notes)+len(t.Remarks) > 0 {
			out.WriteByte('\n')
		}
		for i, note := range t.Notes {
			fmt.Fprintf(out, "- %s %s\n", superscripts([]int{i + 1}), MarkdownText(note))
		}
		for _, remark := range t.Remarks {
			text := strings.TrimLeft(remark, " ")
			fmt.Fprintf(out, "%s- %s\n", strings.Repeat(" ", len(remark)-len(text)), MarkdownText(text))
		}
		if t.Chart != nil {
			if lines := t.Chart.lines(0); len(lines) > 0 {
				fmt.Fprintf(out, "\n```text\n%s\n```\n", strings.Join(lines, "\n"))
			}
		}
	}
	return out.Flush()
}

func markdownRow(out *bufio.Writer, cells []string) {
	escaped := make([]string, len(cells))
	for i, c := range cells {
		escaped[i] = MarkdownText(c)
	}
	fmt.Fprintf(out, "| %s |\n", strings.Join(escaped, " | "))
}

var escapes = strings.NewReplacer("\\", "\\\\", "|", "\\|", "<", "&lt;", "*", "\\*", "_", "\\_", "`", "\\`", "\r", " ",
	"\n", " ")

// MarkdownText escapes a text for one line of Markdown.
func MarkdownText(text string) string { return escapes.Replace(text) }

// writeCSV writes one line per value of each table. The columns are the table's number and title, then every axis of
// any table, which is empty if this table does not have it. Then follow value, number, unit, flags (separated by
// blanks), verdict, text, note and bound (±, empty without one). Numbers are unrounded in the unit.
func writeCSV(w io.Writer, tables []Table) error {
	axes := allAxes(tables)
	out := csv.NewWriter(w)
	head := append([]string{"table", "title"}, axes...)
	if err := out.Write(append(head, "value", "number", "unit", "flags", "verdict", "text", "note",
		"bound")); err != nil {
		return err
	}
	for n, t := range tables {
		for _, row := range t.Rows {
			for _, f := range row[len(t.Axes):] {
				if err := out.Write(line(n+1, t, row, f, axes)); err != nil {
					return err
				}
			}
		}
	}
	out.Flush()
	return out.Error()
}

// limited collects a file of at most plan.MaxFile bytes. Each line of CSV has the notes of its field, of any length.
type limited struct{ text bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if l.text.Len()+len(p) > plan.MaxFile {
		return 0, fmt.Errorf("CSV of more than %d MiB: %w", plan.MaxFile>>20, plan.ErrTooLarge)
	}
	return l.text.Write(p)
}

// line returns the line of one field.
func line(n int, t Table, row []Field, f Field, axes []string) []string {
	at := map[string]string{}
	for _, c := range slices.Concat(t.Split, f.Column) {
		at[c.Axis] = c.Text
	}
	for i, axis := range t.Axes {
		at[axis] = row[i].Text
	}
	out := []string{strconv.Itoa(n), t.Title}
	for _, axis := range axes {
		out = append(out, at[axis])
	}
	number := ""
	if f.Number != nil {
		number = strconv.FormatFloat(*f.Number, 'f', -1, 64)
	}
	limits := ""
	if f.Bound > 0 {
		limits = strconv.FormatFloat(f.Bound, 'f', -1, 64)
	}
	unit := f.Unit
	if unit == plan.Text {
		unit = plan.PerSecond // the number behind the text is a rate
	}
	var why []string
	for _, i := range f.Notes {
		why = append(why, t.Notes[i-1])
	}
	return append(out, f.Value, number, string(unit), flagText(f.Flags), string(f.Verdict),
		f.Full(), strings.Join(why, "; "), limits)
}

// allAxes lists the axes of all tables in the order of their first use.
func allAxes(tables []Table) []string {
	var axes []string
	for _, t := range tables {
		for _, c := range t.Split {
			axes = addNew(axes, c.Axis)
		}
		axes = addNew(axes, t.Axes...)
		for _, row := range t.Rows {
			for _, f := range row {
				for _, c := range f.Column {
					axes = addNew(axes, c.Axis)
				}
			}
		}
	}
	return axes
}

func encodeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// markdownHead writes what Results writes before the tables.
func markdownHead(out *bytes.Buffer, run plan.Run, outcomes []plan.Outcome) {
	fmt.Fprintf(out, "## %s\n\n", MarkdownText(title(run, outcomes)))
	list := func(lines []string) {
		for _, line := range lines {
			fmt.Fprintf(out, "- %s\n", MarkdownText(line))
		}
		if len(lines) > 0 {
			out.WriteByte('\n')
		}
	}
	list(Problems(run, outcomes))
	for _, f := range Facts(run, outcomes) {
		if f.Name != "" {
			fmt.Fprintf(out, "- **%s:** %s\n", MarkdownText(f.Name), MarkdownText(f.Text))
		} else {
			fmt.Fprintf(out, "  - %s\n", MarkdownText(f.Text))
		}
	}
	out.WriteByte('\n')
	list(Limitations(run, outcomes))
}

// Files returns the files of a run's tables by name: tables.txt, .md, .csv and .json, and junit.xml. Text and Markdown
// begin with the facts and problems, and end with the rule results and the summary.
func Files(run plan.Run, outcomes []plan.Outcome) (map[string][]byte, error) {
	tables := Build(run, outcomes)
	var text, markdown, whole bytes.Buffer
	var lines limited
	markdownHead(&markdown, run, outcomes)
	for _, err := range []error{Results(&text, run, outcomes, tables, 0), writeMarkdown(&markdown, tables),
		writeCSV(&lines, tables), encodeJSON(&whole, append([]Table{}, tables...))} {
		if err != nil {
			return nil, fmt.Errorf("write tables of run %s: %w", run.ID, err)
		}
	}
	for i, line := range after(run, outcomes) {
		if i == 0 {
			markdown.WriteByte('\n')
		}
		fmt.Fprintf(&markdown, "- %s\n", MarkdownText(line))
	}
	judged, err := writeJUnit(run, outcomes)
	if err != nil {
		return nil, fmt.Errorf("write junit.xml of run %s: %w", run.ID, err)
	}
	fmt.Fprintf(&text, "\n%s\n", Summary(run, outcomes))
	fmt.Fprintf(&markdown, "\n%s\n", Summary(run, outcomes))
	return map[string][]byte{"tables.txt": text.Bytes(), "tables.md": markdown.Bytes(), "tables.csv": lines.text.Bytes(),
		"tables.json": whole.Bytes(), "junit.xml": judged}, nil
}
