// Package history stores the values of the outcomes of many runs in one file, to show cells over time. It is filled
// from the records of runs, and can be rebuilt from them at any time. The names of baselines have their own file
// (Baselines).
//
// The file is beside the directories of the runs (File). Each call opens and closes it, so that several programs can
// use it. A writer locks it exclusively, and other programs wait.
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

// form is the version of the file format. Another version is an error, whose remedy is to rebuild the history.
const form = "3"

// patience is the maximum wait for other programs that use the file.
const patience = 30 * time.Second

// pages is the page size of the file in bytes. Points have about 4 kB and would only half fill small pages.
const pages = 16 << 10

// The buckets.
var (
	bucketMeta         = []byte("meta")
	bucketCells        = []byte("cells") // by cell and matrix
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
var ErrDamaged = errors.New("the history is damaged; rebuild it with ctl history reindex --rebuild, and set the baselines again with ctl history baseline set")

// Store is the history of the runs in one folder. It is safe for concurrent use.
type Store struct {
	root string // the folder of runs
	path string
}

// Of returns the history of the runs in a folder. It does not access the file.
func Of(root string) *Store { return &Store{root: root, path: filepath.Join(root, File)} }

// view calls read in a read-only transaction. It does not call it if the file does not exist or was never written to.
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

// update calls write in a transaction, which is committed completely or not at all. It creates the file if needed.
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

// open opens the file for one call. In a damaged file the library panics, or accesses unmapped memory. Both become
// errors, and the lock is released.
func (s *Store) open(readOnly bool, use func(*bbolt.DB) error) (err error) {
	var file *os.File
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			// The library's Close could block now. The file stays open because of its mapping, so it must be unlocked.
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

// empty reports whether a store was created and never written to.
func empty(tx *bbolt.Tx) bool {
	first, _ := tx.Cursor().First()
	return first == nil
}

// createBuckets creates the buckets of an empty store.
func (s *Store) createBuckets(tx *bbolt.Tx) error {
	for _, b := range buckets {
		if _, err := tx.CreateBucket(b); err != nil {
			return err
		}
	}
	return tx.Bucket(bucketMeta).Put(keyForm, []byte(form))
}

// checkVersion returns an error if a bucket is missing or the version is not form.
func (s *Store) checkVersion(tx *bbolt.Tx) error {
	for _, b := range buckets {
		if tx.Bucket(b) == nil {
			return fmt.Errorf("read %s: %w", s.path, ErrDamaged)
		}
	}
	if is := string(tx.Bucket(bucketMeta).Get(keyForm)); is != form {
		return fmt.Errorf("read %s: it has format %q, this program reads %q; rebuild it with ctl history reindex --rebuild", s.path, is, form)
	}
	return nil
}

// failed adds the remedy to an error.
func (s *Store) failed(verb string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%s %s: locked by another program for %v; retry", verb, s.path, patience)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum),
		errors.Is(err, bolterrors.ErrVersionMismatch):
		return fmt.Errorf("%s %s: %w (%w)", verb, s.path, ErrDamaged, err)
	case strings.HasPrefix(err.Error(), "file size too small"): // the library has no error value for it
		return fmt.Errorf("%s %s: %w (%w)", verb, s.path, ErrDamaged, err)
	}
	return fmt.Errorf("%s the history: %w", verb, err)
}

func put(b *bbolt.Bucket, key string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("store %s: %w", key, err)
	}
	return b.Put([]byte(key), text)
}

// get reads a value that put has written, and reports whether there is one.
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
