// Package matrix loads a CUE matrix file and expands it into cells, in the order of the matrix. It reports all errors
// at once, in plain words and with positions. No other package uses CUE; the results are plain data.
package matrix

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"lockstep/internal/plan"
	"lockstep/internal/sampling"
	"lockstep/pkg/drivers"
)

// Narrow holds the changes that the command line makes to a matrix.
type Narrow struct {
	Quick  bool     // sets the tag quick
	Set    []string // path=value, a CUE expression: "axes.threads=[1,5]"
	Filter []string // axis=value[,value]: keeps only these combinations; several filters of one axis add up
}

// Combination is one combination of axis values: a cell to run, or the reason why it is not run. Exactly one is not
// nil.
type Combination struct {
	Cell     *plan.Cell
	Excluded *plan.Excluded
}

// Matrix is a loaded matrix without errors. It is immutable and safe for concurrent use.
type Matrix struct {
	source  source
	space   space
	skip    []pattern
	brokers map[string]*plan.Broker
	drivers map[string]func(json.RawMessage, drivers.Use) drivers.Declaration
	refers  map[string]bool // axes that the template refers to; nil: not known
	base    plan.Run        // everything but the cells
	secrets []plan.Secret   // of all brokers, and of influx
	scrub   *plan.Scrubber  // of secrets
	untilAt token.Pos       // position of repeat.until
}

// Load parses, narrows and checks a matrix, and its short form. Errors have type Errors, which contains all of them.
// Errors that only some combinations have may come from Expand instead. file is used in messages and in the record.
func Load(file string, text []byte, n Narrow) (*Matrix, error) {
	m, secrets, errs := load(source{file: file, text: text, narrow: n})
	if hasQuickForm(file, text) {
		other := Narrow{Quick: !n.Quick, Set: n.Set}
		_, more, found := load(source{file: file, text: text, narrow: other})
		secrets = append(secrets, more...)
		if other.Quick { // report errors of the short form now
			further := newFindings(errs)
			for _, f := range found {
				further.add(f, "")
			}
			errs = append(errs, further.errs()...)
		}
		if len(n.Set) > 0 {
			_, more, _ := load(source{file: file, text: text, narrow: Narrow{Quick: true}})
			secrets = append(secrets, more...)
		}
	}
	if len(n.Set) > 0 { // the text also contains the secrets that these replace
		_, more, _ := load(source{file: file, text: text})
		secrets = append(secrets, more...)
	}
	if len(errs) > 0 {
		return nil, tidy(file, errs, plan.NewScrubber(secrets))
	}
	m.base.Source, m.secrets = m.base.Source.Redacted(secrets), secrets
	if s := m.base.Source; !s.Omitted && labelsAndDrivers(s.Text) != labelsAndDrivers(string(text)) {
		m.base.Source = s.Omit("a secret in it is also the name of a field or driver in it")
	}
	m.scrub = plan.NewScrubber(secrets)
	for i, t := range m.base.Tables {
		m.base.Tables[i].Title = m.scrub.Scrub(t.Title)
		for k, heading := range t.Headings {
			t.Headings[k] = m.scrub.Scrub(heading)
		}
	}
	for _, b := range m.brokers {
		if b != nil {
			b.Version = m.scrub.Scrub(b.Version)
		}
	}
	return m, nil
}

func hasQuickForm(file string, text []byte) bool {
	f, err := parser.ParseFile(file, text)
	return err == nil && setTag(f, quickTag, true)
}

// labelsAndDrivers returns the labels of a matrix and the names of its drivers, in order. Redaction must not change
// them.
func labelsAndDrivers(text string) string {
	file, err := parser.ParseFile("", text)
	if err != nil {
		return err.Error()
	}
	var all []string
	ast.Walk(file, func(n ast.Node) bool {
		if f, is := n.(*ast.Field); is {
			all = append(all, labelOf(f))
			if lit, is := f.Value.(*ast.BasicLit); is && labelOf(f) == "driver" {
				all = append(all, lit.Value)
			}
		}
		return true
	}, nil)
	return strings.Join(all, " ")
}

