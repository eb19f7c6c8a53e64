package compare

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockstep/internal/plan"
)

// facts are what is known of a side, by what it is of and what it is: every value that was seen, in order.
type facts map[[2]string][]string

func (f facts) add(of, what, value string) {
	key := [2]string{of, what}
	if value != "" && !slices.Contains(f[key], value) {
		f[key] = append(f[key], value)
	}
}

// order is that in which differences are said; brokers come last, by name.
var order = []string{"harness", "agents", "clocks", "matrix", "workload"}

// differences lists what is not the same on all sides besides what was measured.
func differences(sides []*side, rows []group, by string) []Difference {
	all := make([]facts, len(sides))
	keys := map[[2]string]bool{}
	for i, s := range sides {
		all[i] = facts{}
		s.about(all[i], by)
	}
	workloads(all, rows)
	for _, f := range all {
		for key := range f {
			keys[key] = true
		}
	}
	out := []Difference{}
	for key := range keys {
		d := Difference{Of: key[0], What: key[1]}
		for _, f := range all {
			d.Values = append(d.Values, said(f[key]))
		}
		if len(slices.Compact(slices.Clone(d.Values))) > 1 {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b Difference) int {
		rank := func(of string) int {
			if i := slices.Index(order, of); i >= 0 {
				return i
			}
			return len(order)
		}
		if d := rank(a.Of) - rank(b.Of); d != 0 {
			return d
		}
		return strings.Compare(a.Of+"\x00"+a.What, b.Of+"\x00"+b.What)
	})
	return out
}

// said is the values of a fact on one line.
func said(values []string) string {
	if len(values) == 0 {
		return "–"
	}
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) > 4 {
		return strings.Join(sorted[:3], ", ") + fmt.Sprintf(" and %d more", len(sorted)-3)
	}
	return strings.Join(sorted, ", ")
}

// about collects what is known of a side's environment and subjects.
func (s *side) about(f facts, by string) {
	bound := time.Duration(0)
	several := false
	for _, c := range s.cells {
		for _, b := range c.cell.Brokers() {
			broker(f, b, by)
		}
		f.add(named(c.cell.Broker.Name, by), "a confirm means", c.cell.Label)
		for _, o := range c.outcomes {
			agents(f, o)
			for _, p := range o.Clocks {
				several = true
				bound = max(bound, p.Bound.D())
			}
			subject(f, named(c.cell.Broker.Name, by), o.Subject)
			for _, g := range o.Groups {
				if g.Subject != nil {
					subject(f, "broker of group "+g.Name, *g.Subject)
				}
			}
		}
	}
	if several {
		f.add("clocks", "known to within", "± "+coarse(bound).String())
	} else {
		f.add("clocks", "known to within", "one clock")
	}
	s.matrix(f)
}

// coarse rounds a bound up to a power of two microseconds, so that only what is another quality is a difference.
func coarse(d time.Duration) time.Duration {
	up := time.Microsecond
	for up < d {
		up *= 2
	}
	return up
}

func agents(f facts, o plan.Outcome) {
	for _, a := range o.Agents {
		f.add("harness", "version", a.Version)
		f.add("agents", "hosts", a.Host)
	}
	f.add("agents", "how many", strconv.Itoa(len(o.Agents)))
	for _, e := range o.Events {
		if e.Kind == "host-cores" { // as package judge keeps them
			f.add("agents", "cores", e.Detail)
		}
	}
}

func (s *side) matrix(f facts) {
	source := s.run.Source
	f.add("matrix", "file", source.File)
	f.add("matrix", "SHA-256", source.SHA256[:min(12, len(source.SHA256))])
	if source.Short {
		f.add("matrix", "form", "short")
	}
	f.add("matrix", "--set", strings.Join(source.Set, " "))
	f.add("matrix", "order", map[bool]string{true: "random", false: "of the matrix"}[s.run.Order.Random])
	f.add("matrix", "settle", s.run.Settle.String())
	where := "in one process"
	if source.Server != "" {
		where = "on the fleet at " + source.Server
	}
	f.add("matrix", "run", where)
}

// broker adds what the matrix says of a broker.
func broker(f facts, b plan.Broker, by string) {
	of := named(b.Name, by)
	f.add(of, "driver", b.Driver)
	f.add(of, "version label", b.Version)
	f.add(of, "via", b.Via)
	flatten(f, of, "option", b.Options)
}

// named is a broker in a difference. Where brokers are what is compared, they stand beside each other.
func named(name, by string) string {
	if by == "broker" {
		return "broker"
	}
	return "broker " + name
}

// subject adds what a broker said of itself.
func subject(f facts, of string, s plan.Subject) {
	f.add(of, "product", s.Product)
	f.add(of, "version", s.Version)
	f.add(of, "version label", s.Label)
	f.add(of, "endpoints", strings.Join(s.Endpoints, ", "))
	f.add(of, "members", strings.Join(s.Members, ", "))
	for _, name := range slices.Sorted(maps.Keys(s.Settings)) {
		f.add(of, "setting "+name, s.Settings[name])
	}
}

// flatten adds the leaves of a JSON object by their paths.
func flatten(f facts, of, prefix string, raw json.RawMessage) {
	for path, value := range paths(raw) {
		f.add(of, prefix+" "+path, value)
	}
}

// paths are the leaves of a JSON object.
func paths(raw []byte) map[string]string {
	all := map[string]string{}
	var v any
	if json.Unmarshal(raw, &v) == nil {
		leaves(v, "", all)
	}
	return all
}

// leaf is a value as it is read: texts without quotes, and nothing escaped for web pages.
func leaf(v any) string {
	if text, is := v.(string); is {
		return text
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // was unmarshalled
	return strings.TrimSpace(b.String())
}

func leaves(v any, path string, into map[string]string) {
	m, is := v.(map[string]any)
	if !is {
		into[path] = leaf(v)
		return
	}
	for key, x := range m {
		leaves(x, strings.TrimPrefix(path+"."+key, "."), into)
	}
}

// workloads adds the fixed parameters in which cells that belong together differ.
func workloads(all []facts, rows []group) {
	for _, g := range rows {
		flat := make([]map[string]string, len(g.cells))
		for i, c := range g.cells {
			if c != nil {
				text, _ := json.Marshal(c.cell.Workload) // plain data
				flat[i] = paths(text)
			}
		}
		for i := range flat[1:] {
			if other := flat[i+1]; other != nil {
				apart(all[0], all[i+1], flat[0], other)
			}
		}
	}
}

// apart adds what differs between two cells to the facts of both.
func apart(a, b facts, left, right map[string]string) {
	for path := range both(left, right) {
		if left[path] != right[path] {
			a.add("workload", path, left[path])
			b.add("workload", path, right[path])
		}
	}
}

func both(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
