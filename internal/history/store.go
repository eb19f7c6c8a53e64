// Package history keeps the values of all outcomes of many runs in one file, so that a cell can be looked at over time.
// It is filled from the records of runs, and can be rebuilt from them at any time. The names of baselines have a file
// of their own (Baselines).
//
// The file is beside the directories of the runs (File). It is opened for each call and closed again, so that several
// programs may use one; whoever writes has it for himself meanwhile, and the others wait.
package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"lockstep/internal/files"
)

// File is the name of the store in the folder of runs.
const File = "history.db"

// form is the version of what is in the file. One of another is made anew.
const form = "3"

// patience is how long a call waits for others that use the file.
const patience = 30 * time.Second

// pages are the size of the file's: of small ones, points of some 4 kB each would fill half.
const pages = 16 << 10

// The buckets.
var (
	bucketMeta         = []byte("meta")
	bucketCells        = []byte("cells") // of each matrix
	bucketRuns         = []byte("runs")
	bucketSubjects     = []byte("subjects")     // by fingerprint
	bucketEnvironments = []byte("environments") // by fingerprint
	bucketNames        = []byte("names")        // of values, by fingerprint
	bucketPoints       = []byte("points")

	buckets = [][]byte{bucketMeta, bucketCells, bucketRuns, bucketSubjects, bucketEnvironments, bucketNames,
		bucketPoints}
	keyForm = []byte("form")
)

// ErrDamaged is wrapped by the error of a store that cannot be read. It can be rebuilt from the records.
var ErrDamaged = errors.New("the history is damaged; rebuild it and set the baselines again: ctl history reindex --rebuild, ctl baseline set")

// Store is the history of the runs in one folder. It is safe for concurrent use.
type Store struct {
	root string // of the runs
	path string
}

// Of is the history of the runs in a folder. Nothing is read or written yet.
func Of(root string) *Store { return &Store{root: root, path: filepath.Join(root, File)} }

// view reads the store; there is nothing in one that is not there, or that whoever made it was stopped before it had
// anything.
func (s *Store) view(read func(*bbolt.Tx) error) error {
	info, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	return s.open(true, func(db *bbolt.DB) error {
		return db.View(func(tx *bbolt.Tx) error {
			if empty(tx) {
				return nil
			}
			if err := s.checkVersion(tx); err != nil {
				return err
			}
			return read(tx)
		})
	})
}

// update writes to the store, all of it or nothing, and makes it if it is not there.
func (s *Store) update(write func(*bbolt.Tx) error) error {
	return s.open(false, func(db *bbolt.DB) error {
		return db.Update(func(tx *bbolt.Tx) error {
			if empty(tx) {
				if err := s.createBuckets(tx); err != nil {
					return s.failed("make", err)
				}
			}
			if err := s.checkVersion(tx); err != nil {
				return err
			}
			return write(tx)
		})
	})
}

// open opens a store for one call. What the library does about pages that are not what they must be, it panics, or that
// are not there, which is a fault of memory, becomes an error, and leaves no lock behind.
func (s *Store) open(readOnly bool, use func(*bbolt.DB) error) (err error) {
	var file *os.File
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			// The library's own Close may wait for what has just been left. The mapping, which stays, keeps a file
			// open: unlocked it has to be.
			_ = errors.Join(files.Unlock(file), file.Close())
			err = fmt.Errorf("read %s: %w (%v)", s.path, ErrDamaged, r)
		}
	}()
	db, err := bbolt.Open(s.path, 0o644, &bbolt.Options{ReadOnly: readOnly, Timeout: patience, PageSize: pages,
		OpenFile: func(name string, flag int, mode fs.FileMode) (f *os.File, err error) {
			f, err = os.OpenFile(name, flag, mode)
			file = f
			return f, err
		}})
	if err != nil {
		return s.failed("open", err)
	}
	return errors.Join(use(db), db.Close())
}

// empty reports whether a store was made and never written to.
func empty(tx *bbolt.Tx) bool {
	first, _ := tx.Cursor().First()
	return first == nil
}

// createBuckets makes an empty store.
func (s *Store) createBuckets(tx *bbolt.Tx) error {
	for _, b := range buckets {
		if _, err := tx.CreateBucket(b); err != nil {
			return err
		}
	}
	return tx.Bucket(bucketMeta).Put(keyForm, []byte(form))
}

// checkVersion checks that the store has all buckets, and the version that this program reads.
func (s *Store) checkVersion(tx *bbolt.Tx) error {
	for _, b := range buckets {
		if tx.Bucket(b) == nil {
			return fmt.Errorf("read %s: %w", s.path, ErrDamaged)
		}
	}
	if is := string(tx.Bucket(bucketMeta).Get(keyForm)); is != form {
		return fmt.Errorf("read %s: it has the form %q, and this program reads %q; rebuild it: ctl history reindex --rebuild", s.path, is, form)
	}
	return nil
}

// failed says what did not work, and what to do about it.
func (s *Store) failed(verb string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%s %s: another program has been writing to it for %v; try again", verb, s.path, patience)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum),
		errors.Is(err, bolterrors.ErrVersionMismatch):
		return fmt.Errorf("%s %s: %w (%w)", verb, s.path, ErrDamaged, err)
	case strings.HasPrefix(err.Error(), "file size too small"): // the library has no name for it
		return fmt.Errorf("%s %s: %w (%w)", verb, s.path, ErrDamaged, err)
	}
	return fmt.Errorf("%s the history: %w", verb, err)
}

func put(b *bbolt.Bucket, key string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("keep %s: %w", key, err)
	}
	return b.Put([]byte(key), text)
}

// get reads what put has written; it reports whether there is any.
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
