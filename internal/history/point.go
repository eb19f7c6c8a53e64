package history

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
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
