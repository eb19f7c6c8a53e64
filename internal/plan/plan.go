// Package plan holds the plain data that packages exchange: the plan (Run, Cell, Task, Assignment), the progress
// (Phase) and the result (Outcome). It computes stable cell ids and removes secrets from records. It has no access to
// brokers, files or the network.
package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration that is text ("5ms") in JSON.
type Duration time.Duration

// D returns the duration as a time.Duration.
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

// Node is a place in a broker's cluster: "spread", "any", an index of its endpoints, "leader" or "follower".
type Node string

// UnmarshalJSON also accepts an index as a number.
func (n *Node) UnmarshalJSON(b []byte) error {
	*n = Node(strings.Trim(string(b), `"`))
	return nil
}

// Coordinate is the value of one axis of a cell, as written in the matrix (JSON).
type Coordinate struct {
	Axis  string          `json:"axis"`
	Value json.RawMessage `json:"value"`
}

// Text returns the value as tables show it: strings without quotes, anything else as JSON on one line.
func (c Coordinate) Text() string {
	var s string
	var line bytes.Buffer
	switch {
	case json.Unmarshal(c.Value, &s) == nil:
		return s
	case json.Compact(&line, c.Value) == nil: // a record has line breaks
		return line.String()
	}
	return string(c.Value)
}

// Broker is a named system under test.
type Broker struct {
	Name   string `json:"name"`
	Driver string `json:"driver"`
	// validated, including the schema's defaults; may contain references to secrets
	Options json.RawMessage `json:"options"`
	// paths in Options whose strings are secret, from the driver's schema
	Secret  []string  `json:"secret,omitempty"`
	Version string    `json:"version,omitempty"` // a label that the user gives
	Via     string    `json:"via,omitempty"`     // host:port of a proxy to which all connections go
	Process Processes `json:"process,omitempty"`
}

// Key identifies a broker by its driver and its options as written, which may contain secrets. The name does not
// matter.
func (b Broker) Key() string { return b.Driver + " " + b.Via + " " + string(b.Options) }

func (b Broker) nameAndKey() string { return b.Name + " " + b.Key() }

// ID is a hash of Key without secrets. Brokers that differ only in secrets have the same one.
func (b Broker) ID() string {
	sum := sha256.Sum256([]byte(b.Redacted().Key()))
	return hex.EncodeToString(sum[:6])
}

// Processes are the processes of a broker: one, or those of a cluster. In JSON it is one object or a list.
type Processes []Process

// UnmarshalJSON also accepts a single process.
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

// Process identifies a process of the broker on an agent's host, whose resource use is measured. Exactly one field is
// set.
type Process struct {
	PID     int    `json:"pid,omitempty"`
	Port    int    `json:"port,omitempty"`    // the process that listens on this port
	Command string `json:"command,omitempty"` // part of its command line
}

// String formats the process like the agent's flag --observe: "port:5672".
func (p Process) String() string {
	switch {
	case p.PID != 0:
		return "pid:" + strconv.Itoa(p.PID)
	case p.Port != 0:
		return "port:" + strconv.Itoa(p.Port)
	}
	return "command:" + p.Command
}

// Cell is one combination of a matrix, with all defaults.
type Cell struct {
	ID          string       `json:"id"`
	Index       int          `json:"index"` // position in the matrix, from 0
	Coordinates []Coordinate `json:"coordinates"`
	Broker      Broker       `json:"broker"`
	Workload    Workload     `json:"workload"`
	Label       string       `json:"label,omitempty"` // meaning of a confirm, from the driver
	Guarantees  Guarantees   `json:"guarantees"`      // from the driver
	// RedeliverAfter is drivers.Declaration.RedeliverAfter.
	RedeliverAfter Duration `json:"redeliverAfter,omitempty"`
	CopiesBody     bool     `json:"copiesBody,omitempty"` // from the driver: Publish keeps no body
	// from the driver: the broker runs in the memory of an agent's process
	InProcess bool `json:"inProcess,omitempty"`
	// from the driver: who sends messages again whose link broke before their confirm (ResilienceByGuide and others)
	Resilience string `json:"resilience,omitempty"`
	// another cell of the run simulates a network or faults of connections, and this cell uses the same connections
	Simulated bool     `json:"simulated,omitempty"`
	Notes     []string `json:"notes,omitempty"` // from the driver: possible but perhaps unintended configurations
	Retry     *Retry   `json:"retry,omitempty"` // nil: the default, see Retry.Again
	// checked over the outcomes of all repetitions; not part of the workload
	Require []Rule `json:"require,omitempty"`
}

// The values of Cell.Resilience: those of drivers.Resilience.
const (
	NoResilience        = "none"
	ResilienceByLibrary = "library"
	ResilienceByGuide   = "guide"
)

// Guarantees mirrors drivers.Guarantees. A broken guarantee makes a cell invalid.
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

// Name returns the cell's coordinates on one line: "broker=nats mode=confirm-each threads=5".
func (c Cell) Name() string {
	parts := make([]string, len(c.Coordinates))
	for i, x := range c.Coordinates {
		parts[i] = x.Axis + "=" + x.Text()
	}
	return strings.Join(parts, " ")
}

// Agents returns the number of agents that the cell needs.
func (c Cell) Agents() (n int) {
	for _, w := range c.Workload.Parts() {
		n += w.agents()
	}
	return n
}

