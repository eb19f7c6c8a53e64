package matrix

import "fmt"

// normaliseShape replaces the short forms of a cell, and of its groups, by the fields of a workload.
func normaliseShape(tree map[string]any) {
	if tree["warmup"] == "auto" {
		tree["warmup"] = "0s"
		steady, ok := tree["steady"].(map[string]any)
		if !ok {
			steady = map[string]any{}
			tree["steady"] = steady
		}
		steady["auto"] = true
	}
	if faults, ok := tree["faults"].([]any); ok && len(faults) == 0 {
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
	if p, ok := tree["publishers"].(map[string]any); ok {
		if n, ok := p["batch"].(float64); ok {
			p["batch"] = map[string]any{"min": n, "max": n}
		}
		if stages, ok := p["profile"].([]any); ok && len(stages) == 0 {
			delete(p, "profile")
		}
	}
	if c, ok := tree["consumers"].(map[string]any); ok {
		if d, ok := c["process"].(string); ok {
			c["process"] = map[string]any{"min": d, "max": d, "mean": "0s"}
		}
	}
	if m, ok := tree["message"].(map[string]any); ok {
		sizes(m)
	}
}

// duplicateSizes returns errors for list elements that have both a size and bounds.
func duplicateSizes(size any) (out []problem) {
	shares, _ := size.([]any)
	for i, s := range shares {
		share, _ := s.(map[string]any)
		if share["size"] != nil && (share["min"] != nil || share["max"] != nil) {
			out = append(out, problem{"message.size",
				fmt.Sprintf("size %d of the list has both size and bounds; give size, or min and max", i+1)})
		}
	}
	return out
}

// sizes converts a distribution of sizes into a list of shares, and sets size to the maximum.
func sizes(message map[string]any) {
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
