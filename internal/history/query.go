package history

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"example.org/lockstep/lockstep/internal/plan"
)

// Limits of one answer, which must fit into a message of the control plane.
const (
	maxCells  = 500
	maxPoints = 10_000
)

// Known returns an error if value is not the name of a value with a history. The empty name is accepted, and the name
// of any metric of a broker, because only its driver declares it.
func Known(value string) error {
	_, name := plan.SplitGroup(value)
	if _, is := plan.MetricOf(name); is || value == "" {
		return nil
	}
	switch info, known := plan.Metrics(nil).ValueNamed(value); {
	case !known:
		return fmt.Errorf("unknown metric %q (see docs/reference/values.md)%s", value,
			plan.DidYouMean(name, plan.Metrics(nil).Names()))
	case info.Unit == plan.Text:
		return fmt.Errorf("%s is derived from other metrics and has no history; use publish.rate or consume.rate", name)
	}
	return nil
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
	for key, text := range newest(r.tx, cell) {
		if len(key) < 8 {
			return left, fmt.Errorf("read a point of cell %s: %w", cell, ErrDamaged)
		}
		at := time.Unix(0, int64(binary.BigEndian.Uint64(key))).UTC()
		if !in.until.IsZero() && at.After(in.until) {
			continue
		}
		if !at.Equal(started) {
			started, runs = at, runs+1
		}
		if at.Before(in.since) || in.runs > 0 && runs > in.runs {
			break
		}
		if in.points > 0 && points == in.points {
			left++
			continue
		}
		var p stored
		if err := json.Unmarshal(text, &p); err != nil {
			return left, fmt.Errorf("read a point of cell %s: %w (%w)", cell, ErrDamaged, err)
		}
		points++
		if err := r.add(p); err != nil {
			return left, err
		}
	}
	for _, a := range r.answers {
		slices.Reverse(a.History.Cells[len(a.History.Cells)-1].Points)
	}
	return left, nil
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
		c := &a.History.Cells[len(a.History.Cells)-1]
		c.Points = append(c.Points, p.HistoryPoint)
		if err := errors.Join(explain(r.tx, bucketSubjects, p.Subject, a.History.Subjects),
			explain(r.tx, bucketEnvironments, p.Environment, a.History.Environments)); err != nil {
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

// stored is the values of one outcome in the store.
type stored struct {
	plan.HistoryPoint
	// fingerprint of the names of values, which are the same in nearly all points of a cell
	Names string            `json:"names"`
	Value []json.RawMessage `json:"value"` // in the order of the names
}

// pointKey returns the key of a point, which orders the points of a cell by time: cell, start of the run, run,
// repetition.
func pointKey(cell string, p plan.HistoryPoint) []byte {
	key := binary.BigEndian.AppendUint64(append([]byte(cell), 0), uint64(p.At.UnixNano()))
	key = append(append(key, p.Run...), 0)
	return binary.BigEndian.AppendUint16(key, uint16(p.Repetition))
}

// putPoint stores the point of an outcome, and the values of its fingerprints if they are new.
func putPoint(tx *bbolt.Tx, run IndexedRun, o plan.Outcome) error {
	environment := plan.Environment{Hosts: o.Hosts()}
	var versions []string
	for _, a := range o.Agents {
		versions = append(versions, a.Version)
	}
	slices.Sort(versions)
	subject, values := subjectOf(o), valuesOf(o)
	names := slices.Sorted(maps.Keys(values))
	p := stored{HistoryPoint: plan.HistoryPoint{Run: o.Run, Matrix: run.Matrix, At: run.Started,
		Repetition: o.Repetition, Verdict: o.Verdict, Version: strings.Join(slices.Compact(versions), ", "),
		Subject: subject.Fingerprint, Environment: fingerprint(environment.Hosts)}, Names: fingerprint(names)}
	for _, name := range names {
		text, err := json.Marshal(values[name])
		if err != nil {
			return err
		}
		p.Value = append(p.Value, text)
	}
	for _, x := range []struct {
		bucket []byte
		key    string
		value  any
	}{{bucketEnvironments, p.Environment, environment}, {bucketSubjects, p.Subject, subject},
		{bucketNames, p.Names, names}} {
		if b := tx.Bucket(x.bucket); b.Get([]byte(x.key)) == nil {
			if err := put(b, x.key, x.value); err != nil {
				return err
			}
		}
	}
	b := tx.Bucket(bucketPoints)
	b.FillPercent = 0.95 // the points of a cell are appended in order, so that full pages stay full
	return put(b, string(pointKey(o.Cell, p.HistoryPoint)), p)
}

// newest returns the points of a cell, from the newest to the oldest: the key without the cell, and the stored text.
func newest(tx *bbolt.Tx, cell string) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, text []byte) bool) {
		cursor := tx.Bucket(bucketPoints).Cursor()
		last := cursor.Prev
		if after, _ := cursor.Seek(append([]byte(cell), 1)); after == nil {
			last = cursor.Last
		}
		prefix := append([]byte(cell), 0)
		for key, text := last(); bytes.HasPrefix(key, prefix); key, text = cursor.Prev() {
			if !yield(key[len(prefix):], text) {
				return
			}
		}
	}
}

// valuesOf returns the values of an outcome. Values of groups have the group's name as a prefix.
func valuesOf(o plan.Outcome) map[string]plan.Value {
	all := map[string]plan.Value{}
	maps.Copy(all, o.Values)
	for _, g := range o.Groups {
		for name, v := range g.Values {
			all[g.Name+"/"+name] = v
		}
	}
	return all
}

// subjectOf returns the broker of an outcome. With side-by-side brokers it has the settings of all of them, with the
// group's name as a prefix.
func subjectOf(o plan.Outcome) plan.Subject {
	subject := o.Subject
	for _, g := range o.Groups {
		if g.Subject == nil {
			continue
		}
		if subject.Settings == nil || g.Name == o.Groups[0].Name {
			subject = plan.Subject{Settings: map[string]string{}}
		}
		for name, value := range flat(*g.Subject) {
			subject.Settings[g.Name+"/"+name] = value
		}
	}
	if subject.Fingerprint == "" {
		subject.Fingerprint = plan.Fingerprint(subject)
	}
	return subject
}

func fingerprint(parts []string) string {
	sum := sha256.Sum256([]byte("environment-1\x00" + strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:6])
}
