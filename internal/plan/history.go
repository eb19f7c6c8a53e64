package plan

import (
	"slices"
	"time"
)

// HistoryQuery asks a history for what became of cells over runs.
type HistoryQuery struct {
	// ids, beginnings of ids, or axis=value[,value], all of which have to hold; none: all
	Cells  []string  `json:"cells,omitempty"`
	Matrix string    `json:"matrix,omitempty"` // of this name alone
	Value  string    `json:"value,omitempty"`  // as tables name it; empty: the cells alone are listed
	Since  time.Time `json:"since,omitzero"`   // of runs that began then or later
	Runs   int       `json:"runs,omitempty"`   // the newest of each cell; 0: all
	// points in all; the oldest are left out. 0: as many as the history gives at a time
	Max int `json:"max,omitempty"`
}

// HistoryAnswer is what a history knows.
type HistoryAnswer struct {
	Runs         int                    `json:"runs"` // that the history holds
	Cells        []HistoryCell          `json:"cells"`
	Subjects     map[string]Subject     `json:"subjects,omitempty"`     // of the points, by fingerprint
	Environments map[string]Environment `json:"environments,omitempty"` // of the points, by fingerprint
	MoreCells    int                    `json:"moreCells,omitempty"`    // that were asked for and are left out
	MorePoints   int                    `json:"morePoints,omitempty"`   // older repetitions that are left out
}

// HistoryCell is a cell over runs.
type HistoryCell struct {
	ID          string         `json:"id"`
	Matrix      string         `json:"matrix"` // that had it last
	Coordinates []Coordinate   `json:"coordinates"`
	First       time.Time      `json:"first"` // begin of the first run that had it, and of the last
	Last        time.Time      `json:"last"`
	Points      []HistoryPoint `json:"points,omitempty"` // oldest first; repetitions of a run in their order
}

// Name is the cell's coordinates on one line.
func (c HistoryCell) Name() string { return Cell{Coordinates: c.Coordinates}.Name() }

// HistoryPoint is a value of one repetition in one run.
type HistoryPoint struct {
	Run         string    `json:"run"`
	Matrix      string    `json:"matrix"`
	At          time.Time `json:"at"` // begin of the run
	Repetition  int       `json:"repetition"`
	Value       Value     `json:"value"`
	Verdict     Verdict   `json:"verdict"`
	Subject     string    `json:"subject"`     // fingerprint
	Environment string    `json:"environment"` // fingerprint
	Version     string    `json:"version"`     // of Lockstep's agents
}

// Usable reports whether the number may be compared with those of other runs. A bound may not, nor may a number with a
// flag that makes it Incomparable.
func (p HistoryPoint) Usable() bool {
	return p.Value.NA == "" && p.Value.Over == 0 && p.Verdict == Valid &&
		!slices.ContainsFunc(p.Value.Flags, Flag.Incomparable)
}

// Environment is where a cell was measured from.
type Environment struct {
	Hosts []string `json:"hosts"` // of its agents, each once, with their cores as far as they are known
}

// Baseline is a run that others are compared with.
type Baseline struct {
	Name   string    `json:"name"`
	Run    string    `json:"run"`
	Matrix string    `json:"matrix"`
	Set    time.Time `json:"set"`
	By     string    `json:"by,omitempty"` // user@host
}

// BaselineRecord is a baseline with the plan of its run and what rules need of the outcomes. The control plane stores
// it, so that the baseline outlives the record of its run and the controller that copied that.
type BaselineRecord struct {
	Baseline Baseline  `json:"baseline"`
	Plan     Run       `json:"plan"`
	Outcomes []Outcome `json:"outcomes"`
}
