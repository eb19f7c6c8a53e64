package compare

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
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

// facts returns the properties of a side's matrix, agents, clocks and brokers. Along the axis of brokers all brokers
// are named "broker", so that their properties are compared.
func (s *side) facts(by string) facts {
	f, bound := facts{}, time.Duration(-1)
	broker := func(name string) string {
		if by == "broker" {
			return "broker"
		}
		return "broker " + name
	}
	for _, c := range s.cells {
		for _, b := range c.cell.Brokers() {
			of := broker(b.Name)
			b.Name, b.Version = "", "" // the version label is in the subject
			f.add(of, "", b)
		}
		f.add(broker(c.cell.Broker.Name), "a confirm means", c.cell.Label)
		for _, o := range c.outcomes {
			f.add("agents", "how many", len(o.Agents))
			f.add("agents", "hosts", strings.Join(o.Hosts(), ", "))
			for _, a := range o.Agents {
				f.add("harness", "version", a.Version)
			}
			for _, p := range o.Clocks {
				bound = max(bound, p.Bound.D())
			}
			o.Subject.Fingerprint = ""
			f.add(broker(c.cell.Broker.Name), "", o.Subject)
			for _, g := range o.Groups {
				if g.Subject != nil {
					subject := *g.Subject
					subject.Fingerprint = ""
					f.add("broker of group "+g.Name, "", subject)
				}
			}
		}
	}
	known := "one clock"
	if bound >= 0 {
		coarse := time.Microsecond // powers of two, so that small changes of the bound are not reported
		for coarse < bound {
			coarse *= 2
		}
		known = "± " + coarse.String()
	}
	f.add("clocks", "known to within", known)
	source := s.run.Source
	source.Path, source.Text, source.SHA256 = "", "", source.SHA256[:min(12, len(source.SHA256))]
	f.add("matrix", "", source)
	f.add("matrix", "random order", s.run.Order.Random)
	f.add("matrix", "settle", s.run.Settle.String())
	return f
}
