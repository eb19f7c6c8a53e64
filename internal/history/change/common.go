package change

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"example.org/lockstep/lockstep/internal/stats"
)

const (
	commonRuns   = 2 * Recent // number of newest runs in which common changes are searched
	commonBefore = 9          // number of runs before these; their median is the level before
	commonFar    = 2.0        // minimum deviation from that level, in standard deviations
	minCommon    = 3          // minimum number of cells
)

// common finds changes in more than a third of the cells of a group in the same runs, of one or more runs. It also
// returns, for each series, the runs whose values such a change explains. These are not tested again: the test would
// find the change in some cells, or in later runs. A change of commonRuns or more runs is a new level and explains
// nothing. sds are the standard deviations of the series relative to their levels.
func common(all []Series, last int, sds []float64) (found []Common, explained []map[int]bool) {
	explained = make([]map[int]bool, len(all))
	type key struct {
		group string
		run   int
		up    bool
	}
	cells := map[string]int{}          // by group
	total := map[key]map[int]bool{}    // series that moved by more than noise
	moved := map[key]map[int]float64{} // relative change of each series that moved by at least MinShift
	for i, s := range all {
		fresh, _ := slices.BinarySearch(s.Runs, last-commonRuns+1)
		if fresh < minBefore {
			continue
		}
		level := stats.Median(s.Values[max(0, fresh-commonBefore):fresh])
		if level == 0 || fresh == len(s.Values) { // a relative change needs a level, and recent runs
			continue
		}
		cells[s.Group]++
		for j := fresh; j < len(s.Values); j++ {
			part := shift(level, s.Values[j])
			if math.Abs(part) < minShift {
				continue
			}
			k := key{s.Group, s.Runs[j], part > 0}
			if moved[k] == nil {
				moved[k] = map[int]float64{}
			}
			moved[k][i] = part
			if math.Abs(part) > commonFar*sds[i] {
				if total[k] == nil {
					total[k] = map[int]bool{}
				}
				total[k][i] = true // counted once, even if several runs have this number
			}
		}
	}
	maps.DeleteFunc(moved, func(k key, _ map[int]float64) bool {
		return len(total[k]) < minCommon || 3*len(total[k]) <= cells[k.group]
	})
	for k := range moved {
		if moved[key{k.group, k.run - 1, k.up}] != nil || k.run == last-commonRuns+1 {
			continue // not the first run of the change
		}
		c := Common{Group: k.group, From: k.run, To: k.run}
		for ; moved[key{k.group, c.To, k.up}] != nil; c.To++ {
			for i := range moved[key{k.group, c.To, k.up}] {
				if explained[i] == nil {
					explained[i] = map[int]bool{}
				}
				explained[i][c.To] = true
			}
		}
		if c.To--; c.From <= last-Recent {
			continue
		}
		for i := range all {
			if part, is := moved[k][i]; is {
				c.Series, c.Shifts = append(c.Series, i), append(c.Shifts, part)
			}
		}
		found = append(found, c)
	}
	slices.SortFunc(found, func(a, b Common) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.From, b.From), slices.Compare(a.Series, b.Series))
	})
	return found, explained
}
