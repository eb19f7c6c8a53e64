package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"lockstep/internal/plan"
)

// What one answer holds at most: it has to fit into a message of the control plane, too.
const (
	MostCells  = 500
	MostPoints = 10_000
)

// Answer looks up what is asked for. The error of a question that names what is not there says all of it, and what there is.
func (s *Store) Answer(q plan.HistoryQuery) (a plan.HistoryAnswer, err error) {
	a.Subjects, a.Environments, a.Cells = map[string]plan.Subject{}, map[string]plan.Environment{}, []plan.HistoryCell{}
	if err := Known(q.Value); err != nil {
		return a, err
	}
	err = s.view(func(tx *bbolt.Tx) error {
		a.Runs = tx.Bucket(bucketRuns).Stats().KeyN
		all, err := cellsOf(tx, q.Matrix)
		if err != nil {
			return err
		}
		if a.Cells, err = choose(all, q); err != nil {
			return err
		}
		if more := len(a.Cells) - MostCells; more > 0 {
			a.Cells, a.MoreCells = a.Cells[:MostCells], more
		}
		if q.Value == "" {
			return nil
		}
		return fill(tx, q, &a)
	})
	return a, err
}

// Known says what is wrong with the name of a value: it is none that outcomes have, or one without a history. The empty name is right.
func Known(value string) error {
	_, name := plan.InGroup(value)
	var names []string
	for _, v := range plan.Values() {
		if v.Name == name {
			if v.Unit == plan.Text {
				return fmt.Errorf("%s is made of others for tables and has no history: ask for send.rate or receive.rate", name)
			}
			return nil
		}
		names = append(names, v.Name)
	}
	if value == "" {
		return nil
	}
	hint := ""
	if near := plan.Nearest(name, names); near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return fmt.Errorf("there is no value %q (docs/values.md lists them)%s", value, hint)
}

// cellsOf lists the cells that there are, those run last first.
func cellsOf(tx *bbolt.Tx, matrix string) ([]plan.HistoryCell, error) {
	var all []plan.HistoryCell
	matrices := map[string]bool{}
	err := tx.Bucket(bucketCells).ForEach(func(id, text []byte) error {
		var e cellEntry
		if err := json.Unmarshal(text, &e); err != nil {
			return fmt.Errorf("read cell %s: %w", id, ErrDamaged)
		}
		for name := range e.Matrices {
			matrices[name] = true
		}
		if c, has := e.cell(string(id), matrix); has {
			all = append(all, c)
		}
		return nil
	})
	if err == nil && matrix != "" && !matrices[matrix] && len(matrices) > 0 {
		var names []string
		for name := range matrices {
			names = append(names, name)
		}
		slices.Sort(names)
		err = fmt.Errorf("the history has no matrix %q (there are: %s)", matrix, strings.Join(names, ", "))
	}
	slices.SortFunc(all, func(a, b plan.HistoryCell) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Matrix, b.Matrix), cmp.Compare(a.Name(), b.Name()), cmp.Compare(a.ID, b.ID))
	})
	return all, err
}

// cell is what an entry knows of a cell in a matrix or, of none, in that which had it last.
func (e cellEntry) cell(id, matrix string) (c plan.HistoryCell, has bool) {
	c.ID = id
	for _, name := range slices.Sorted(maps.Keys(e.Matrices)) {
		in := e.Matrices[name]
		if matrix != "" && name != matrix || has && !in.Last.After(c.Last) {
			continue
		}
		has, c.Matrix, c.Coordinates, c.First, c.Last = true, name, in.Coordinates, in.First, in.Last
	}
	return c, has
}

// Look looks back from a moment: at one cell, by its whole id, in runs that began then or before; an answer for each value, with the newest most
// points. Of a cell that was never run the answers have no cell.
func (s *Store) Look(cell string, values []string, until time.Time, most int) ([]plan.HistoryAnswer, error) {
	answers := make([]plan.HistoryAnswer, len(values))
	err := s.view(func(tx *bbolt.Tx) error {
		var e cellEntry
		if _, err := get(tx.Bucket(bucketCells), cell, &e); err != nil {
			return err
		}
		c, has := e.cell(cell, "")
		if !has {
			return nil
		}
		d := dictionaryOf(tx)
		for i, value := range values {
			a := &answers[i]
			*a = plan.HistoryAnswer{Cells: []plan.HistoryCell{c}, Subjects: map[string]plan.Subject{}, Environments: map[string]plan.Environment{}}
			wanted, has := d.find(value)
			if !has {
				continue
			}
			left := most
			if err := points(tx, d, &a.Cells[0], wanted, span{until: until}, func() bool { left--; return left >= 0 }, a); err != nil {
				return err
			}
		}
		return nil
	})
	return answers, err
}

