package history

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"example.org/lockstep/lockstep/internal/plan"
)

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
