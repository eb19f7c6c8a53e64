package matrix

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/parser"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// recycleAfter is the number of cells that one CUE context evaluates. Contexts never release memory.
const recycleAfter = 5_000

// worker evaluates combinations in its own CUE context. It must be used by one goroutine at a time.
type worker struct {
	m        *Matrix
	ctx      *cue.Context
	cell     cue.Value
	schema   cue.Value    // of cell
	values   [][]ast.Expr // per axis
	used     int
	trees    map[string]map[string]any // by projection
	declared map[question]drivers.Declaration
}

// question is the input of a driver's declaration.
type question struct {
	broker string
	use    drivers.Use
}

var axisPath = cue.ParsePath("axis")

// newWorker returns a worker that creates its context when needed.
func newWorker(m *Matrix) *worker {
	return &worker{m: m, trees: map[string]map[string]any{}, declared: map[question]drivers.Declaration{}}
}

// renew replaces the context.
func (w *worker) renew() error {
	ctx := cuecontext.New()
	root, _, errs := w.m.source.build(ctx)
	if len(errs) > 0 {
		return errs
	}
	return w.use(ctx, root, schemaIn(ctx))
}

// use takes the template from a matrix that is already built.
func (w *worker) use(ctx *cue.Context, root, schema cue.Value) error {
	values := make([][]ast.Expr, len(w.m.space.axes))
	for a, x := range w.m.space.axes {
		for _, v := range x.values {
			expr, err := parser.ParseExpr("axis "+x.name, string(v.json))
			if err != nil && v.json != nil {
				return fmt.Errorf("read axis %s: %w", x.name, err)
			}
			values[a] = append(values[a], expr)
		}
	}
	w.ctx, w.used, w.values = ctx, 0, values
	w.schema, w.cell = lookupDefinition(schema, "#Cell"), root.LookupPath(cue.ParsePath("cell"))
	if !w.cell.Exists() {
		w.cell = w.ctx.CompileString("{axis: _}")
	}
	return nil
}

// evaluate returns the result of a combination.
func (w *worker) evaluate(combo []int) result {
	for _, p := range w.m.skip {
		if p.subsumes(combo) {
			return result{excluded: &plan.Excluded{Coordinates: w.m.space.coordinates(combo), Kind: "skipped",
				Reason: "by the pattern " + p.text + " at " + p.place}}
		}
	}
	tree, errs := w.tree(combo)
	if len(errs) > 0 {
		return result{errs: errs}
	}
	w.m.nameAxes(tree, combo)
	if wrong := w.m.expandSideBySide(tree); len(wrong) > 0 {
		return result{errs: w.locate(wrong, combo)}
	}
	own, problems := w.m.groupBrokers(tree)
	broker, missing := w.m.broker(tree, own)
	problems = append(problems, missing...)
	problems = append(problems, duplicateFields(tree)...)
	problems = append(problems, validateNames(tree)...)
	retry, invalid := takeRetry(tree)
	problems = append(problems, invalid...)
	rules, unfit := takeRules(tree)
	problems = append(problems, unfit...)
	normalise(tree)
	work := plan.Default()
	err := decode(tree, &work)
	if err != nil {
		problems = append(problems, problem{message: err.Error()})
	} else {
		for k, label := range work.Labels {
			work.Labels[k] = w.m.scrub.Scrub(label)
		}
		for i, g := range work.Groups {
			work.Groups[i].Broker = own[g.Name]
		}
		if work.Topology.Existing != "" {
			retry, invalid = existingRetry(retry)
			problems = append(problems, invalid...)
		}
		problems = append(problems, inconsistentParts(work)...)
		problems = append(problems, validateSearch(work, w.m.base.Metrics)...)
		problems = append(problems, validateRules(rules, work, w.m.base.Metrics)...)
	}
	if err == nil {
		errs = w.m.validateRepeat(work)
	}
	if len(problems) > 0 || len(errs) > 0 {
		return result{errs: append(w.locate(problems, combo), errs...)}
	}
	if broker == nil {
		return result{} // reported already
	}
	if work.Topology.Existing != "" {
		if d, _ := w.declarePart(broker, work); !d.Capabilities.Existing {
			return result{errs: w.locate([]problem{{"topology.existing", "driver " + broker.Driver +
				" with the options of broker " + broker.Name + " cannot use existing queues; remove topology.existing"}}, combo)}
		}
	}
	r := w.declare(combo, broker, work)
	if r.cell != nil {
		r.cell.Retry = retry
		for _, given := range rules {
			r.cell.Require = append(r.cell.Require, given.Rule)
		}
		if problems := tooLarge(r.cell); len(problems) > 0 {
			return result{errs: w.locate(problems, combo)}
		}
	}
	return r
}