// Excluded is a combination that is not run, with the reason.
type Excluded struct {
	Coordinates []Coordinate `json:"coordinates"`
	Kind        string       `json:"kind"` // "skipped" by a pattern, or "n/a": not supported by the broker
	Reason      string       `json:"reason"`
}

// Table is a summary table that a matrix defines.
type Table struct {
	Title   string   `json:"title,omitempty"`
	Split   []string `json:"split,omitempty"`   // axes: one table per combination of their values
	Rows    []string `json:"rows"`              // axes
	Columns []string `json:"columns,omitempty"` // axes
	Values  []string `json:"values"`            // names of values, as in Values()
	// Highest or Lowest is the name of a value. Each row then shows only its best cell by that value, and the cell's
	// position. At most one of the two is set.
	Highest string `json:"highest,omitempty"`
	Lowest  string `json:"lowest,omitempty"`
	// Headings replace the headings of axes and values, by name.
	Headings map[string]string `json:"headings,omitempty"`
}

// Bounded returns an error if the table has too many axes or values, or a title or heading is too long. Files repeat
// them for each value.
func (t Table) Bounded() error {
	if n := len(t.Split) + len(t.Rows) + len(t.Columns); n > MaxAxes+1 { // with the groups
		return fmt.Errorf("%d axes: want at most %d", n, MaxAxes+1)
	}
	if n := len(t.Values); n > MaxTableValues {
		return fmt.Errorf("%d values: want at most %d", n, MaxTableValues)
	}
	texts := slices.Concat([]string{t.Title}, t.Split, t.Rows, t.Columns, t.Values)
	for _, text := range slices.AppendSeq(texts, maps.Values(t.Headings)) {
		if len(text) > MaxName {
			return fmt.Errorf("a text of %d bytes: want at most %d", len(text), MaxName)
		}
	}
	return nil
}

// bounded returns an error if the combination has too many axes, or texts that are too long.
func (e Excluded) bounded() error {
	size := 0
	for _, c := range e.Coordinates {
		size += len(c.Axis) + len(c.Value)
	}
	if n := len(e.Coordinates); n > MaxAxes || size > MaxCoordinates {
		return fmt.Errorf("%d axes, whose names and values have %d bytes: want at most %d and %d", n, size, MaxAxes,
			MaxCoordinates)
	}
	if n := len(e.Reason); n > maxReason {
		return fmt.Errorf("a reason of %d bytes: want at most %d", n, maxReason)
	}
	return nil
}

// bounded returns an error if the cell has too many groups or agents, or one of its workloads is not bounded.
func (c Cell) bounded() error {
	if n := len(c.Workload.Groups); n > maxGroups {
		return fmt.Errorf("has %d groups: want at most %d", n, maxGroups)
	}
	for _, w := range c.Workload.Parts() {
		if err := w.Bounded(); err != nil {
			return fmt.Errorf("has %w", err)
		}
	}
	if n := c.Agents(); n < 1 || n > maxAgents {
		return fmt.Errorf("needs %d agents: want 1 to %d", n, maxAgents)
	}
	return nil
}

// Brokers returns the brokers that a cell uses, each once: the cell's own, or those of its groups.
func (c Cell) Brokers() (all []Broker) {
	for _, part := range (Task{Cell: c}).Parts() {
		b := part.Cell.Broker
		if !slices.ContainsFunc(all, func(o Broker) bool { return o.Name == b.Name }) {
			all = append(all, b)
		}
	}
	return all
}

// Hosts returns the hosts in the broker's options and its proxy: names and addresses in lower case, without ports,
// sorted, each once. It returns none if they name none.
func (b Broker) Hosts() (hosts []string) {
	tree, err := decode(Unfilled(b.Options))
	if err != nil {
		return nil
	}
	eachString([]any{tree, b.Via}, func(_, list string) string {
		inURL := false // a URL may list several hosts
		for _, part := range strings.Split(Redact(list), ",") {
			if _, rest, ok := strings.Cut(part, "://"); ok {
				part, inURL = rest, true
			}
			part = strings.TrimSpace(part)
			end := strings.IndexAny(part+"/", "/?#")
			address := part[:end]
			if inURL || hostPort.MatchString(address) {
				hosts = append(hosts, host(address))
			}
			inURL = inURL && end == len(part)
		}
		return list
	})
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// host returns the host part of user@host:port; user and port are optional. An empty host is localhost.
func host(address string) string {
	address = address[strings.LastIndex(address, "@")+1:]
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		name = strings.Trim(address, "[]")
	}
	if name == "" {
		name = "localhost"
	}
	return strings.TrimSuffix(strings.ToLower(name), ".")
}

// secrets returns the secrets in a broker's options and proxy address.
func (b Broker) secrets() []Secret {
	tree, err := decode(b.Options)
	if err != nil {
		return nil
	}
	secrets := SecretsOf("via", b.Via, false)
	eachString(tree, func(path, s string) string {
		secrets = append(secrets, SecretsOf(path, s, isMarked(path, b.Secret))...)
		return s
	})
	return secrets
}

// Redacted returns the broker without its secrets. b is not changed.
func (b Broker) Redacted() Broker { return b.redacted(NewScrubber(b.secrets())) }

func (b Broker) redacted(s *Scrubber) Broker {
	b.Options, b.Via = s.json(b.Options, b.Secret), s.Scrub(b.Via)
	return b
}
