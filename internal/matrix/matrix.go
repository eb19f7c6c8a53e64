// Package matrix loads a CUE matrix file and expands it into cells, in the order of the matrix. It reports all errors
// at once, in plain words and with positions. No other package of the programs uses CUE; the results are plain data.
package matrix

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/sampling"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// Narrow holds the changes that the command line makes to a matrix.
type Narrow struct {
	Quick  bool     // sets the tag quick
	Set    []string // path=value, a CUE expression: "axes.threads=[1,5]"
	Filter []string // axis=value[,value]: keeps only these combinations; several filters of one axis add up
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
// Errors that only some combinations have may come from Run instead. file is used in messages and in the record.
func Load(file string, text []byte, n Narrow) (*Matrix, error) {
	m, secrets, errs := load(source{file: file, text: text, narrow: n})
	also := func(other Narrow) Errors {
		_, more, found := load(source{file: file, text: text, narrow: other})
		secrets = append(secrets, more...)
		return found
	}
	f, err := parser.ParseFile(file, text)
	hasQuickForm := err == nil && setTag(f, quickTag, true)
	if hasQuickForm {
		found := also(Narrow{Quick: !n.Quick, Set: n.Set})
		if !n.Quick { // report errors of the short form now
			further := newFindings(errs)
			for _, f := range found {
				further.add(f, "")
			}
			errs = append(errs, further.errs()...)
		}
	}
	if len(n.Set) > 0 { // the text also contains the secrets that these replace
		also(Narrow{})
		if hasQuickForm {
			also(Narrow{Quick: true})
		}
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

// Estimate returns the expected duration of a run without failures, including settle times. shortest and longest differ
// if a stop rule may end the repetitions early.
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

// Run expands the matrix, the first axis outermost, into a run without an id and a start time. Errors of combinations
// have type Errors, which contains all of them. When ctx ends, the error wraps ctx's.
func (m *Matrix) Run(ctx context.Context) (plan.Run, error) {
	var combos [][]int
	for ordinal := range m.space.size() {
		if combo := m.space.at(ordinal); m.space.kept(combo) {
			combos = append(combos, combo)
		}
	}
	results := m.expand(ctx, combos)
	if ctx.Err() != nil {
		return plan.Run{}, fmt.Errorf("expand matrix: %w", ctx.Err())
	}
	run, found, seen := m.base, newFindings(nil), map[string][]int{}
	simulates := m.simulates(ctx, results)
	if ctx.Err() != nil {
		return plan.Run{}, fmt.Errorf("expand matrix: %w", ctx.Err())
	}
	for i, r := range results {
		m.collect(r, combos[i], seen, found)
		switch {
		case r.cell != nil:
			r.cell.Index = len(run.Cells)
			run.Cells = append(run.Cells, *r.cell)
			run.Agents = max(run.Agents, r.cell.Agents())
		case r.excluded != nil:
			run.Excluded = append(run.Excluded, *r.excluded)
		}
	}
	if len(found.list) > 0 {
		return plan.Run{}, tidy(m.source.file, found.errs(), plan.NewScrubber(m.secrets))
	}
	for i := range run.Cells { // cells without latency or faults must be comparable with the others
		run.Cells[i].Simulated = simulates && run.Cells[i].Workload.Network == plan.Network{}
	}
	if len(run.Tables) == 1 && len(run.Tables[0].Values) == 0 { // the default table
		run.Tables = []plan.Table{{Rows: run.Tables[0].Rows, Values: plan.DefaultValues(run.Cells)}}
	}
	return run, nil
}

// simulates reports whether a cell of the matrix simulates a network or faults of connections. A cell that a filter
// removes counts too, because the connections of a cell must not depend on filters. results are those of the
// combinations that are kept.
func (m *Matrix) simulates(ctx context.Context, results []result) bool {
	network := func(r result) bool {
		return r.cell != nil && (r.cell.Workload.Network != plan.Network{} || r.cell.Workload.FaultsConnections())
	}
	if slices.ContainsFunc(results, network) {
		return true
	}
	text := string(m.source.text) + strings.Join(m.source.narrow.Set, " ")
	named := func(field string) bool { return strings.Contains(text, field) }
	if !slices.ContainsFunc([]string{"network", "latency", "faults"}, named) {
		return false
	}
	var removed [][]int
	for ordinal := range m.space.size() {
		if combo := m.space.at(ordinal); !m.space.kept(combo) {
			removed = append(removed, combo)
		}
		if len(removed) == recycleAfter || ordinal == m.space.size()-1 {
			if slices.ContainsFunc(m.expand(ctx, removed), network) || ctx.Err() != nil {
				return true
			}
			removed = removed[:0]
		}
	}
	return false
}

// result is the result of one combination: a cell, or the reason why it is not run, or errors.
type result struct {
	cell     *plan.Cell
	excluded *plan.Excluded
	errs     Errors
}

// expand evaluates combinations on all cores. The results are incomplete if ctx has ended. A worker takes a large block
// of combinations at a time, because neighbours share evaluations.
func (m *Matrix) expand(ctx context.Context, combos [][]int) []result {
	results := make([]result, len(combos))
	workers := runtime.GOMAXPROCS(0)
	block := len(combos)/(8*workers) + 1
	var taken atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			w := newWorker(m)
			for {
				end := int(taken.Add(int64(block)))
				if end-block >= len(combos) {
					return
				}
				for i := end - block; i < min(end, len(combos)) && ctx.Err() == nil; i++ {
					results[i] = w.evaluate(combos[i])
				}
			}
		})
	}
	wg.Wait()
	return results
}

