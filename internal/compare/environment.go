package compare

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
)

// facts are the properties of a side, its parameters and subjects, each with its distinct values, sorted. JSON objects
// are flattened: a property is the path of a leaf, such as "publishers.maxInFlight".
type facts map[property][]string

// property identifies a property: see Difference.
type property struct{ of, what string }

// add adds the leaves of a value that can be expressed in JSON. Empty strings are left out.
func (f facts) add(of, what string, v any) {
	text, _ := json.Marshal(v) // plain data always marshals
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var tree any
	if d.Decode(&tree) == nil {
		f.leaves(property{of, what}, tree)
	}
}

func (f facts) leaves(p property, v any) {
	below := func(key string, x any) {
		f.leaves(property{p.of, strings.TrimPrefix(p.what+"."+key, ".")}, x)
	}
	switch v := v.(type) {
	case map[string]any:
		for key, x := range v {
			below(key, x)
		}
	case []any:
		for i, x := range v {
			below(fmt.Sprint(i), x)
		}
	case nil:
	default:
		text := fmt.Sprint(v)
		if at, has := slices.BinarySearch(f[p], text); !has && text != "" {
			f[p] = slices.Insert(f[p], at, text)
		}
	}
}

// apart returns the properties that differ between sides, sorted. Nil sides are ignored.
func apart(sides []facts) (all []property) {
	seen := map[property]bool{}
	for _, f := range sides {
		for p, values := range f {
			if !seen[p] && slices.ContainsFunc(sides,
				func(o facts) bool { return o != nil && !slices.Equal(o[p], values) }) {
				seen[p] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b property) int {
		return cmp.Or(strings.Compare(a.of, b.of), strings.Compare(a.what, b.what))
	})
}

// differences returns the properties that differ between sides, except measurements. Workloads are compared between
// matched cells.
func differences(sides []*side, rows []group, by string) []Difference {
	all := make([]facts, len(sides))
	for i, s := range sides {
		all[i] = s.facts(by)
	}
	for _, g := range rows {
		workloads := make([]facts, len(sides))
		for i, c := range g.cells {
			if c != nil {
				workloads[i] = facts{}
				workloads[i].add("workload", "", c.cell.Workload)
				workloads[i].add("workload", "simulated connections", c.cell.Simulated || c.cell.Workload.Network != plan.Network{})
			}
		}
		for _, p := range apart(workloads) {
			for i, w := range workloads {
				for _, value := range w[p] {
					all[i].add(p.of, p.what, value)
				}
			}
		}
	}
	out := []Difference{}
	for _, p := range apart(all) {
		d := Difference{Of: p.of, What: p.what}
		for _, f := range all {
			const maxValues = 4
			values := f[p]
			if len(values) > maxValues {
				values = append(slices.Clone(values[:maxValues-1]), fmt.Sprintf("%d more", len(values)-maxValues+1))
			}
			d.Values = append(d.Values, cmp.Or(strings.Join(values, ", "), "–"))
		}
		out = append(out, d)
	}
	return out
}
