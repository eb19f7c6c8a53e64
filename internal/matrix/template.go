package matrix

import (
	"encoding/json"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"

	"lockstep/internal/plan"
)

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
	rest := lacking(overlay(all, named), tree)
	if network, ok := rest["network"].(map[string]any); ok && tree["latency"] != nil {
		delete(network, "latency") // given in its short form
	}
	return rest
}

func clone(tree map[string]any) map[string]any {
	out := make(map[string]any, len(tree))
	for k, v := range tree {
		out[k] = cloneValue(v)
	}
	return out
}

func cloneValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return clone(v)
	case []any:
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = cloneValue(x)
		}
		return list
	}
	return v
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
