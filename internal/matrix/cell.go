package matrix

import (
	"encoding/json"
	"fmt"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/parser"

	"lockstep/internal/plan"
	"lockstep/pkg/drivers"
)

// recycleAfter is how many cells one context evaluates: contexts keep something of all they ever saw.
const recycleAfter = 5_000

// worker evaluates combinations in a context of its own. One goroutine uses it.
type worker struct {
	m        *Matrix
	ctx      *cue.Context
	cell     cue.Value
	values   [][]ast.Expr // of each axis
	used     int
	declared map[question]drivers.Declaration
}

// question is what a driver's declaration depends on.
type question struct {
	broker string
	use    drivers.Use
}

var axisPath = cue.ParsePath("axis")

func newWorker(m *Matrix) (*worker, error) {
	w := &worker{m: m, declared: map[question]drivers.Declaration{}}
	return w, w.renew()
}

// renew begins with a fresh context.
func (w *worker) renew() error {
	ctx := cuecontext.New()
	root, _, faults := w.m.source.build(ctx)
	if len(faults) > 0 {
		return faults
	}
	return w.use(ctx, root)
}

// use takes the template from a matrix that is built already.
func (w *worker) use(ctx *cue.Context, root cue.Value) error {
	w.ctx, w.used = ctx, 0
	w.cell = root.LookupPath(cue.ParsePath("cell"))
	if !w.cell.Exists() {
		w.cell = w.ctx.CompileString("{axis: _}")
	}
	w.values = make([][]ast.Expr, len(w.m.space.axes))
	for a, x := range w.m.space.axes {
		for _, v := range x.values {
			expr, err := parser.ParseExpr("axis "+x.name, string(v.json))
			if err != nil && v.json != nil {
				return fmt.Errorf("read axis %s: %w", x.name, err)
			}
			w.values[a] = append(w.values[a], expr)
		}
	}
	return nil
}

// examine evaluates a combination for its faults only.
func (w *worker) examine(combo []int, found *findings) {
	if w.m.skipped(combo) == nil {
		_, faults := w.evaluate(combo)
		for _, f := range faults {
			found.add(f, w.m.space.name(combo))
		}
	}
}

// evaluate makes the cell of a combination, or says why it is n/a, or what is wrong.
func (w *worker) evaluate(combo []int) (Combination, Faults) {
	if w.used++; w.used > recycleAfter {
		if err := w.renew(); err != nil {
			return Combination{}, Faults{{File: w.m.source.file, Message: err.Error()}}
		}
	}
	filled, tree, faults := w.fill(combo)
	if len(faults) > 0 {
		return Combination{}, faults
	}
	w.m.nameAxes(tree, combo)
	broker, faults := w.broker(tree, filled)
	normalise(tree)
	work := plan.Default()
	text, err := json.Marshal(tree)
	if err == nil {
		err = json.Unmarshal(text, &work)
	}
	if err != nil {
		return Combination{}, Faults{faultAt(place(filled), "cell", err.Error())}
	}
	faults = append(faults, inconsistent(work, filled)...)
	if len(faults) > 0 || broker == nil {
		return Combination{}, faults
	}
	return w.declare(combo, broker, work), nil
}

// fill evaluates the template with the combination's values.
func (w *worker) fill(combo []int) (cue.Value, map[string]any, Faults) {
	var fields []any
	for a, i := range combo {
		fields = append(fields, &ast.Field{Label: ast.NewString(w.m.space.axes[a].name), Value: w.values[a][i]})
	}
	filled := w.cell.FillPath(axisPath, ast.NewStruct(fields...))
	tree, c := w.read(filled)
	if len(c.open) > 0 {
		// Something refers to fields that the template leaves to their defaults: fill these in and look again.
		if rest, err := json.Marshal(w.m.defaults(tree, combo)); err == nil {
			again := filled.Unify(w.ctx.CompileBytes(rest))
			if t, d := w.read(again); len(d.faults) == 0 {
				return again, t, nil
			}
		}
	}
	return filled, tree, c.faults
}

func (w *worker) read(filled cue.Value) (map[string]any, *checker) {
	c := &checker{home: cellHomes()}
	tree, _ := c.check(cellRule(), filled, "cell").(map[string]any)
	if err := filled.Validate(cue.Concrete(true)); err != nil && len(c.faults) == 0 {
		c.faults = faultsOf(w.m.source.file, err)
	}
	return tree, c
}

// defaults are the fields that the template leaves out.
func (m *Matrix) defaults(tree map[string]any, combo []int) map[string]any {
	text, _ := json.Marshal(plan.Default()) // plain data
	var all map[string]any
	_ = json.Unmarshal(text, &all)
	named := clone(tree)
	m.nameAxes(named, combo)
	return lacking(overlay(all, named), tree)
}

func clone(tree map[string]any) map[string]any {
	out := make(map[string]any, len(tree))
	for k, v := range tree {
		if sub, ok := v.(map[string]any); ok {
			v = clone(sub)
		}
		out[k] = v
	}
	return out
}

