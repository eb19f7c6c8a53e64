package matrix

import (
	"maps"
	"slices"
)

// inheritedFile is the file name in positions of values that the template does not set.
const inheritedFile = "inherited"

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