// collect adds a combination's errors to found. It also reports combinations that produce the same cell.
func (m *Matrix) collect(r result, combo []int, seen map[string][]int, found *findings) {
	for _, f := range r.errs {
		found.add(f, m.space.name(combo))
	}
	if r.cell == nil {
		return
	}
	twin, twice := seen[r.cell.ID]
	if !twice {
		seen[r.cell.ID] = combo
		return
	}
	var names []string
	for a := range combo {
		if combo[a] != twin[a] {
			names = append(names, m.space.axes[a].name)
		}
	}
	first := names[0]
	msg := fmt.Sprintf("axis %s does not affect the cell: %s and %s are the same measurement; use axis.%s in the template, or in labels: {%s: axis.%s}",
		strings.Join(names, " or "), m.space.name(twin), m.space.name(combo), first, first, first)
	a := m.space.axes[m.space.find(first)]
	found.add(errorAt(a.place, join("axes", strings.Join(names, "+")), msg), "")
}

// projection returns a key of the values of the axes that the template refers to. It returns "" if these axes are not
// known.
func (m *Matrix) projection(combo []int) string {
	if m.refers == nil {
		return ""
	}
	key := []byte{'.'}
	for a, i := range combo {
		if m.refers[m.space.axes[a].name] {
			key = binary.AppendUvarint(key, uint64(i))
		}
	}
	return string(key)
}

// broker returns the cell's broker. It is nil if an error was reported before. If every group has its own broker, it is
// that of the first group by name.
func (m *Matrix) broker(tree map[string]any, own map[string]*plan.Broker) (*plan.Broker, []problem) {
	groups, _ := tree["groups"].(map[string]any)
	if len(own) > 0 && len(own) == len(groups) {
		return own[slices.Min(slices.Collect(maps.Keys(own)))], nil
	}
	name, _ := tree["broker"].(string)
	if name == "" && len(m.brokers) == 1 {
		for only := range m.brokers {
			name = only
		}
	}
	if b, ok := m.brokers[name]; ok {
		return b, nil
	}
	if len(m.brokers) == 0 {
		return nil, nil // reported already
	}
	if name == "" {
		return nil, []problem{{"broker", "there are several brokers; add an axis broker or set cell.broker" +
			brokersThere(m.brokers)}}
	}
	return nil, []problem{{"broker", noBroker(m.brokers, strconv.Quote(name), name)}}
}

