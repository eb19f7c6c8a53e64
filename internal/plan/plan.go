// Package plan holds the plain data that the other packages hand to each other: what is to be measured
// (Run, Cell, Task, Assignment), how far it is (Phase), and what came of it (Outcome). It computes stable
// cell ids and keeps secrets out of records; it knows no broker, no file and no network.
package plan

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration that reads and writes as text ("5ms") in JSON.
type Duration time.Duration

// D returns the standard type.
func (d Duration) D() time.Duration { return time.Duration(d) }

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes Go's duration syntax.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads Go's duration syntax.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("read duration %q: write it like \"250ms\", \"10s\" or \"1m30s\"", text)
	}
	*d = Duration(v)
	return nil
}

// Node places something in a broker's cluster: "any", an index into its endpoints, "leader" or "follower".
type Node string

// UnmarshalJSON takes an index as a number too.
func (n *Node) UnmarshalJSON(b []byte) error {
	*n = Node(strings.Trim(string(b), `"`))
	return nil
}

// Coordinate is one axis value of a cell, as the matrix wrote it (JSON), in the order of the axes.
type Coordinate struct {
	Axis  string          `json:"axis"`
	Value json.RawMessage `json:"value"`
}

// Text is the value as a table shows it: strings without quotes, anything else as JSON.
func (c Coordinate) Text() string {
	var s string
	if json.Unmarshal(c.Value, &s) == nil {
		return s
	}
	return string(c.Value)
}

// Broker is a named system under test.
type Broker struct {
	Name   string `json:"name"`
	Driver string `json:"driver"`
	// validated, with the schema's defaults; may hold secret references
	Options json.RawMessage `json:"options"`
	// paths in Options whose strings are secret, as the driver's schema marks them
	Secret  []string  `json:"secret,omitempty"`
	Version string    `json:"version,omitempty"` // a label of the user's
	Via     string    `json:"via,omitempty"`     // host:port that every dial goes to instead (a proxy)
	Process Processes `json:"process,omitempty"`
}

// Processes are a broker's processes: one, or those of a cluster. JSON has one by itself or a list.
type Processes []Process

// UnmarshalJSON takes one by itself too.
func (p *Processes) UnmarshalJSON(text []byte) error {
	var several []Process
	err := json.Unmarshal(text, &several)
	if err != nil {
		var one Process
		if err = json.Unmarshal(text, &one); err == nil {
			several = []Process{one}
		}
	}
	if err != nil {
		return fmt.Errorf("read process: %w", err)
	}
	*p = several
	return nil
}

// Process names a process of the broker on an agent's host, for metrics of what it uses, in one of the three ways.
type Process struct {
	PID     int    `json:"pid,omitempty"`
	Port    int    `json:"port,omitempty"`    // the process that listens there
	Command string `json:"command,omitempty"` // a part of its command line
}

// String writes it as an agent's --observe does: "port:5672".
func (p Process) String() string {
	switch {
	case p.PID != 0:
		return "pid:" + strconv.Itoa(p.PID)
	case p.Port != 0:
		return "port:" + strconv.Itoa(p.Port)
	}
	return "command:" + p.Command
}

// Cell is one combination of a matrix, filled in.
type Cell struct {
	ID          string       `json:"id"`
	Index       int          `json:"index"` // in the order of the matrix, from 0
	Coordinates []Coordinate `json:"coordinates"`
	Broker      Broker       `json:"broker"`
	Workload    Workload     `json:"workload"`
	Label       string       `json:"label,omitempty"` // what a confirm means here, from the driver
	Guarantees  Guarantees   `json:"guarantees"`      // from the driver
	// RedeliverAfter is drivers.Declaration.RedeliverAfter.
	RedeliverAfter Duration `json:"redeliverAfter,omitempty"`
	CopiesBody     bool     `json:"copiesBody,omitempty"` // from the driver: it keeps no body once Publish has returned
	// from the driver: the broker is in the memory of an agent's process
	InProcess bool `json:"inProcess,omitempty"`
	// another cell simulates a network, and this one uses the same connections
	Simulated bool     `json:"simulated,omitempty"`
	Notes     []string `json:"notes,omitempty"` // from the driver: what is possible but perhaps not meant
	Retry     *Retry   `json:"retry,omitempty"` // nil: what fails is not retried
	// over the outcomes of all repetitions; no part of the workload
	Require []Rule `json:"require,omitempty"`
}

// Rule is a requirement on a cell's values: a condition (ParseCondition), or a comparison with a baseline
// (ParseRegression).
type Rule struct {
	Text string `json:"rule"`
	// "pass": the rule passes if its result is inconclusive; empty: it fails
	Inconclusive string `json:"inconclusive,omitempty"`
}

// Guarantees mirrors drivers.Guarantees: what breaking makes a cell invalid.
type Guarantees struct {
	ConfirmedKept bool `json:"confirmedKept"`
	SentKept      bool `json:"sentKept"`
	NoDuplicates  bool `json:"noDuplicates"`
	Ordered       bool `json:"ordered"`
}

// Coordinate returns the value of an axis as text.
func (c Cell) Coordinate(axis string) (string, bool) {
	for _, x := range c.Coordinates {
		if x.Axis == axis {
			return x.Text(), true
		}
	}
	return "", false
}

// Name is the cell's coordinates on one line, for people: "broker=nats mode=confirm-each threads=5".
func (c Cell) Name() string {
	parts := make([]string, len(c.Coordinates))
	for i, x := range c.Coordinates {
		parts[i] = x.Axis + "=" + x.Text()
	}
	return strings.Join(parts, " ")
}

// Agents is how many agents the cell needs.
func (c Cell) Agents() (n int) {
	for _, w := range c.Workload.Parts() {
		n += w.agents()
	}
	return n
}

// Excluded is a combination that is not run, and why.
type Excluded struct {
	Coordinates []Coordinate `json:"coordinates"`
	Kind        string       `json:"kind"` // "skipped" by a pattern of the matrix, or "n/a": the broker cannot
	Reason      string       `json:"reason"`
}

// Table is a summary table that a matrix asks for.
type Table struct {
	Title   string   `json:"title,omitempty"`
	Split   []string `json:"split,omitempty"`   // axes: one table for each combination of their values
	Rows    []string `json:"rows"`              // axes
	Columns []string `json:"columns,omitempty"` // axes
	Values  []string `json:"values"`            // names of values, as in Values()
	// Highest or Lowest names a value: a row then shows only the best of its cells by it, and where that is. At most
	// one is set.
	Highest string `json:"highest,omitempty"`
	Lowest  string `json:"lowest,omitempty"`
	// Headings replace the headings of axes and values, by their names.
	Headings map[string]string `json:"headings,omitempty"`
}