// maxTrees limits the evaluations that a worker caches.
const maxTrees = 10_000

// tree returns the template as plain data, with the combination's values. Combinations that differ only in axes that
// the template does not refer to share one evaluation.
func (w *worker) tree(combo []int) (map[string]any, Errors) {
	key := w.m.projection(combo)
	if known, ok := w.trees[key]; ok && key != "" {
		return clone(known), nil
	}
	if w.used++; w.ctx == nil || w.used > recycleAfter {
		if err := w.renew(); err != nil {
			return nil, Errors{{File: w.m.source.file, Message: err.Error()}}
		}
	}
	_, tree, inherits, errs := w.fill(combo)
	if len(errs) == 0 && key != "" && !inherits {
		if len(w.trees) >= maxTrees {
			clear(w.trees)
		}
		w.trees[key] = clone(tree)
	}
	return tree, errs
}

// locate adds the positions to problems.
func (w *worker) locate(problems []problem, combo []int) Errors {
	filled, _, _, _ := w.fill(combo)
	var out Errors
	for _, p := range problems {
		pos, path := place(w.cell), "cell"
		if p.path != "" {
			path += "." + p.path
			if at := place(nearestPath(filled, p.path)); at.IsValid() {
				pos = at
			}
		}
		out = append(out, errorAt(pos, path, p.message))
	}
	return out
}

// nearestPath looks up a path. If the template does not contain it, it returns the nearest ancestor.
func nearestPath(v cue.Value, path string) cue.Value {
	for {
		found := v.LookupPath(cue.ParsePath(path))
		last := strings.LastIndexByte(path, '.')
		if place(found).IsValid() || last < 0 {
			return found
		}
		path = path[:last]
	}
}

// declare gets the driver's declaration for a cell. It returns the cell, or the reason why it is excluded.
func (w *worker) declare(combo []int, b *plan.Broker, work plan.Workload) result {
	coordinates, id := w.m.space.coordinates(combo), plan.CellID(b.Name, work)
	var d drivers.Declaration
	var reasons []string
	if len(work.Groups) > 0 {
		d, reasons = w.declareGroups(b, &work)
	} else {
		d, reasons = w.declarePart(b, work)
	}
	if len(reasons) > 0 {
		return result{excluded: &plan.Excluded{Coordinates: coordinates, Kind: "n/a",
			Reason: strings.Join(reasons, "; ")}}
	}
	return result{cell: &plan.Cell{
		ID: id, Coordinates: coordinates, Broker: *b, Workload: work,
		Label: d.Label, Guarantees: plan.Guarantees(d.Guarantees), CopiesBody: d.Capabilities.CopiesBody,
		InProcess: d.Capabilities.InProcess, Resilience: string(d.Resilience), Notes: d.Notes,
		RedeliverAfter: plan.Duration(d.RedeliverAfter),
	}}
}

// declarePart gets the declaration for a workload without groups. rejections lists the reasons why it is not supported.
func (w *worker) declarePart(b *plan.Broker, work plan.Workload) (d drivers.Declaration, rejections []string) {
	use := useOf(work)
	d, known := w.declared[question{b.Name, use}]
	if !known {
		d = w.m.drivers[b.Driver](plan.Unfilled(b.Options), use)
		w.declared[question{b.Name, use}] = d
	}
	reasons := append(d.Unsupported(b.Driver, use), d.Rejections...)
	if use.Existing { // the settings of the queues are not those that the driver would declare
		d.Guarantees, d.Label = drivers.Guarantees{}, "existing queues, settings not known"
	}
	return d, reasons
}

