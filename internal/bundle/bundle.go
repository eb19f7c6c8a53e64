// Package bundle makes one file of a run's record, to hand over, and verifies such files: each file of it by its
// digest, each outcome by judging the record again. The same run gives the same bytes. Reading takes bounded memory,
// whatever the input.
//
// A bundle is a zip file. Its names, in this order:
//
//	manifest.json       what there is, with sizes and digests
//	environment.json    agents, hosts, brokers as they described themselves: out of the outcomes
//	files/<n>/<name>    the files that the matrix had agents read (payloads), as they were when the bundle was made
//	run/…               the run's directory, as internal/runs describes it, and its tables
package bundle

import (
	"encoding/hex"
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

// ErrAltered is wrapped by errors about a bundle that is not what ctl bundle wrote.
var ErrAltered = errors.New("altered")

// Manifest says what a bundle has.
type Manifest struct {
	Format  int       `json:"format"`  // plan.RecordFormat
	Harness string    `json:"harness"` // version of the program that made the bundle
	Run     string    `json:"run"`
	Name    string    `json:"name"` // the matrix's
	Started time.Time `json:"started"`
	Tasks   int       `json:"tasks"`
	Done    int       `json:"done"`           // tasks with an outcome
	Read    []Read    `json:"read,omitempty"` // files that the matrix had agents read
	Files   []File    `json:"files"`          // by name; all but the manifest
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
	Name    string `json:"name,omitempty"`    // in the bundle; empty: it is not there
	Missing string `json:"missing,omitempty"` // why it is not
}

// Limits bound what is read of a bundle, whoever wrote it.
type Limits struct {
	Files    int   // in the archive
	Total    int64 // bytes unpacked
	Ratio    int64 // bytes unpacked for each byte of the bundle
	Document int64 // bytes of a file that is read whole; of one that is decoded at most plan.MaxFile
	Line     int   // bytes of a snapshot
}

// DefaultLimits are far beyond what runs are known to record.
func DefaultLimits() Limits {
	return Limits{Files: 1 << 20, Total: 64 << 30, Ratio: 300, Document: 256 << 20, Line: 32 << 20}
}

// altered is an error about one file of a bundle.
func altered(name, format string, args ...any) error {
	return fmt.Errorf("%s is %w: %s", name, ErrAltered, fmt.Sprintf(format, args...))
}

func hexOf(sum []byte) string { return hex.EncodeToString(sum) }