// nameAxes sets the fields of the standard axes that the template does not set.
func (m *Matrix) nameAxes(tree map[string]any, combo []int) {
	for a, i := range combo {
		x := m.space.axes[a]
		for _, path := range standardAxes()[x.name] {
			if x.name == "latency" && tree["latency"] != nil {
				continue
			}
			group, name, nested := strings.Cut(path, ".")
			if nested && at(tree, group, "nodes") == float64(0) {
				continue
			}
			if !nested {
				setDefault(tree, group, x.values[i].json)
				continue
			}
			setDefault(part(tree, group), name, x.values[i].json)
		}
	}
}

// inherited returns the values of the fields that the template does not set: those of standard axes, or else the
// defaults. Groups inherit from the cell.
func (m *Matrix) inherited(tree map[string]any, combo []int) map[string]any {
	named := clone(tree)
	m.nameAxes(named, combo)
	whole := withDefaults("#Cell", named)
	rest := lacking(whole, tree)
	if network, ok := rest["network"].(map[string]any); ok && tree["latency"] != nil {
		delete(network, "latency") // set by its short form
	}
	given, _ := tree["groups"].(map[string]any)
	groups := map[string]any{}
	for name, g := range given {
		if group, ok := g.(map[string]any); ok {
			parts := map[string]any{}
			for _, part := range ofGroups {
				parts[part] = whole[part]
			}
			groups[name] = lacking(parts, group)
		}
	}
	if len(groups) > 0 {
		rest["groups"] = groups
	}
	return rest
}

// expandSideBySide replaces the side-by-side brokers by one group each, and returns their errors.
func (m *Matrix) expandSideBySide(tree map[string]any) (out []problem) {
	names, _ := tree["sideBySide"].([]any)
	delete(tree, "sideBySide")
	if len(names) == 0 {
		return nil
	}
	if groups, _ := tree["groups"].(map[string]any); len(groups) > 0 {
		return []problem{{"sideBySide",
			"the cell also has groups; set the broker of each group instead"}}
	}
	if len(names) == 1 {
		return []problem{{"sideBySide", "a comparison needs several brokers; name at least two"}}
	}
	groups := map[string]any{}
	var known []string
	for _, n := range names {
		broker, _ := n.(string)
		name := sideBySide(broker)
		_, exists := m.brokers[broker]
		switch {
		case !exists:
			out = append(out, problem{"sideBySide", noBroker(m.brokers, strconv.Quote(broker), broker)})
		case slices.Contains(known, broker):
			out = append(out, problem{"sideBySide", fmt.Sprintf("%q is duplicated; name each broker once", broker)})
		case !groupName.MatchString(name) || groups[name] != nil:
			out = append(out, problem{"sideBySide",
				fmt.Sprintf("the name of broker %q gives no unique name of a group; use groups instead, each with a broker", broker)})
		default:
			groups[name] = map[string]any{"broker": broker}
		}
		known = append(known, broker)
	}
	tree["groups"] = groups
	return out
}

// groupBrokers removes the brokers of groups from the tree and returns them.
func (m *Matrix) groupBrokers(tree map[string]any) (own map[string]*plan.Broker, out []problem) {
	groups, _ := tree["groups"].(map[string]any)
	own = map[string]*plan.Broker{}
	for name, g := range groups {
		group, _ := g.(map[string]any)
		broker, named := group["broker"].(string)
		delete(group, "broker")
		if !named {
			continue
		}
		b, there := m.brokers[broker]
		if !there && len(m.brokers) > 0 {
			out = append(out, problem{join("groups", name) + ".broker", noBroker(m.brokers, strconv.Quote(broker), broker)})
		}
		own[name] = b // nil: an error was reported
	}
	slices.SortFunc(out, func(a, b problem) int { return strings.Compare(a.path, b.path) })
	return own, out
}

// validateRepeat returns an error if the stop rule refers to a value that a cell never has.
func (m *Matrix) validateRepeat(w plan.Workload) Errors {
	u := m.base.Until
	if u == nil {
		return nil
	}
	name := u.Of(w)
	why := absent(name, w)
	if why == "" {
		return nil
	}
	return Errors{errorAt(m.untilAt, "repeat.until",
		fmt.Sprintf("%s never has a number in this cell: %s; name a value of every cell, for example publish.rate", name, why))}
}
