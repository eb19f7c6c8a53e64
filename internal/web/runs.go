package web

import (
	"fmt"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/report/page"
	"example.org/lockstep/lockstep/internal/wire"
)

// maxRuns limits the list of runs, unless the request has the parameter all.
const maxRuns = 100

// runLink is a link to a run.
type runLink struct {
	Run  string // its id
	Name string // of its matrix; empty: unknown
}

// runLine is a run in the list, from the control plane or from a stored copy.
type runLine struct {
	State wire.RunState
	Kept  bool // only a copy is left
	Took  string
}

func rank(r runLine) int {
	if r.State.State == wire.StateRunning {
		return 0
	}
	return 1
}

// runView is the page of a run.
type runView struct {
	State    wire.RunState
	Kept     bool
	Known    bool // the plan has been read
	Plan     plan.Run
	Summary  string
	Flagged  int // tasks with flags
	Tables   []page.TableView
	Problems []string
	Limits   []string // of the load generator and its hosts
	Warnings []string
	Rules    []report.Ruling
	Files    []link
	Live     *liveView
	Took     string
	Facts    []report.Fact
	// From names the source of the numbers.
	From    string
	Copying bool // the copy of its record is still being made
}

// link is a link on a page.
type link struct{ To, Title string }

// maxRows limits the rows of a table on a page.
const maxRows = 1000

// copyFor is how long after the end of a run the page waits for its copy.
const copyFor = 5 * time.Minute

// shortened cuts tables to maxRows and adds a remark to each that it has cut.
func shortened(tables []report.Table) []report.Table {
	for i := range tables {
		if t := &tables[i]; len(t.Rows) > maxRows {
			t.Remarks = append(t.Remarks, fmt.Sprintf("%d more rows in the files of the run", len(t.Rows)-maxRows))
			t.Rows = t.Rows[:maxRows]
		}
	}
	return tables
}

// over reports whether the run has ended.
func (v *runView) over() bool { return v.Kept || v.State.Over() }
