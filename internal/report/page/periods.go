package page

import (
	"slices"

	"example.org/lockstep/lockstep/internal/record"
)

// maxPoints limits the points of a drawing. In a longer task each point covers several seconds.
const maxPoints = 100

// period is one or several seconds of a task. It has the sums of counters and the merged histograms, because means of
// percentiles would be wrong.
type period struct {
	from, to float64 // seconds since the measurement began
	counts   map[record.Counter]int64
	hists    map[record.Series]*record.Hist
}

func (s *period) rate(c record.Counter) float64 {
	return float64(s.counts[c]) / (s.to - s.from)
}

// periodsOf returns the periods of a record without gaps: seconds without windows are included. each is the number of
// seconds per period.
func periodsOf(m *record.Merged) (periods []period, each int) {
	type bounds struct{ start, length int64 }
	known := map[int]bounds{}
	m.Range(func(w *record.Window) {
		if possible(w) {
			known[w.Index] = bounds{w.Start, w.Length}
		}
	})
	if len(known) == 0 {
		return nil, 1
	}
	var indexes []int
	for i := range known {
		indexes = append(indexes, i)
	}
	first, last := slices.Min(indexes), slices.Max(indexes)
	each = (last-first)/maxPoints + 1
	periods = make([]period, (last-first)/each+1)
	end := known[first].start
	for i := first; i <= last; i++ {
		s := &periods[(i-first)/each]
		if b, is := known[i]; is {
			end = b.start
		} else {
			known[i] = bounds{end, 1e9}
		}
		if s.counts == nil {
			*s = period{from: seconds(end), counts: map[record.Counter]int64{},
				hists: map[record.Series]*record.Hist{}}
		}
		end += known[i].length
		s.to = seconds(end)
	}
	m.Range(func(w *record.Window) {
		if possible(w) {
			periods[(w.Index-first)/each].add(w)
		}
	})
	return periods, each
}

// maxSeconds limits the distance of windows from the measurement to a week, so that a damaged record cannot exhaust the
// memory.
const maxSeconds = 7 * 24 * 3600

func possible(w *record.Window) bool {
	near := func(nanos int64) bool { return nanos > -maxSeconds*1e9 && nanos < maxSeconds*1e9 }
	return w.Index > -maxSeconds && w.Index < maxSeconds && near(w.Start) && w.Length > 0 && near(w.Length)
}

func (s *period) add(w *record.Window) {
	for c, n := range w.Counts {
		s.counts[record.Counter(c)] += n
	}
	for i, h := range w.Hists {
		if h == nil {
			continue
		}
		k := record.Series(i)
		if s.hists[k] == nil {
			s.hists[k] = record.NewHist()
		}
		s.hists[k].Merge(h)
	}
}
