package history

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"lockstep/internal/plan"
)

// Limits of one answer, which must fit into a message of the control plane.
const (
	MaxCells  = 500
	MaxPoints = 10_000
)

// Answer answers a query. Names that do not exist are an error, which lists all of them and the existing ones.
func (s *Store) Answer(q plan.HistoryQuery) (plan.HistoryAnswer, error) {
	if err := Known(q.Value); err != nil {
		return plan.HistoryAnswer{}, err
	}
	a := newAnswer(q.Value)
	err := s.view(func(tx *bbolt.Tx) error {
		a.Runs = tx.Bucket(bucketRuns).Stats().KeyN
		cells, err := cellsOf(tx, q.Matrix)
		if err == nil {
			cells, err = choose(cells, q.Cells)
		}
		if err != nil {
			return err
		}
		if a.MoreCells = max(0, len(cells)-MaxCells); a.MoreCells > 0 {
			cells = cells[:MaxCells]
		}
		if q.Value == "" {
			a.Cells = append(a.Cells, cells...)
			return nil
		}
		most := MaxPoints
		if q.Max > 0 {
			most = min(most, q.Max)
		}
		r := reader{tx: tx, answers: []Answer{a}, places: map[string][]int{}}
		for _, c := range cells { // each cell has the same share
			r.answers[0].Cells = append(r.answers[0].Cells, c)
			left, err := r.read(c.ID, span{since: q.Since, runs: q.Runs, points: max(1, most/len(cells))})
			if err != nil {
				return err
			}
			r.answers[0].MorePoints += left
		}
		a = r.answers[0]
		return nil
	})
	return a.HistoryAnswer, err
}

func newAnswer(value string) Answer {
	return Answer{value, plan.HistoryAnswer{Cells: []plan.HistoryCell{}, Subjects: map[string]plan.Subject{},
		Environments: map[string]plan.Environment{}}}
}

// Look returns an answer per value, with the points of one cell. It reads only the newest runs that began at or before
// until, and runs limits their number.
func (s *Store) Look(cell plan.HistoryCell, values []string, until time.Time, runs int) (answers []Answer, err error) {
	for _, value := range values {
		a := newAnswer(value)
		a.Cells = append(a.Cells, cell)
		answers = append(answers, a)
	}
	err = s.view(func(tx *bbolt.Tx) error {
		r := reader{tx: tx, answers: answers, places: map[string][]int{}}
		_, err := r.read(cell.ID, span{until: until, runs: runs})
		return err
	})
	return answers, err
}

// Known returns an error if value is not the name of a value with a history. The empty name is accepted.
func Known(value string) error {
	_, name := plan.SplitGroup(value)
	var names []string
	for _, v := range plan.Values() {
		if v.Name == name {
			if v.Unit == plan.Text {
				return fmt.Errorf("%s is derived from other metrics and has no history; use publish.rate or consume.rate", name)
			}
			return nil
		}
		names = append(names, v.Name)
	}
	if value == "" {
		return nil
	}
	hint := ""
	if near := plan.ClosestMatch(name, names); near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return fmt.Errorf("unknown metric %q (see docs/values.md)%s", value, hint)
}

// cellsOf returns the cells of a matrix, the most recently run first. An empty matrix selects each cell once, with the
// matrix that last had it.
func cellsOf(tx *bbolt.Tx, matrix string) (all []plan.HistoryCell, err error) {
	matrices, last := map[string]bool{}, map[string]int{}
	err = tx.Bucket(bucketCells).ForEach(func(key, text []byte) error {
		var c plan.HistoryCell
		if err := json.Unmarshal(text, &c); err != nil {
			return fmt.Errorf("read cell %s: %w", key, ErrDamaged)
		}
		matrices[c.Matrix] = true
		switch i, has := last[c.ID]; {
		case matrix != "" && c.Matrix != matrix:
		case !has:
			last[c.ID] = len(all)
			all = append(all, c)
		case c.Last.After(all[i].Last):
			all[i] = c
		}
		return nil
	})
	if err == nil && matrix != "" && !matrices[matrix] && len(matrices) > 0 {
		err = fmt.Errorf("no matrix %q in the history; use one of %s", matrix,
			strings.Join(slices.Sorted(maps.Keys(matrices)), ", "))
	}
	slices.SortFunc(all, func(a, b plan.HistoryCell) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Matrix, b.Matrix), cmp.Compare(a.Name(), b.Name()),
			cmp.Compare(a.ID, b.ID))
	})
	return all, err
}

// choice is a value of an axis or, without an axis, a prefix of a cell id.
type choice struct{ axis, text string }

func (x choice) is(c plan.HistoryCell) bool {
	if x.axis == "" {
		return strings.HasPrefix(c.ID, x.text)
	}
	at, has := plan.Cell{Coordinates: c.Coordinates}.Coordinate(x.axis)
	return has && at == x.text
}