// Literals returns the paths of fields that contain a secret literally, instead of a reference such as ${env:NAME}. It
// includes fields that --quick and --set replace. A nil Matrix has none.
func (m *Matrix) Literals() []string {
	if m == nil {
		return nil
	}
	var paths []string
	for _, s := range m.secrets {
		paths = append(paths, s.Path)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// matrix returns the parts that the loader has read as a Matrix.
func (l *loader) matrix(tables tableChecker) *Matrix {
	r := runReader{doc: l.doc}
	m := &Matrix{source: l.doc.source, refers: referred(l.doc.syntax), space: l.space, skip: l.skip, brokers: l.brokers,
		drivers: map[string]func(json.RawMessage, drivers.Use) drivers.Declaration{}}
	for _, b := range l.brokers {
		if b == nil {
			continue
		}
		if d, err := drivers.Lookup(b.Driver); err == nil {
			m.drivers[b.Driver] = d.Info().Declare
		}
	}
	m.base = plan.Run{Version: plan.RecordFormat, Name: r.name(), Tables: tables.tables(), Repeat: 1, Order: r.order(),
		Settle: r.duration("settle", 0),
		Grace:  r.duration("grace", time.Minute), Source: r.record(), Axes: l.space.names(), Influx: r.influx()}
	m.base.Repeat, m.base.Until = r.repeat()
	m.untilAt = place(l.doc.root.LookupPath(untilPath))
	l.secrets = append(l.secrets, r.secrets...)
	m.base.Strict, _ = l.doc.root.LookupPath(cue.ParsePath("strict")).Bool()
	return m
}

// runReader reads the parts of a matrix that are the same for all cells.
type runReader struct {
	doc     *document
	secrets []plan.Secret
}

func (r *runReader) name() string {
	s, _ := r.doc.root.LookupPath(cue.ParsePath("name")).String() // validated before
	return s
}

func (r *runReader) duration(field string, def time.Duration) plan.Duration {
	s, err := r.doc.root.LookupPath(cue.ParsePath(field)).String()
	if err != nil {
		return plan.Duration(def)
	}
	d, _ := time.ParseDuration(s) // validated before
	return plan.Duration(d)
}

func (r *runReader) order() plan.Order {
	seed, err := r.doc.root.LookupPath(cue.ParsePath("order.random")).Uint64()
	return plan.Order{Random: err == nil, Seed: seed}
}

// influx returns the InfluxDB target, or nil.
func (r *runReader) influx() *plan.Influx {
	v := r.doc.root.LookupPath(cue.ParsePath("influx"))
	var i plan.Influx
	if !v.Exists() || v.Decode(&i) != nil { // errors were reported
		return nil
	}
	r.secrets = append(r.secrets, i.Secrets()...)
	return &i
}

// record returns the source of the matrix, including its secrets.
func (r *runReader) record() plan.Source {
	sum := sha256.Sum256(r.doc.source.text)
	s := plan.Source{File: filepath.Base(r.doc.file), Path: r.doc.file, SHA256: hex.EncodeToString(sum[:]),
		Text:  string(r.doc.source.text),
		Quick: r.doc.narrow.Quick, Set: slices.Clone(r.doc.narrow.Set), Filter: slices.Clone(r.doc.narrow.Filter)}
	if path, err := filepath.Abs(r.doc.file); err == nil {
		s.Path = path
	}
	return s
}

// Estimate returns the expected duration of a run without failures, including settle times. shortest and longest differ if a
// stop rule may end the repetitions early.
func Estimate(run plan.Run) (shortest, longest time.Duration) {
	var once time.Duration
	for _, c := range run.Cells {
		once += plan.Estimate(c.Workload) + run.Settle.D()
	}
	rounds, all := Rounds(run)
	return time.Duration(rounds) * once, time.Duration(all) * once
}

// Rounds returns the minimum and the maximum number of repetitions per cell.
func Rounds(run plan.Run) (minimum, maximum int) {
	maximum = max(run.Repeat, 1)
	if run.Until == nil {
		return maximum, maximum
	}
	return min(sampling.MinRepetitions(*run.Until), maximum), maximum
}

// Format formats the CUE source of a matrix.
func Format(source string) (string, error) {
	text, err := format.Source([]byte(source))
	return string(text), err
}
