package sink

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"lockstep/internal/files"
)

// ErrSpoolInUse tells that another process, or another sink of this one, has the spool of points: the run still goes on, or is written again.
var ErrSpoolInUse = errors.New("another process writes points of this run at the moment")

// claim is a folder that belongs to one sink of all processes of this host, until it leaves it or its process is gone. Below the path of a run's spool
// there is one for each InfluxDB, so that what waits for one is never given to another.
type claim struct {
	dir  string
	lock *os.File
}

const (
	lockName   = "lock"
	targetName = "target" // says in words what the folder is for
)

// claimSpool takes the folder of a target. Without make it is nil if there is none.
func claimSpool(path string, to Target, make bool) (*claim, error) {
	words := strings.Join([]string{to.scrub.Scrub(to.url), to.org, to.bucket}, "\n") + "\n"
	sum := sha256.Sum256([]byte(words))
	c := &claim{dir: filepath.Join(path, hex.EncodeToString(sum[:4]))}
	for range 20 { // who leaves takes an empty folder away meanwhile
		if _, err := os.Stat(c.dir); errors.Is(err, fs.ErrNotExist) && !make {
			return nil, nil
		}
		err := c.take(words)
		switch {
		case err == nil:
			return c, nil
		case errors.Is(err, files.ErrLocked):
			return nil, fmt.Errorf("take the spool of points %s: %w", c.dir, ErrSpoolInUse)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("take the spool of points %s: %w", c.dir, err)
		}
	}
	return nil, fmt.Errorf("take the spool of points %s: it is taken away again and again: %w", c.dir, ErrSpoolInUse)
}

// take makes and locks the folder. A lock that was unlinked meanwhile locks nothing: that is fs.ErrNotExist.
func (c *claim) take(words string) error {
	parent := filepath.Dir(c.dir)
	for _, dir := range []string{parent, c.dir} {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	file, err := os.OpenFile(filepath.Join(c.dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := files.TryLock(file); err != nil {
		return errors.Join(err, file.Close())
	}
	held, err := file.Stat()
	named, gone := os.Stat(file.Name())
	if err = errors.Join(err, gone); err != nil {
		return errors.Join(err, file.Close())
	}
	if !os.SameFile(held, named) {
		return errors.Join(fs.ErrNotExist, file.Close())
	}
	if err := os.WriteFile(filepath.Join(c.dir, targetName), []byte(words), 0o600); err != nil {
		return errors.Join(err, file.Close())
	}
	c.lock = file
	return nil
}

// leave lets others have the folder, with all that is in it.
func (c *claim) leave() error { return c.lock.Close() }

// remove takes the folder away with all that is in it, and the one above if nothing else is in it. The lock goes last.
func (c *claim) remove() error {
	entries, err := os.ReadDir(c.dir)
	for _, e := range entries {
		if e.Name() != lockName {
			err = errors.Join(err, os.Remove(filepath.Join(c.dir, e.Name())))
		}
	}
	if err == nil {
		err = os.Remove(filepath.Join(c.dir, lockName))
	}
	err = errors.Join(err, c.leave())
	if err == nil {
		_ = os.Remove(c.dir) // another has it already, if it is not empty
		_ = os.Remove(filepath.Dir(c.dir))
	}
	if err != nil {
		return fmt.Errorf("take away the spool of points: %w", err)
	}
	return nil
}

// Left is what earlier sinks left on disk of a run's points for one InfluxDB, held so that nobody adds to it.
type Left struct{ held *claim }

// Left takes what waits below path for this sink's InfluxDB. It is nil, which can be used, if nothing does. It fails with ErrSpoolInUse if another sink
// has it.
func (s *Sink) Left(path string) (*Left, error) {
	held, err := claimSpool(path, s.target, false)
	if held == nil || err != nil {
		return nil, err
	}
	return &Left{held}, nil
}

// Remove drops it: all of it has been written in another way.
func (l *Left) Remove() error {
	if l == nil {
		return nil
	}
	return l.held.remove()
}

// Close leaves it as it is. Either this or Remove is called, once.
func (l *Left) Close() error {
	if l == nil {
		return nil
	}
	return l.held.leave()
}
