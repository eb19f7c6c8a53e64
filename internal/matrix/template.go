package matrix

import (
	"encoding/json"
	"maps"
	"slices"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
)

// inheritedFile is the file name in positions of values that the template does not set.
const inheritedFile = "inherited"

// fill evaluates the template with the combination's values.
func (w *worker) fill(combo []int) (cue.Value, map[string]any, Errors) {
	var fields []any
	for a, i := range combo {
		fields = append(fields, &ast.Field{Label: ast.NewString(w.m.space.axes[a].name), Value: w.values[a][i]})
	}
	filled := w.cell.FillPath(axisPath, ast.NewStruct(fields...))
	if filled.Validate(cue.Concrete(true)) != nil { // the template may refer to fields that it does not set
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
	tree, _ := data.(map[string]any)
	delete(tree, "axis")
	return filled, tree, x.errors
}

// inherited returns the values of the fields that the template does not set: those of standard axes, or else the
// defaults. Groups inherit from the cell.
func (m *Matrix) inherited(tree map[string]any, combo []int) map[string]any {
	named := clone(tree)
	m.nameAxes(named, combo)
	whole := overlay(clone(cellDefaults()), named)
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

// overlay overwrites base with the values of over and returns it. Undetermined values are deleted.
func overlay(base, over map[string]any) map[string]any {
	for k, v := range over {
		sub, ok := v.(map[string]any)
		old, had := base[k].(map[string]any)
		switch {
		case ok && had:
			base[k] = overlay(old, sub)
		case ok:
			base[k] = overlay(map[string]any{}, sub)
		case isUndetermined(v):
			delete(base, k)
		default:
			base[k] = v
		}
	}
	return base
}

// isUndetermined reports whether plain data is undetermined, or contains an undetermined value.
func isUndetermined(v any) bool {
	switch v := v.(type) {
	case undetermined:
		return true
	case []any:
		return slices.ContainsFunc(v, isUndetermined)
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), isUndetermined)
	}
	return false
}

// lacking returns the fields of all that tree does not have.
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
