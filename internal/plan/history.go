package plan

import "time"

// HistoryQuery selects results of cells over several runs.
type HistoryQuery struct {
	// ids, prefixes of ids, and axis=value[,value]. A cell must match one of the ids, and one value per axis. Empty:
	// all
	Cells  []string  `json:"cells,omitempty"`
	Matrix string    `json:"matrix,omitempty"` // only runs of this matrix
	Value  string    `json:"value,omitempty"`  // name as in tables; empty: list cells without points
	Since  time.Time `json:"since,omitzero"`   // only runs that began then or later
	Runs   int       `json:"runs,omitempty"`   // newest runs per cell; 0: all
	// maximum number of points in all; the oldest are left out. 0: the maximum of the history
	Max int `json:"max,omitempty"`
}

// HistoryAnswer is the result of a HistoryQuery.
type HistoryAnswer struct {
	Runs         int                    `json:"runs"` // runs in the history
	Cells        []HistoryCell          `json:"cells"`
	Subjects     map[string]Subject     `json:"subjects,omitempty"`     // subjects of the points, by fingerprint
	Environments map[string]Environment `json:"environments,omitempty"` // environments of the points, by fingerprint
	Metrics      Metrics                `json:"metrics,omitempty"`      // that of the value, as last indexed
	MoreCells    int                    `json:"moreCells,omitempty"`    // matching cells that are left out
	MorePoints   int                    `json:"morePoints,omitempty"`   // older repetitions that are left out
}

// HistoryCell is a cell with its results over several runs.
type HistoryCell struct {
	ID          string         `json:"id"`
	Matrix      string         `json:"matrix"` // of the newest run with the cell
	Coordinates []Coordinate   `json:"coordinates"`
	First       time.Time      `json:"first"` // beginning of the first run with the cell; Last is that of the newest
	Last        time.Time      `json:"last"`
	Points      []HistoryPoint `json:"points,omitempty"` // oldest run first; within a run in order of repetition
}

// Name returns the cell's coordinates on one line.
func (c HistoryCell) Name() string { return Cell{Coordinates: c.Coordinates}.Name() }

// HistoryPoint is a value of one repetition in one run.
type HistoryPoint struct {
	Run         string    `json:"run"`
	Matrix      string    `json:"matrix"`
	At          time.Time `json:"at"` // beginning of the run
	Repetition  int       `json:"repetition"`
	Value       Value     `json:"value"`
	Verdict     Verdict   `json:"verdict"`
	Subject     string    `json:"subject"`     // fingerprint
	Environment string    `json:"environment"` // fingerprint
	Version     string    `json:"version"`     // of Lockstep's agents
}

// Usable reports whether the number may be compared with those of other runs. Lower bounds and numbers with an
// Incomparable flag may not.
func (p HistoryPoint) Usable() bool {
	return p.Verdict == Valid && p.Value.Incomparable() == ""
}

// Environment is the set of hosts from which a cell was measured.
type Environment struct {
	Hosts []string `json:"hosts"` // of its agents, each once, with their cores if known
}

// Baseline is a run with which other runs are compared.
type Baseline struct {
	Name   string    `json:"name"`
	Run    string    `json:"run"`
	Matrix string    `json:"matrix"`
	Set    time.Time `json:"set"`
	By     string    `json:"by,omitempty"` // user@host
}

// BaselineRecord is a baseline with the plan of its run and the parts of the outcomes that rules need. The control
// plane stores it, so that it remains when the run's record or the controller that copied it is lost.
type BaselineRecord struct {
	Baseline Baseline  `json:"baseline"`
	Plan     Run       `json:"plan"`
	Outcomes []Outcome `json:"outcomes"`
}
