package report

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"strings"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/stats"
)

// CompareCSV writes one line per cell, value and side other than the base. Numbers are unrounded in the value's unit,
// and ratios are factors. A cell that was not compared has a line with that finding and the reason as its note.
func CompareCSV(w io.Writer, c compare.Comparison) error {
	axes := axesOf(c.Values...)
	out := csv.NewWriter(w)
	head := slices.Concat([]string{"value", "unit", "better", "cell", "name"}, axes,
		[]string{"base", "side", "base.repetitions", "repetitions", "base.median", "median",
			"base.low", "base.high", "low", "high", "ratio", "ratio.low", "ratio.high", "confidence", "shift", "p",
			"p.adjusted", "finding", "flags", "note"})
	if err := out.Write(head); err != nil {
		return err
	}
	for _, v := range c.Values {
		for _, r := range v.Rows {
			for i, x := range r.Changes {
				if x.Finding == "" { // the cell is missing on this side
					continue
				}
				if err := out.Write(changeLine(c, v, r, i, x, axes)); err != nil {
					return err
				}
			}
		}
	}
	for _, l := range c.Left {
		line := make([]string, len(head))
		line[4] = l.Cell
		line[5+len(axes)+1] = strings.Join(l.Sides, " ")
		line[len(line)-3], line[len(line)-1] = "not compared", l.Reason
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func changeLine(c compare.Comparison, v compare.Value, r compare.Row, i int, x compare.Change, axes []string) []string {
	a, b := r.Sides[0], r.Sides[i+1]
	full := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	line := []string{v.Name, string(v.Unit), string(v.Better), r.Cell, r.Name}
	for _, f := range placeOf(r.At).fields(axes) {
		line = append(line, strings.TrimPrefix(f.Text, "–"))
	}
	// A side has no median without numbers, or if the median repetition has a backlog.
	median := func(s compare.Sample) []string {
		if s.N == 0 || s.HasBacklog() {
			return []string{""}
		}
		return []string{full(s.Median)}
	}
	bounds := func(s stats.Interval) []string {
		if !s.Holds(1 - c.Alpha) {
			return []string{"", ""}
		}
		return []string{full(s.Low), full(s.High)}
	}
	ratio, sure := []string{"", "", ""}, x.Shift.Interval.Confidence
	if x.Ratio != nil {
		ratio = append([]string{full(x.Ratio.Estimate)}, bounds(x.Ratio.Interval)...)
	}
	return slices.Concat(line, []string{c.Sides[0].Mark, c.Sides[i+1].Mark, strconv.Itoa(a.N), strconv.Itoa(b.N)},
		median(a), median(b), bounds(a.Interval), bounds(b.Interval), ratio,
		[]string{full(sure), full(x.Shift.Estimate), full(x.P), full(x.Adjusted), string(x.Finding),
			flagText(flagsOf(r, i)), x.Why})
}

// CompareJSON writes a comparison as JSON.
func CompareJSON(w io.Writer, c compare.Comparison) error { return encodeJSON(w, c) }
