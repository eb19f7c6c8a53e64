package report

import (
	"cmp"
	"slices"

	"example.org/lockstep/lockstep/internal/plan"
)

// GroupAxis is the axis that distinguishes the groups of cells in tables. It is not an axis of the matrix.
const GroupAxis = "group"

// noGroup is the value on that axis of a cell without groups.
const noGroup = "–"

// byGroup reports whether a table has each group by itself.
func byGroup(run plan.Run, t plan.Table) bool {
	return slices.Contains(slices.Concat(t.Split, t.Rows, t.Columns), GroupAxis) &&
		!slices.Contains(run.Axes, GroupAxis)
}

// perGroup returns a run in which each group is a cell, on an additional axis, with an outcome of its own.
func perGroup(run plan.Run, outcomes []plan.Outcome) (plan.Run, []plan.Outcome) {
	on := func(at []plan.Coordinate, group string) []plan.Coordinate {
		return append(slices.Clip(at), plan.Coordinate{Axis: GroupAxis, Value: encoded(group)})
	}
	out := run
	out.Axes = append(slices.Clip(run.Axes), GroupAxis)
	out.Cells, out.Excluded = nil, nil
	var names []string
	for _, c := range run.Cells {
		for _, part := range (plan.Task{Cell: c}).Parts() {
			p, name := part.Cell, cmp.Or(part.Group, noGroup)
			if part.Group != "" {
				p.ID += "/" + name
			}
			p.Coordinates = on(c.Coordinates, name)
			out.Cells = append(out.Cells, p)
			names = addNew(names, name)
		}
	}
	missing := slices.Concat(run.Excluded, lacking(run, names))
	if len(missing)*len(names) > maxFields {
		missing = nil // their fields are empty
	}
	for _, e := range missing {
		for _, name := range names {
			some := e
			some.Coordinates = on(e.Coordinates, name)
			out.Excluded = append(out.Excluded, some)
		}
	}
	var parts []plan.Outcome
	for _, o := range outcomes {
		if len(o.Groups) == 0 {
			parts = append(parts, o)
		}
		for _, g := range o.Groups {
			part := o
			part.Cell, part.Groups = o.Cell+"/"+g.Name, nil
			part.Verdict, part.Values, part.Ledger, part.Reasons, part.Warnings = g.Verdict, g.Values, g.Ledger,
				g.Reasons, g.Warnings
			if g.Subject != nil {
				part.Subject = *g.Subject
			}
			parts = append(parts, part)
		}
	}
	return out, parts
}

// lacking returns the cells that do not have all groups, as exclusions for the missing ones.
func lacking(run plan.Run, names []string) (out []plan.Excluded) {
	for _, c := range run.Cells {
		if len(c.Workload.Groups) < len(names) {
			out = append(out, plan.Excluded{Coordinates: c.Coordinates, Kind: "skipped",
				Reason: "the cell has no such group"})
		}
	}
	return out
}

// Grouped reports whether any cell has groups. A table that names GroupAxis shows each group by itself.
func Grouped(run plan.Run) bool {
	return slices.ContainsFunc(run.Cells, func(c plan.Cell) bool { return len(c.Workload.Groups) > 0 })
}