// choose returns the cells that match filters: ids and axis=value[,value]. A cell must match one of the ids and
// one value of each axis. A value may contain commas.
func choose(all []plan.HistoryCell, filters []string) ([]plan.HistoryCell, error) {
	exists := func(x choice) bool { return slices.ContainsFunc(all, x.is) }
	alternatives := map[string][]choice{}
	var faults []string
	for _, text := range filters {
		axis, list, isAxis := strings.Cut(text, "=")
		if !isAxis {
			axis, list = "", text
		}
		axis = strings.TrimSpace(axis)
		texts := []string{list}
		if !exists(choice{axis, list}) {
			texts = strings.Split(list, ",")
		}
		for _, text := range texts {
			x := choice{axis, strings.TrimSpace(text)}
			if alternatives[axis] = append(alternatives[axis], x); !exists(x) {
				faults = append(faults, x.missing(all))
			}
		}
	}
	if len(faults) > 0 && len(all) > 0 {
		return nil, fmt.Errorf("query the history: %s", strings.Join(faults, "; "))
	}
	return slices.DeleteFunc(all, func(c plan.HistoryCell) bool {
		for _, some := range alternatives {
			if !slices.ContainsFunc(some, func(x choice) bool { return x.is(c) }) {
				return true
			}
		}
		return false
	}), nil
}

// missing returns the error text for a choice that no cell matches, with the existing values.
func (x choice) missing(all []plan.HistoryCell) string {
	if x.axis == "" {
		return fmt.Sprintf("no cell id begins with %q; list the ids of a matrix with ctl plan, and those in the history with ctl history", x.text)
	}
	there := map[string]bool{}
	for _, c := range all {
		for _, at := range c.Coordinates {
			if at.Axis == x.axis {
				there[at.Text()] = true
			}
		}
	}
	return fmt.Sprintf("no cell has %s=%s; values of %s are: %s", x.axis, x.text, x.axis,
		cmp.Or(strings.Join(slices.Sorted(maps.Keys(there)), ", "), "none"))
}

// span limits the points that are read of a cell. A zero field is no limit.
type span struct {
	since, until time.Time // start of the runs, inclusive
	runs, points int       // maximum numbers, the newest first
}

// reader reads values of points into answers, within one transaction.
type reader struct {
	tx      *bbolt.Tx
	answers []Answer         // one per value
	places  map[string][]int // positions of the values by the fingerprint of names
}

// read adds the points of a cell to the last cell of each answer. left is the number of points beyond the limit
// span.points.
func (r *reader) read(cell string, in span) (left int, err error) {
	var started time.Time
	runs, points := 0, 0
	broken := newest(r.tx, cell, func(at time.Time, text []byte) bool {
		switch {
		case at.Before(in.since):
			return false
		case !in.until.IsZero() && at.After(in.until):
			return true
		case !at.Equal(started):
			started, runs = at, runs+1
		}
		switch {
		case in.runs > 0 && runs > in.runs:
			return false
		case in.points > 0 && points == in.points:
			left++
			return true
		}
		var p stored
		if err = json.Unmarshal(text, &p); err != nil {
			err = fmt.Errorf("read a point of cell %s: %w (%w)", cell, ErrDamaged, err)
			return false
		}
		points++
		err = r.add(p)
		return err == nil
	})
	for _, a := range r.answers {
		slices.Reverse(a.Cells[len(a.Cells)-1].Points)
	}
	return left, cmp.Or(err, broken)
}

// add adds a point to the last cell of the answers whose values it has, and resolves its fingerprints.
func (r *reader) add(p stored) error {
	places, has := r.places[p.Names]
	if !has {
		var names []string
		if _, err := get(r.tx.Bucket(bucketNames), p.Names, &names); err != nil {
			return err
		}
		for _, a := range r.answers {
			places = append(places, slices.Index(names, a.Value))
		}
		r.places[p.Names] = places
	}
	for i, at := range places {
		if at < 0 || at >= len(p.Value) {
			continue
		}
		if err := json.Unmarshal(p.Value[at], &p.HistoryPoint.Value); err != nil {
			return fmt.Errorf("read run %s: %w (%w)", p.Run, ErrDamaged, err)
		}
		a := &r.answers[i]
		c := &a.Cells[len(a.Cells)-1]
		c.Points = append(c.Points, p.HistoryPoint)
		if err := errors.Join(explain(r.tx, bucketSubjects, p.Subject, a.Subjects),
			explain(r.tx, bucketEnvironments, p.Environment, a.Environments)); err != nil {
			return err
		}
	}
	return nil
}

// explain adds the value of a fingerprint.
func explain[T any](tx *bbolt.Tx, bucket []byte, key string, to map[string]T) error {
	if _, has := to[key]; has {
		return nil
	}
	var x T
	_, err := get(tx.Bucket(bucket), key, &x)
	to[key] = x
	return err
}
