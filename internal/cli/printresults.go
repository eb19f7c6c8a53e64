package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/report/page"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/terminal"
)

// maxRows is the number of rows on a terminal above which only the first table is printed.
const maxRows = 30

// amount is how much of the results is printed.
type amount int

const (
	mainResults  amount = iota // on a terminal, only the first table of many rows
	allResults                 // --all
	onlyProblems               // --quiet: problems and paths
)

// printResults prints the results of a record. It writes the tables beside the record, and returns the exit code of the
// run. fleet are the flags of a ctl run that repeats it in the same place.
func printResults(out io.Writer, record *runs.Run, shown amount, fleet string) (code int, err error) {
	err = inColours(out, func(w io.Writer) error {
		code, err = writeResults(w, width(out), record, shown, fleet)
		return err
	})
	return code, err
}

// matrixPath returns the path of a run's matrix for a command in the working directory. If the file is not on this
// host, it is the name of the file.
func matrixPath(s plan.Source) string {
	if filepath.Base(s.Path) != s.File { // a bundle
		return s.File
	}
	if info, err := os.Stat(s.Path); err != nil || !info.Mode().IsRegular() {
		return s.File
	}
	here, err := os.Getwd()
	if err != nil {
		return s.Path
	}
	if path, err := filepath.Rel(here, s.Path); err == nil && filepath.IsLocal(path) {
		return path
	}
	return s.Path
}

// writeResults is printResults without colours. columns is the width of the terminal; 0: out is no terminal.
func writeResults(out io.Writer, columns int, record *runs.Run, shown amount, fleet string) (code int, err error) {
	outcomes, err := record.Outcomes()
	if err != nil {
		return 0, err
	}
	run, delivered := record.Plan(), report.Delivered(record.Plan().ID, record.Deliveries())
	tables, rows, hidden := report.Build(run, outcomes), 0, 0
	for _, t := range tables {
		rows += len(t.Rows)
	}
	if rows > maxRows && len(tables) > 1 && columns > 0 && shown == mainResults {
		tables, hidden = tables[:1], len(tables)-1
	}
	rulings := report.Rulings(run, outcomes)
	print := func(line string) { fmt.Fprintln(out, display.Hang(display.Clean(line), columns, 2)) }
	if shown == onlyProblems {
		for _, line := range report.Problems(run, outcomes) {
			print(line)
		}
		for _, r := range rulings {
			if r.Failed() {
				print(r.String())
			}
		}
	} else if err := report.Results(out, run, outcomes, tables, columns); err != nil {
		return 0, fmt.Errorf("print tables: %w", err)
	}
	folder := folderHint(filepath.Dir(record.Dir())) // for the commands below
	if hidden > 0 {
		fmt.Fprintf(out, "\n%s: ctl show --all%s %s\n", display.Count(hidden, "more table"), folder, run.ID)
	}
	for i, line := range record.Warnings() {
		if i == 0 && shown != onlyProblems {
			fmt.Fprintln(out)
		}
		print(line)
	}
	switch {
	case shown != onlyProblems && delivered != "":
		fmt.Fprintf(out, "\n%s\n", delivered)
	case strings.Contains(delivered, "ctl runs replay "): // points are missing
		print(delivered)
	}
	if shown != onlyProblems {
		fmt.Fprintf(out, "\n%s\n", report.Summary(run, outcomes))
	}
	fmt.Fprintf(out, "record: %s\n", record.Dir())
	path := filepath.Join(record.Dir(), page.Name)
	if _, err := os.Stat(path); err == nil {
		fmt.Fprintf(out, "report: %s\n", path)
	}
	named := run
	named.Source.File = matrixPath(run.Source)
	next := report.Next(named, outcomes)
	if run.Source.Server != "" && report.NotRun(run, outcomes) != "" {
		timeline, err := record.Timeline()
		if err != nil {
			return 0, err
		}
		if _, ended := runs.EndOf(timeline); !ended {
			next = "follow the run, which may be active: ctl runs attach " + run.ID
		}
	}
	if next != "" && shown != onlyProblems {
		if strings.Contains(next, ": ctl run") {
			folder += fleet
		}
		fmt.Fprintf(out, "next:   %s\n", display.Clean(next+folder))
	}
	files, err := report.Files(run, outcomes)
	if err != nil {
		return 0, err
	}
	for name, data := range files {
		if err := record.WriteFile(name, data); err != nil {
			return 0, err
		}
	}
	if len(report.Problems(run, outcomes)) > 0 {
		return ExitFailedCells, nil
	}
	switch failed := report.Failed(rulings); {
	case failed[report.Violated] > 0:
		return ExitViolated, nil
	case failed[report.Inconclusive] > 0:
		return ExitInconclusive, nil
	}
	return ExitOK, nil
}

// failing and flagged match the words of results that have a colour.
var (
	failing = regexp.MustCompile(`\b(?:[0-9][0-9,]* )?failed\b|\bviolated\b|\b[1-9][0-9,]* invalid\b|: (?:invalid|failed): `)
	flagged = func() *regexp.Regexp {
		words := []string{"inconclusive"}
		for _, f := range plan.Flags() {
			words = append(words, string(f))
		}
		return regexp.MustCompile(`\b(?:` + strings.Join(words, "|") + `)\b`)
	}()
)

// inColours calls render and writes its text. If out is a terminal with colours, failures are red and flags are yellow.
func inColours(out io.Writer, render func(io.Writer) error) error {
	t, is := terminal.Of(out, os.Getenv)
	if !is || !t.Painter.Colours {
		return render(out)
	}
	var text bytes.Buffer
	err := render(terminal.NewWriter(&text)) // removes all other control characters
	_, written := terminal.File(out).WriteString(colour(t.Painter, text.String()))
	return errors.Join(err, written)
}

func colour(p terminal.Painter, text string) string {
	text = failing.ReplaceAllStringFunc(text, func(s string) string {
		if strings.HasPrefix(s, "0 ") {
			return s
		}
		return p.Paint(terminal.Red, s)
	})
	return flagged.ReplaceAllStringFunc(text, func(s string) string { return p.Paint(terminal.Yellow, s) })
}
