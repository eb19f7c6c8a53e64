package history

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"lockstep/internal/compare"
	"lockstep/internal/plan"
	"lockstep/internal/stats"
)

// maxRuns limits the runs of a spread to the newest.
const maxRuns = 1000

// Spreads returns the run-to-run spreads of a cell by value name, over the runs with the broker version and hosts of
// the run like. The first run is like if it is a baseline, else the last baseline before it: a new baseline starts a
// new level. The last run began at until or before. Runs in except, and runs with a repetition that is not valid or not
// comparable, are left out. A repetition with a backlog counts as the worst value.
func (s *Store) Spreads(cell string, values []string, like string, until time.Time,
	except ...string) (map[string]plan.RunSpread, error) {
	baselines, err := s.Baselines()
	if err != nil {
		return nil, err
	}
	isBaseline := func(run string) bool {
		return slices.ContainsFunc(baselines, func(b plan.Baseline) bool { return b.Run == run })
	}
	return s.spreads(cell, values, like, isBaseline, until, except...)
}

func (s *Store) spreads(cell string, values []string, like string, isBaseline func(run string) bool, until time.Time,
	except ...string) (map[string]plan.RunSpread, error) {
	answers, err := s.Look(plan.HistoryCell{ID: cell}, values, until, maxRuns)
	if err != nil {
		return nil, err
	}
	all := map[string]plan.RunSpread{}
	for _, a := range answers {
		points := newPoints(a.Cells[0].Points)
		at := slices.IndexFunc(points, func(p Point) bool { return p.Run == like })
		if at < 0 {
			continue
		}
		begin := at
		for begin > 0 && !isBaseline(points[begin].Run) {
			begin--
		}
		version, environment := brokerVersion(a.Subjects[points[at].Repetitions[0].Subject]),
			points[at].Repetitions[0].Environment
		info, _ := plan.ValueNamed(a.Value)
		var medians []float64
		repetitions, backlogs := 0, 0
		for _, p := range points[begin:] {
			numbers, worst := make([]float64, 0, len(p.Repetitions)), 0
			for _, r := range p.Repetitions {
				switch {
				case r.Verdict != plan.Valid || r.Environment != environment ||
					brokerVersion(a.Subjects[r.Subject]) != version:
				case r.Value.NA == string(plan.Backlog):
					numbers, worst = append(numbers, info.Better.Worst()), worst+1
				case r.Value.Incomparable() == "":
					numbers = append(numbers, r.Value.Number)
				}
			}
			switch {
			case len(numbers) < len(p.Repetitions) || slices.Contains(except, p.Run):
			case 2*worst >= len(numbers): // no finite median
				backlogs++
			default:
				medians, repetitions = append(medians, stats.Median(numbers)), repetitions+len(numbers)
			}
		}
		spread := spreadOf(medians, repetitions)
		spread.Backlogs = backlogs
		all[a.Value] = spread
	}
	return all, nil
}

// spreadOf returns the spread of the medians of runs. repetitions is their total number of repetitions.
func spreadOf(medians []float64, repetitions int) plan.RunSpread {
	s := plan.RunSpread{Runs: len(medians)}
	if s.Runs < 2 {
		return s
	}
	s.Repetitions, s.Deviation = float64(repetitions)/float64(s.Runs), stats.Deviation(medians)
	logs := make([]float64, len(medians))
	for i, m := range medians {
		if logs[i] = math.Log(m); !(m > 0) {
			return s
		}
	}
	relative := stats.Deviation(logs)
	s.Relative = &relative
	return s
}

// brokerVersion returns the product and version of a subject, including those of side-by-side brokers.
func brokerVersion(s plan.Subject) string {
	words := []string{s.Product, s.Version, s.Label}
	for name, value := range s.Settings {
		if _, what := plan.SplitGroup(name); what != name &&
			slices.Contains([]string{"product", "version", "label"}, what) {
			words = append(words, name+"="+value)
		}
	}
	slices.Sort(words[3:])
	return strings.Join(words, "\x00")
}

// SpreadsOf returns the run-to-run spreads for a comparison, whose first run is the base. They cover the runs of the
// folder that began no later than the last compared run, without the compared runs except the base. An empty list of
// values stands for compare.Usual.
func (s *Store) SpreadsOf(compared []compare.Recorded, values []string) (func(cell, value string) plan.RunSpread,
	error) {
	if len(values) == 0 {
		values = compare.Usual()
	}
	var until time.Time
	var except []string
	for i, r := range compared {
		if r.Run.Started.After(until) {
			until = r.Run.Started
		}
		if i > 0 {
			except = append(except, r.Run.ID)
		}
	}
	base := compared[0].Run
	all := make(map[string]map[string]plan.RunSpread, len(base.Cells))
	for _, c := range base.Cells {
		spreads, err := s.Spreads(c.ID, values, base.ID, until, except...)
		if err != nil {
			return nil, fmt.Errorf("read the earlier runs of cell %s: %w", c.ID, err)
		}
		all[c.ID] = spreads
	}
	return func(cell, value string) plan.RunSpread { return all[cell][value] }, nil
}
