package matrix

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
)

// takeRetry removes the retry policy from a filled template, because it belongs to the cell and not to its workload.
func takeRetry(tree map[string]any) (*plan.Retry, []problem) {
	given, ok := tree["retry"]
	delete(tree, "retry")
	if !ok {
		return nil, nil
	}
	var r plan.Retry
	text, err := json.Marshal(given)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return nil, []problem{{"retry", err.Error()}}
	}
	var out []problem
	kinds := make([]string, len(plan.RetryKinds()))
	for i, k := range plan.RetryKinds() {
		kinds[i] = fmt.Sprintf("%q", k)
	}
	if len(r.On) == 0 {
		out = append(out, problem{"retry.on", "it is empty; give at least one of " + strings.Join(kinds, ", ")})
	}
	for i, kind := range r.On {
		if slices.Contains(r.On[:i], kind) {
			out = append(out, problem{"retry.on", fmt.Sprintf("%q is duplicated; remove one", kind)})
		}
	}
	return &r, out
}