// overlay returns base with the values of over in place of its own; what is unsettled there is left out.
func overlay(base, over map[string]any) map[string]any {
	for k, v := range over {
		sub, ok := v.(map[string]any)
		old, had := base[k].(map[string]any)
		switch {
		case ok && had:
			base[k] = overlay(old, sub)
		case v == unsettled{}:
			delete(base, k)
		default:
			base[k] = v
		}
	}
	return base
}

// lacking returns what of all is not in tree.
func lacking(all, tree map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range all {
		have, had := tree[k]
		sub, ok := v.(map[string]any)
		old, isMap := have.(map[string]any)
		switch {
		case !had:
			out[k] = v
		case ok && isMap:
			out[k] = lacking(sub, old)
		}
	}
	return out
}

// broker finds the cell's broker; nil is one that has been reported already.
func (w *worker) broker(tree map[string]any, filled cue.Value) (*plan.Broker, Faults) {
	name, _ := tree["broker"].(string)
	if name == "" && len(w.m.brokers) == 1 {
		for only := range w.m.brokers {
			name = only
		}
	}
	b, ok := w.m.brokers[name]
	if ok {
		return b, nil
	}
	v := filled.LookupPath(cue.ParsePath("broker"))
	if name == "" {
		return nil, Faults{faultAt(filled.Pos(), "cell.broker", "there are several brokers; add an axis broker, or name one here (there are: "+strings.Join(w.m.brokerNames(), ", ")+")")}
	}
	msg := fmt.Sprintf("there is no broker %q (there are: %s)", name, strings.Join(w.m.brokerNames(), ", "))
	return nil, Faults{faultAt(place(v), "cell.broker", msg)}
}

// nameAxes lets the six axes set their fields wherever the template does not.
func (m *Matrix) nameAxes(tree map[string]any, combo []int) {
	for a, i := range combo {
		x := m.space.axes[a]
		for _, path := range byName[x.name] {
			if x.name == "latency" && tree["latency"] != nil {
				continue
			}
			if strings.HasPrefix(path, "consumers.") && at(tree, "consumers", "nodes") == float64(0) {
				continue
			}
			group, name, nested := strings.Cut(path, ".")
			if !nested {
				setDefault(tree, group, x.values[i].json)
				continue
			}
			sub, ok := tree[group].(map[string]any)
			if !ok {
				sub = map[string]any{}
				tree[group] = sub
			}
			setDefault(sub, name, x.values[i].json)
		}
	}
}

func at(tree map[string]any, group, name string) any {
	sub, _ := tree[group].(map[string]any)
	return sub[name]
}

func setDefault(m map[string]any, name string, text json.RawMessage) {
	if _, set := m[name]; !set {
		var x any
		if json.Unmarshal(text, &x) == nil {
			m[name] = x
		}
	}
}

// normalise turns a cell's short forms into the fields of a workload.
func normalise(tree map[string]any) {
	delete(tree, "axis")
	delete(tree, "broker")
	if latency, ok := tree["latency"]; ok {
		delete(tree, "latency")
		sub, ok := tree["network"].(map[string]any)
		if !ok {
			sub = map[string]any{}
			tree["network"] = sub
		}
		sub["latency"] = latency
	}
	if p, ok := tree["publishers"].(map[string]any); ok {
		if n, ok := p["batch"].(float64); ok {
			p["batch"] = map[string]any{"least": n, "most": n}
		}
	}
	if labels, ok := tree["labels"].(map[string]any); ok {
		for k, v := range labels {
			labels[k] = trimQuotes(quote(v))
			if s, ok := v.(string); ok {
				labels[k] = s
			}
		}
	}
}

// inconsistent finds values that are right by themselves and wrong together.
func inconsistent(w plan.Workload, filled cue.Value) Faults {
	var out Faults
	report := func(wrong bool, path, format string, args ...any) {
		if wrong {
			v := filled.LookupPath(cue.ParsePath(path))
			pos := filled.Pos()
			if v.Exists() {
				pos = place(v)
			}
			out = append(out, faultAt(pos, "cell."+path, fmt.Sprintf(format, args...)))
		}
	}
	p, c := w.Publishers, w.Consumers
	report(p.Batch.Least > p.Batch.Most, "publishers.batch", "its least, %d, is above its most, %d", p.Batch.Least, p.Batch.Most)
	report(w.Drain.Silence > w.Drain.Most, "drain.silence", "%s is above drain.most, %s: the drain would always be cut", w.Drain.Silence, w.Drain.Most)
	report(c.Nodes > 0 && c.Ack == "every" && c.Prefetch > 0 && c.Prefetch < c.AckEvery, "consumers.ackEvery",
		"%d is above consumers.prefetch, %d: the broker would stop before the first acknowledgement; give a value up to the prefetch", c.AckEvery, c.Prefetch)
	report(filled.LookupPath(cue.ParsePath("latency")).Exists() && filled.LookupPath(cue.ParsePath("network.latency")).Exists(),
		"latency", "it is given twice, here and as network.latency; remove one of them")
	return out
}
