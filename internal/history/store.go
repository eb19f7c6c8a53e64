// Package history keeps the values of all outcomes of many runs in one file, so that a cell can be looked at over time. It is filled from the
// records of runs, and can be made anew from them at any time: nothing is in it alone, but for the names of baselines.
//
// The file is beside the directories of the runs (File). It is opened for each call and closed again, so that several programs may use one;
// whoever writes has it for himself meanwhile, and the others wait.
package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
)

// File is the name of the store in the folder of runs.
const File = "history.db"

// form is the version of what is in the file. One of another is made anew.
const form = "1"

// patience is how long a call waits for others that use the file.
const patience = 30 * time.Second

// The buckets.
var (
	bucketMeta         = []byte("meta")
	bucketNames        = []byte("names") // text → its number
	bucketTexts        = []byte("texts") // number → text
	bucketCells        = []byte("cells")
	bucketRuns         = []byte("runs")
	bucketSubjects     = []byte("subjects")
	bucketEnvironments = []byte("environments")
	bucketPoints       = []byte("points")
	bucketBaselines    = []byte("baselines")

	buckets = [][]byte{bucketMeta, bucketNames, bucketTexts, bucketCells, bucketRuns, bucketSubjects, bucketEnvironments, bucketPoints, bucketBaselines}
	keyForm = []byte("form")
)

// ErrDamaged is wrapped by the error of a store that cannot be read. It can be made anew from the records.
var ErrDamaged = errors.New("the history is damaged; make it anew: ctl history reindex --anew")

// Store is the history of the runs in one folder. It is safe for concurrent use.
type Store struct {
	root string // of the runs
	path string
}

// Of is the history of the runs in a folder. Nothing is read or written yet.
func Of(root string) *Store { return &Store{root: root, path: filepath.Join(root, File)} }

// view reads the store; there is nothing in one that is not there.
func (s *Store) view(read func(*bbolt.Tx) error) (err error) {
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	db, err := bbolt.Open(s.path, 0o644, &bbolt.Options{ReadOnly: true, Timeout: patience})
	if err != nil {
		return s.failed("open", err)
	}
	defer db.Close()
	defer s.whole(&err)
	return db.View(func(tx *bbolt.Tx) error {
		if err := s.formed(tx); err != nil {
			return err
		}
		return read(tx)
	})
}

// update writes to the store at path, all of it or nothing, and makes it if it is not there.
func (s *Store) update(path string, write func(*bbolt.Tx) error) (err error) {
	db, err := bbolt.Open(path, 0o644, &bbolt.Options{Timeout: patience})
	if err != nil {
		return s.failed("open", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	defer s.whole(&err)
	return db.Update(func(tx *bbolt.Tx) error {
		if tx.Bucket(bucketMeta) == nil {
			for _, b := range buckets {
				if _, err := tx.CreateBucket(b); err != nil {
					return s.failed("make", err)
				}
			}
			if err := tx.Bucket(bucketMeta).Put(keyForm, []byte(form)); err != nil {
				return s.failed("make", err)
			}
		}
		if err := s.formed(tx); err != nil {
			return err
		}
		return write(tx)
	})
}

func (s *Store) formed(tx *bbolt.Tx) error {
	for _, b := range buckets {
		if tx.Bucket(b) == nil {
			return fmt.Errorf("read %s: %w", s.path, ErrDamaged)
		}
	}
	if is := string(tx.Bucket(bucketMeta).Get(keyForm)); is != form {
		return fmt.Errorf("read %s: it has the form %q, and this program reads %q; make it anew: ctl history reindex --anew", s.path, is, form)
	}
	return nil
}

// failed says what did not work, and what to do about it.
func (s *Store) failed(verb string, err error) error {
	switch {
	case errors.Is(err, bbolt.ErrTimeout):
		return fmt.Errorf("%s %s: another program has been writing to it for %v; try again", verb, s.path, patience)
	case errors.Is(err, bbolt.ErrInvalid), errors.Is(err, bbolt.ErrChecksum), errors.Is(err, bbolt.ErrVersionMismatch):
		return fmt.Errorf("%s %s: %w (%w)", verb, s.path, ErrDamaged, err)
	}
	return fmt.Errorf("%s the history: %w", verb, err)
}

// whole makes an error of what the library does about pages that are not what they must be: it panics.
func (s *Store) whole(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("read %s: %w (%v)", s.path, ErrDamaged, r)
	}
}

func put(b *bbolt.Bucket, key string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("keep %s: %w", key, err)
	}
	return b.Put([]byte(key), text)
}

// get reads what put has written; it tells whether there is any.
func get(b *bbolt.Bucket, key string, v any) (bool, error) {
	text := b.Get([]byte(key))
	if text == nil {
		return false, nil
	}
	if err := json.Unmarshal(text, v); err != nil {
		return false, fmt.Errorf("read %s: %w (%w)", key, ErrDamaged, err)
	}
	return true, nil
}