// choose keeps the cells that are asked for.
func choose(all []plan.HistoryCell, q plan.HistoryQuery) ([]plan.HistoryCell, error) {
	var ids []string
	wanted := map[string][]string{} // by axis
	var faults []string
	for _, text := range q.Cells {
		axis, list, is := strings.Cut(text, "=")
		if !is {
			if !slices.ContainsFunc(all, func(c plan.HistoryCell) bool { return strings.HasPrefix(c.ID, text) }) {
				faults = append(faults, fmt.Sprintf("no cell's id begins with %q: ctl plan shows the ids of a matrix, ctl history those that have been run", text))
			}
			ids = append(ids, text)
			continue
		}
		axis = strings.TrimSpace(axis)
		texts, fault := valuesOf(all, axis, list)
		if fault != "" {
			faults = append(faults, fault)
		}
		wanted[axis] = append(wanted[axis], texts...)
	}
	if len(faults) > 0 && len(all) > 0 {
		return nil, fmt.Errorf("look into the history: %s", strings.Join(faults, "; "))
	}
	return slices.DeleteFunc(all, func(c plan.HistoryCell) bool {
		if len(ids) > 0 && !slices.ContainsFunc(ids, func(id string) bool { return strings.HasPrefix(c.ID, id) }) {
			return true
		}
		for axis, texts := range wanted {
			if is, has := (plan.Cell{Coordinates: c.Coordinates}).Coordinate(axis); !has || !slices.Contains(texts, is) {
				return true
			}
		}
		return false
	}), nil
}

// valuesOf reads the right side of an axis expression, as --only does: one value that has commas, or several.
func valuesOf(all []plan.HistoryCell, axis, list string) (texts []string, fault string) {
	var axes, values []string
	for _, c := range all {
		for _, x := range c.Coordinates {
			axes = append(axes, x.Axis)
			if x.Axis == axis {
				values = append(values, x.Text())
			}
		}
	}
	slices.Sort(axes)
	slices.Sort(values)
	axes, values = slices.Compact(axes), slices.Compact(values)
	if len(values) == 0 {
		return nil, fmt.Sprintf("no cell has an axis %q (there are: %s)", axis, strings.Join(axes, ", "))
	}
	if slices.Contains(values, list) {
		return []string{list}, ""
	}
	for _, text := range strings.Split(list, ",") {
		text = strings.TrimSpace(text)
		if !slices.Contains(values, text) {
			return nil, fmt.Sprintf("axis %s has no value %q (there are: %s)", axis, text, strings.Join(values, ", "))
		}
		texts = append(texts, text)
	}
	return texts, ""
}

// fill reads the points of the answer's cells, each cell the same share of the newest.
func fill(tx *bbolt.Tx, q plan.HistoryQuery, a *plan.HistoryAnswer) error {
	most := MostPoints
	if q.Most > 0 {
		most = min(most, q.Most)
	}
	d := dictionaryOf(tx)
	wanted, has := d.find(q.Value)
	if !has {
		return nil
	}
	for i := range a.Cells {
		c := &a.Cells[i]
		share := max(1, most/len(a.Cells))
		if err := points(tx, d, c, wanted, span{since: q.Since}, func() bool { share--; return share >= 0 }, a); err != nil {
			return err
		}
	}
	return nil
}

// span is of when runs began, both ends included; a zero time is no end.
type span struct{ since, until time.Time }

// points reads the points of a cell from the newest back, while there is room for one more.
func points(tx *bbolt.Tx, d *dictionary, c *plan.HistoryCell, wanted uint64, in span, room func() bool, a *plan.HistoryAnswer) error {
	prefix := append([]byte(c.ID), 0)
	cursor := tx.Bucket(bucketPoints).Cursor()
	var value []byte
	key, _ := cursor.Seek(append([]byte(c.ID), 1))
	if key == nil {
		key, value = cursor.Last()
	} else {
		key, value = cursor.Prev()
	}
	for ; bytes.HasPrefix(key, prefix); key, value = cursor.Prev() {
		at, run, repetition, err := readKey(key, c.ID)
		if err != nil {
			return err
		}
		if at.Before(in.since) {
			break
		}
		if !in.until.IsZero() && at.After(in.until) {
			continue
		}
		h, v, has, err := d.decode(value, wanted)
		if err != nil {
			return fmt.Errorf("read cell %s of run %s: %w", c.ID, run, err)
		}
		if !has {
			continue
		}
		if !room() {
			a.MorePoints++
			continue
		}
		c.Points = append(c.Points, plan.HistoryPoint{Run: run, At: at, Repetition: repetition, Value: v, Verdict: plan.Verdict(h.verdict),
			Subject: h.subject, Environment: h.environment, Version: h.version})
		if err := explain(tx, h, a); err != nil {
			return err
		}
	}
	slices.Reverse(c.Points)
	return nil
}

// explain adds what the fingerprints of a point stand for.
func explain(tx *bbolt.Tx, h head, a *plan.HistoryAnswer) error {
	if _, has := a.Subjects[h.subject]; !has {
		var s plan.Subject
		if _, err := get(tx.Bucket(bucketSubjects), h.subject, &s); err != nil {
			return err
		}
		a.Subjects[h.subject] = s
	}
	if _, has := a.Environments[h.environment]; !has {
		var e plan.Environment
		if _, err := get(tx.Bucket(bucketEnvironments), h.environment, &e); err != nil {
			return err
		}
		a.Environments[h.environment] = e
	}
	return nil
}
