package matrix

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
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

// part returns a struct in a tree. It adds the struct if it is missing.
func part(tree map[string]any, name string) map[string]any {
	sub, ok := tree[name].(map[string]any)
	if !ok {
		sub = map[string]any{}
		tree[name] = sub
	}
	return sub
}

func setDefault(m map[string]any, name string, text json.RawMessage) {
	if _, set := m[name]; !set {
		var x any
		if json.Unmarshal(text, &x) == nil {
			m[name] = x
		}
	}
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

func at(tree map[string]any, group, name string) any {
	sub, _ := tree[group].(map[string]any)
	return sub[name]
}

// normalise replaces a cell's short forms by the fields of a workload.
func normalise(tree map[string]any) {
	delete(tree, "axis")
	delete(tree, "broker")
	if latency, ok := tree["latency"]; ok {
		delete(tree, "latency")
		part(tree, "network")["latency"] = latency
	}
	labels, _ := tree["labels"].(map[string]any)
	for k, v := range labels {
		if f, ok := v.(float64); ok { // labels are part of the cell's id: no exponents
			labels[k] = strconv.FormatFloat(f, 'f', -1, 64)
		} else {
			labels[k] = fmt.Sprint(v)
		}
	}
	if tree["warmup"] == "auto" {
		tree["warmup"] = "0s"
		part(tree, "steady")["auto"] = true
	}
	if search, ok := tree["search"].(map[string]any); ok {
		tree["search"] = withDefaults("#Search", search)
	}
	faults, _ := tree["faults"].([]any)
	for i, fault := range faults {
		fields, _ := fault.(map[string]any)
		faults[i] = withDefaults("#Fault", fields)
	}
	if len(faults) == 0 {
		delete(tree, "faults")
	}
	normaliseGroups(tree)
	normalisePart(tree)
}

// normalisePart replaces the short forms of publishers, consumers and message.
func normalisePart(tree map[string]any) {
	for _, role := range []string{"publishers", "consumers"} {
		side, _ := tree[role].(map[string]any)
		if on, ok := side["on"].(map[string]any); ok && len(on) == 0 {
			delete(side, "on")
		}
	}
	if n, ok := at(tree, "publishers", "batch").(float64); ok {
		part(tree, "publishers")["batch"] = map[string]any{"min": n, "max": n}
	}
	if stages, ok := at(tree, "publishers", "profile").([]any); ok && len(stages) == 0 {
		delete(part(tree, "publishers"), "profile")
	}
	if d, ok := at(tree, "consumers", "process").(string); ok {
		part(tree, "consumers")["process"] = map[string]any{"min": d, "max": d, "mean": "0s"}
	}
	// A distribution of sizes becomes a list of shares. The size is then the maximum.
	message, _ := tree["message"].(map[string]any)
	var shares []any
	switch size := message["size"].(type) {
	case map[string]any:
		shares = []any{size}
	case []any:
		shares = size
	default:
		return
	}
	largest := 0.0
	for _, s := range shares {
		share, ok := s.(map[string]any)
		if !ok {
			continue
		}
		if only, ok := share["size"]; ok {
			delete(share, "size")
			share["min"], share["max"] = only, only
		}
		if _, ok := share["weight"]; !ok {
			share["weight"] = 1.0
		}
		if upper, ok := share["max"].(float64); ok {
			largest = max(largest, upper)
		}
	}
	message["size"], message["sizes"] = largest, shares
}

// normaliseGroups converts the groups to a list, sorted by name. Each group inherits the missing fields from the cell.
// The cell's own publishers, consumers, topology and message are then deleted: they are not measured, and must not
// affect the cell's id.
func normaliseGroups(tree map[string]any) {
	groups, _ := tree["groups"].(map[string]any)
	delete(tree, "groups")
	var list []any
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		group, ok := groups[name].(map[string]any)
		if !ok {
			continue
		}
		whole := map[string]any{"name": name}
		for _, part := range ofGroups {
			base, _ := tree[part].(map[string]any)
			own, _ := group[part].(map[string]any)
			standard, _ := defaults()["#Cell"][part].(map[string]any)
			whole[part] = overlay(overlay(clone(standard), clone(base)), clone(own))
		}
		normalisePart(whole)
		list = append(list, whole)
	}
	if len(list) == 0 {
		return
	}
	tree["groups"] = list
	for _, part := range ofGroups {
		delete(tree, part)
	}
}

// givenRule is a rule with its path in a cell.
type givenRule struct {
	plan.Rule
	path string
}

// takeRules removes the rules from a filled template, because they belong to the cell and not to its workload. Rules
// whose fields do not fit together are problems.
func takeRules(tree map[string]any) (rules []givenRule, out problems) {
	given := tree["require"]
	delete(tree, "require")
	all, listed := given.([]any)
	if !listed && given != nil {
		all = []any{given}
	}
	for i, one := range all { // a string or #Rule, according to the schema
		r := givenRule{plan.Rule{Text: fmt.Sprint(one)}, "require"}
		if listed {
			r.path += fmt.Sprintf("[%d]", i)
		}
		if fields, is := one.(map[string]any); is {
			text, fit := ruleText(fields)
			if !fit {
				out.report(true, r.path,
					"these fields do not fit together; give rule, value with min or max, or value with regression")
				continue
			}
			r.Text = text
			if fields["inconclusive"] == "pass" {
				r.Inconclusive = "pass"
			}
		}
		rules = append(rules, r)
	}
	return rules, out
}

// ruleText returns the text of a rule that is data. fit is false if its fields do not fit together.
func ruleText(fields map[string]any) (text string, fit bool) {
	value, hasValue := fields["value"]
	var conditions []string
	for _, limit := range [][2]string{{"min", ">="}, {"max", "<="}} {
		x, given := fields[limit[0]]
		if n, is := x.(float64); is {
			x = strconv.FormatFloat(n, 'f', -1, 64)
		}
		if given {
			conditions = append(conditions, fmt.Sprintf("%v %s %v", value, limit[1], x))
		}
	}
	rule, isText := fields["rule"]
	regression, isRegression := fields["regression"]
	switch {
	case isText:
		return fmt.Sprint(rule), !hasValue && !isRegression && conditions == nil
	case isRegression:
		return fmt.Sprintf("%v no worse than baseline by %v", value, regression), hasValue && conditions == nil
	}
	return strings.Join(conditions, " && "), hasValue && conditions != nil
}

// takeRetry removes the retry policy from a filled template, because it belongs to the cell and not to its workload.
func takeRetry(tree map[string]any) (*plan.Retry, []problem) {
	given, ok := tree["retry"]
	delete(tree, "retry")
	if !ok {
		return nil, nil
	}
	var r plan.Retry
	if err := decode(given, &r); err != nil {
		return nil, []problem{{"retry", err.Error()}}
	}
	var out problems
	kinds := strings.Trim(strings.ReplaceAll(fmt.Sprintf("%q", plan.RetryKinds()), " ", ", "), "[]")
	out.report(len(r.On) == 0, "retry.on", "it is empty; give at least one of %s", kinds)
	for i, kind := range r.On {
		out.report(slices.Contains(r.On[:i], kind), "retry.on", "%q is duplicated; remove one", kind)
	}
	return &r, out
}