// declareGroups gets the driver's declaration for each group, and combines them. A cell is n/a if any of its groups is.
func (w *worker) declareGroups(b *plan.Broker, work *plan.Workload) (whole drivers.Declaration, reasons []string) {
	whole.Guarantees = drivers.Guarantees{ConfirmedKept: true, SentKept: true, NoDuplicates: true, Ordered: true}
	whole.Capabilities.CopiesBody = true
	var labels []string
	for i, part := range work.Parts() {
		g := &work.Groups[i]
		target := b
		if g.Broker != nil {
			target = g.Broker
		}
		d, rejections := w.declarePart(target, part)
		of := func(text string) string { return "group " + g.Name + ": " + text }
		for _, why := range rejections {
			reasons = append(reasons, of(why))
		}
		for _, note := range d.Notes {
			whole.Notes = append(whole.Notes, of(note))
		}
		g.Label, g.Guarantees, g.CopiesBody, g.InProcess = d.Label, plan.Guarantees(d.Guarantees),
			d.Capabilities.CopiesBody, d.Capabilities.InProcess
		g.RedeliverAfter, g.Resilience = plan.Duration(d.RedeliverAfter), string(d.Resilience)
		whole.RedeliverAfter = max(whole.RedeliverAfter, d.RedeliverAfter)
		if d.Label != "" {
			labels = appendNew(labels, d.Label)
		}
		p := &whole.Guarantees
		p.ConfirmedKept, p.SentKept = p.ConfirmedKept && d.Guarantees.ConfirmedKept, p.SentKept && d.Guarantees.SentKept
		p.NoDuplicates, p.Ordered = p.NoDuplicates && d.Guarantees.NoDuplicates, p.Ordered && d.Guarantees.Ordered
		whole.Capabilities.InProcess = whole.Capabilities.InProcess || d.Capabilities.InProcess
		whole.Capabilities.CopiesBody = whole.Capabilities.CopiesBody && d.Capabilities.CopiesBody
	}
	whole.Label = strings.Join(labels, "; ")
	return whole, reasons
}

// fill evaluates the template with the combination's values. inherits reports whether the result depends on all axes,
// because the template refers to a field that it does not set.
func (w *worker) fill(combo []int) (filled cue.Value, tree map[string]any, inherits bool, errs Errors) {
	var fields []any
	for a, i := range combo {
		fields = append(fields, &ast.Field{Label: ast.NewString(w.m.space.axes[a].name), Value: w.values[a][i]})
	}
	filled = w.cell.FillPath(axisPath, ast.NewStruct(fields...))
	if inherits = filled.Validate(cue.Concrete(true)) != nil; inherits {
		tree, _ := plainData(filled)
		if fields, ok := tree.(map[string]any); ok {
			if text, err := json.Marshal(w.m.inherited(fields, combo)); err == nil {
				filled = filled.Unify(w.ctx.CompileBytes(text, cue.Filename(inheritedFile)))
			}
		}
	}
	x := validator{fallback: place(w.cell)}
	x.validate(w.schema, filled, "cell")
	data, _ := plainData(filled)
	tree, _ = data.(map[string]any)
	delete(tree, "axis")
	return filled, tree, inherits, x.errors
}

func useOf(w plan.Workload) drivers.Use {
	p, c, t := w.Publishers, w.Consumers, w.Topology
	return drivers.Use{
		Mode: drivers.Mode(p.Mode), MaxInFlight: p.InFlight(), Persistent: p.Persistent, Mandatory: p.Mandatory, Ack: drivers.Ack(c.Ack),
		Prefetch: c.Prefetch,
		Queues:   t.Queues, Subscriptions: t.Subscriptions, Bindings: t.Bindings,
		Publishers: p.Nodes * p.Threads, Consumers: c.Nodes * c.Threads * t.Subscriptions,
		Existing:      t.Existing != "",
		Churn:         t.Churn.Rate > 0,
		Keys:          w.Message.Keys.Count > 0,
		Nack:          c.Nodes > 0 && c.Nack > 0,
		Simulated:     w.Network != plan.Network{} || w.FaultsConnections(),
		Isolated:      slices.ContainsFunc(w.Faults, func(f plan.Fault) bool { return f.Kind == plan.FaultIsolate }),
		PublisherNode: drivers.Node(p.Node), ConsumerNode: drivers.Node(c.Node), QueueNode: drivers.Node(t.QueueNode),
	}
}
