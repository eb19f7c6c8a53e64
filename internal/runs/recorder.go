package runs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/files"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// recorder writes the record of an attempt without an outcome.
type recorder struct {
	dir   taskDir
	file  *os.File
	merge *record.Merged
}

// openRecorder starts the record of an attempt. If resume is true, it continues the record after its last complete
// line.
func openRecorder(dir taskDir, resume bool) (*recorder, error) {
	flag := os.O_CREATE | os.O_RDWR
	if !resume {
		flag |= os.O_TRUNC
	}
	file, err := os.OpenFile(dir.file(snapshotFile), flag, fileMode)
	if err != nil {
		return nil, err
	}
	w := &recorder{dir: dir, file: file, merge: record.NewMerged()}
	whole, _, err := readLines(file, func(s record.Snapshot) error {
		w.merge.Add(s)
		return nil
	})
	if err == nil {
		err = file.Truncate(whole)
	}
	if err == nil {
		_, err = file.Seek(whole, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return w, nil
}

// append adds a snapshot, without secrets, in one write. It skips a snapshot that the record already has (same agent
// and number).
func (w *recorder) append(s record.Snapshot) error {
	clean := s
	clean.Events = slices.Clone(s.Events)
	for i := range clean.Events {
		clean.Events[i].Detail = plan.Redact(clean.Events[i].Detail)
	}
	line, err := json.Marshal(clean)
	if err != nil || !w.merge.Add(s) {
		return err
	}
	_, err = w.file.Write(append(line, '\n'))
	return err
}

// copyFrom copies the record of an earlier attempt, so that the task's record is that of its outcome.
func (w *recorder) copyFrom(earlier taskDir) error {
	_, err := earlier.snapshots(w.append)
	if err == nil {
		err = os.WriteFile(w.dir.file(attemptFile), []byte(earlier.attempt()+"\n"), fileMode)
	}
	return err
}

// close syncs the snapshots and writes the histograms.
func (w *recorder) close() error {
	if err := errors.Join(w.file.Sync(), w.file.Close()); err != nil {
		return err
	}
	all, err := histograms(w.merge)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := files.WriteRecord(w.dir.file(name), all[name], fileMode); err != nil {
			return err
		}
	}
	return nil
}

// hlogs are the histograms of a task that are written for other tools, by file name without its extension.
var hlogs = []struct {
	name   string
	series record.Series
}{
	{"publish", record.Publish},
	{"publish-intended", record.PublishIntended},
	{"e2e", record.EndToEnd},
	{"unsent", record.UnsentAge},
	{"unanswered", record.Unanswered},
}

// histograms returns the histogram files of a task and of its groups, by name.
func histograms(m *record.Merged) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, group := range append([]string{""}, m.Groups()...) {
		part := m.Group(group)
		for _, h := range hlogs {
			name := strings.TrimSuffix(h.name+"."+group, ".") + ".hlog"
			if part.Hist(h.series).Count() == 0 {
				continue
			}
			if name != filepath.Base(name) { // plan.Run.CheckShape rejects such groups before
				return nil, fmt.Errorf("write %q: the name contains a path", name)
			}
			var text bytes.Buffer
			if err := part.WriteHlog(&text, h.series); err != nil {
				return nil, fmt.Errorf("write %s: %w", name, err)
			}
			files[name] = text.Bytes()
		}
	}
	return files, nil
}
