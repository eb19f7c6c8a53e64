// Package bundle writes a run's record as one file, to pass it on. It also verifies such files: each member by its
// digest, and each outcome by judging the record again. The same run gives the same bytes. Reading uses bounded memory
// for any input.
//
// A bundle is a zip file with these names, in this order:
//
//	manifest.json       the list of files, with sizes and digests
//	environment.json    agents, hosts and brokers with their own descriptions, from the outcomes
//	files/<n>/<name>    the files that the matrix had agents read (payloads), as of the time when the bundle was made
//	run/…               the run's directory, as internal/runs describes it, and its tables
package bundle

import (
	"errors"
	"fmt"
	"time"
)

const (
	manifestName    = "manifest.json"
	environmentName = "environment.json"
	runDir          = "run"
	tasksDir        = "tasks"
	filesDir        = "files"
)

// ErrAltered is wrapped by errors about a bundle that differs from what ctl bundle create has written.
var ErrAltered = errors.New("altered")

// Manifest describes the contents of a bundle.
type Manifest struct {
	Format  int       `json:"format"`  // plan.RecordFormat
	Harness string    `json:"harness"` // version of the program that made the bundle
	Run     string    `json:"run"`
	Name    string    `json:"name"` // of the matrix
	Started time.Time `json:"started"`
	Tasks   int       `json:"tasks"`
	Done    int       `json:"done"`           // number of tasks with an outcome
	Read    []Read    `json:"read,omitempty"` // files that the matrix had agents read
	Files   []File    `json:"files"`          // sorted by name; all except the manifest
}

// File is one file of a bundle.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Read is a file that the matrix had agents read.
type Read struct {
	Path    string `json:"path"`              // on the agents' hosts
	Name    string `json:"name,omitempty"`    // in the bundle; empty: not included
	Missing string `json:"missing,omitempty"` // why it is not included
}

// Limits bound the memory and disk space for reading a bundle from an untrusted source.
type Limits struct {
	Files    int   // number of files in the archive
	Total    int64 // unpacked bytes
	Ratio    int64 // unpacked bytes per byte of the bundle
	Document int64 // bytes of a file that is read as a whole; plan.MaxFile also limits decoded ones
	Line     int   // bytes of a snapshot
}

// DefaultLimits returns limits that are far above the sizes of known records.
func DefaultLimits() Limits {
	return Limits{Files: 1 << 20, Total: 64 << 30, Ratio: 300, Document: 256 << 20, Line: 32 << 20}
}

// altered returns an error about one file of a bundle. It wraps ErrAltered.
func altered(name, format string, args ...any) error {
	return fmt.Errorf("%s is %w: %s", name, ErrAltered, fmt.Sprintf(format, args...))
}
