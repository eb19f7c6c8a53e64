package bundle

import (
	"archive/zip"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/sampling"
)

// source is the contents of a file of the bundle, from disk or from memory.
type source struct {
	file File
	path string
	data []byte
}

// Write writes the bundle of a run and returns its manifest. harness is the version of this program. A record with a
// text that looks like a password is an error, because Lockstep never writes one. created reports whether this user
// created the run. The files that the matrix had agents read are included only then, because the author of another
// record chose their paths.
func Write(w io.Writer, run *runs.Run, harness string, created bool) (Manifest, error) {
	m, sources, err := gather(run, harness, created)
	if err != nil {
		return m, fmt.Errorf("bundle run %s: %w", run.Plan().ID, err)
	}
	if err := archive(w, sources); err != nil {
		return m, fmt.Errorf("bundle run %s: %w", run.Plan().ID, err)
	}
	return m, nil
}

// gather returns the files of the bundle, the manifest first.
func gather(run *runs.Run, harness string, created bool) (Manifest, []source, error) {
	p := run.Plan()
	outcomes, err := run.Outcomes()
	if err != nil {
		return Manifest{}, nil, err
	}
	m := Manifest{Format: plan.RecordFormat, Harness: harness, Run: p.ID, Name: p.Name, Started: p.Started,
		Tasks: sampling.Of(p, outcomes).Tasks(), Done: len(outcomes)}
	environment, err := encode(EnvironmentOf(p, outcomes))
	if err != nil {
		return m, nil, err
	}
	all := []source{{file: File{Name: environmentName}, data: environment}}
	m.Read = payloads(p, created)
	for _, r := range m.Read {
		if r.Name != "" {
			all = append(all, source{file: File{Name: r.Name}, path: r.Path})
		}
	}
	tables, err := report.Files(p, outcomes)
	if err != nil {
		return m, nil, err
	}
	record, err := recorded(run.Dir(), tables)
	if err != nil {
		return m, nil, err
	}
	all = append(all, record...)
	for name, data := range tables {
		all = append(all, source{file: File{Name: path.Join(runDir, name)}, data: data})
	}
	slices.SortFunc(all, func(a, b source) int { return strings.Compare(a.file.Name, b.file.Name) })
	for i := range all {
		if err := all[i].digest(); err != nil {
			return m, nil, err
		}
		m.Files = append(m.Files, all[i].file)
	}
	if again, err := run.Outcomes(); err != nil || !reflect.DeepEqual(outcomes, again) {
		return m, nil, errors.Join(err, errMeanwhile)
	}
	text, err := encode(m)
	return m, append([]source{{file: File{Name: manifestName}, data: text}}, all...), err
}

// errMeanwhile is the error of a run that is still written: its outcomes and files would be of different times.
var errMeanwhile = errors.New("the record has changed meanwhile; bundle the run after its end (stop it with ctl runs cancel)")

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

// recorded lists the files of a run's directory without the tables, which are made again.
func recorded(dir string, tables map[string][]byte) ([]source, error) {
	var all []source
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != "." && strings.HasPrefix(d.Name(), "."): // incompletely written
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir() || tables[name] != nil,
			slices.Contains([]string{"report.html", "digest.md", "digest.html"}, name): // can be made again
			return nil
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file; remove it from the record", filepath.Join(dir, name))
		}
		f := source{file: File{Name: path.Join(runDir, name)}, path: filepath.Join(dir, filepath.FromSlash(name))}
		all = append(all, f)
		return f.innocent()
	})
	return all, err
}

// innocent returns an error if a file contains a text that looks like a secret.
func (f source) innocent() error {
	if strings.HasSuffix(f.file.Name, ".hlog") {
		return nil
	}
	file, err := f.open()
	if err != nil {
		return err
	}
	defer file.Close()
	for r := bufio.NewReader(file); ; { // by line: the snapshots of a long task do not fit into memory
		line, err := r.ReadString('\n')
		if plan.Redact(line) != line {
			return fmt.Errorf("%s may contain a password; nothing was written; replace it with ***", f.path)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// payloads lists the files that the matrix had agents read. Secrets (${file:…}) are not among them.
func payloads(p plan.Run, created bool) []Read {
	seen := map[string]bool{}
	var all []Read
	for _, c := range p.Cells {
		for _, w := range c.Workload.Parts() {
			file := w.Message.Payload.File
			if file == "" || seen[file] {
				continue
			}
			seen[file] = true
			r := Read{Path: file, Name: path.Join(filesDir, strconv.Itoa(len(all)+1),
				path.Base(filepath.ToSlash(file)))}
			if r.Missing = missing(p, r, created); r.Missing != "" {
				r.Name = ""
			}
			all = append(all, r)
		}
	}
	return all
}

// missing returns the reason for not including a payload file; empty: it is included.
func missing(p plan.Run, r Read, created bool) string {
	switch {
	case p.Source.Server != "":
		return "it was read on the hosts of a fleet's agents"
	case !created:
		return "the run was not created by the user who made the bundle"
	case !valid(r.Name):
		return "its name is not valid in a bundle"
	}
	file, err := source{path: r.Path}.open()
	switch {
	case errors.Is(err, errIrregular):
		return "not a regular file"
	case err != nil:
		return "not found on the host where the bundle was made"
	}
	_ = file.Close()
	return ""
}

// errIrregular is wrapped by the error of opening anything but a regular file, such as a pipe.
var errIrregular = errors.New("not a regular file")

// open opens the contents. It checks the opened file, as another one may have its path later.
func (f source) open() (io.ReadCloser, error) {
	if f.path == "" {
		return io.NopCloser(bytes.NewReader(f.data)), nil
	}
	file, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe does not wait
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w", f.path, errIrregular)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

func (f *source) digest() error {
	if !valid(f.file.Name) {
		return fmt.Errorf("%q is not a valid file name in a bundle", f.file.Name)
	}
	r, err := f.open()
	if err != nil {
		return err
	}
	defer r.Close()
	h := sha256.New()
	f.file.Size, err = io.Copy(h, r)
	f.file.SHA256 = hex.EncodeToString(h.Sum(nil))
	return err
}

// archive writes the files as a zip archive.
func archive(w io.Writer, files []source) error {
	z := zip.NewWriter(w)
	for _, f := range files {
		if err := f.add(z); err != nil {
			return fmt.Errorf("%s: %w", f.file.Name, err)
		}
	}
	return z.Close()
}

// add writes one file. It fails if the file has changed since its digest was computed.
func (f source) add(z *zip.Writer) error {
	to, err := z.CreateHeader(&zip.FileHeader{Name: f.file.Name, Method: zip.Deflate})
	if err != nil {
		return err
	}
	from, err := f.open()
	if err != nil {
		return err
	}
	defer from.Close()
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(to, h), from); err != nil {
		return err
	}
	if f.file.SHA256 != "" && hex.EncodeToString(h.Sum(nil)) != f.file.SHA256 {
		return errMeanwhile
	}
	return nil
}
