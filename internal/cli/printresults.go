package cli

import (
	"fmt"
	"io"
	"path/filepath"

	"lockstep/internal/display"
	"lockstep/internal/report"
	"lockstep/internal/report/page"
	"lockstep/internal/runs"
)

// printResults prints the tables, warnings, problems and rule results of a record. It writes the tables beside the
// record, and returns the exit code of the run.
func printResults(out io.Writer, record *runs.Run) (code int, err error) {
	outcomes, err := record.Outcomes()
	if err != nil {
		return 0, err
	}
	run, delivered := record.Plan(), report.Delivered(record.Plan().ID, record.Deliveries())
	if err := report.Text(out, report.Build(run, outcomes), width(out)); err != nil {
		return 0, fmt.Errorf("print tables: %w", err)
	}
	rulings := report.Rulings(run, outcomes)
	for _, lines := range [][]string{report.Warnings(run, outcomes), report.Problems(run, outcomes), spoken(rulings),
		record.Warnings()} {
		for i, line := range lines {
			if i == 0 {
				fmt.Fprintln(out)
			}
			fmt.Fprintln(out, display.Hang(display.Clean(line), width(out), 2))
		}
	}
	if delivered != "" {
		fmt.Fprintf(out, "\n%s\n", delivered)
	}
	fmt.Fprintf(out, "\n%s\nrecord: %s\n", report.Summary(run, outcomes), record.Dir())
	if path := filepath.Join(record.Dir(), page.Name); readable(path) {
		fmt.Fprintf(out, "report: %s\n", path)
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

func spoken(rulings []report.Ruling) (lines []string) {
	for _, r := range rulings {
		lines = append(lines, r.String())
	}
	return lines
}
