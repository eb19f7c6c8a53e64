package bundle

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
)

// Bundle is an opened bundle whose manifest has been read and whose names have been checked. It is not safe for
// concurrent use.
type Bundle struct {
	Manifest Manifest

	size    int64
	limits  Limits
	entries map[string]*zip.File
	order   []*zip.File
}

// Open reads the directory and the manifest of a bundle within limits. An error about the contents wraps ErrAltered and
// names the file.
func Open(from io.ReaderAt, size int64, limits Limits) (*Bundle, error) {
	z, err := zip.NewReader(from, size)
	if err != nil {
		return nil,
			altered("the archive", "not readable as a bundle: %v; it is truncated, damaged or another type of file", err)
	}
	b := &Bundle{size: size, limits: limits, entries: map[string]*zip.File{}, order: z.File}
	if err := b.admit(z.File); err != nil {
		return nil, err
	}
	if err := b.document(manifestName, &b.Manifest); err != nil {
		return nil, err
	}
	if err := plan.CheckFormat(b.Manifest.Format); err != nil {
		return nil, fmt.Errorf("read bundle: %w (%s)", err, clip(b.Manifest.Harness))
	}
	return b, b.listed()
}

// admit checks names and sizes before anything is unpacked.
func (b *Bundle) admit(files []*zip.File) error {
	if len(files) > b.limits.Files {
		return altered("the archive", "%d files exceed the limit of %d", len(files), b.limits.Files)
	}
	const free = 1 << 20 // bytes that every bundle may have
	limit, total := uint64(min(b.limits.Total, free+b.limits.Ratio*b.size)), uint64(0)
	for _, f := range files {
		switch {
		case !valid(f.Name):
			return altered("the archive", "unexpected file %q", clip(f.Name))
		case b.entries[f.Name] != nil:
			return altered(f.Name, "duplicate file")
		case f.Method != zip.Deflate || f.Flags&1 != 0 || !f.Mode().IsRegular():
			return altered(f.Name, "not packed by ctl bundle create")
		}
		b.entries[f.Name] = f
		total += f.UncompressedSize64
		if f.UncompressedSize64 > limit || total > limit {
			return altered(f.Name, "the unpacked bundle exceeds %d bytes, the limit for %d bytes", limit, b.size)
		}
	}
	return nil
}

// listed compares the manifest with the files of the archive.
func (b *Bundle) listed() error {
	named := map[string]bool{manifestName: true}
	for _, f := range b.Manifest.Files {
		switch {
		case named[f.Name]:
			return altered(manifestName, "it lists %q twice", clip(f.Name))
		case b.entries[f.Name] == nil:
			return altered(clip(f.Name), "listed in the manifest, but missing")
		case f.Size < 0 || uint64(f.Size) != b.entries[f.Name].UncompressedSize64:
			return altered(f.Name, "%d bytes, the manifest has %d", b.entries[f.Name].UncompressedSize64, f.Size)
		}
		named[f.Name] = true
	}
	for _, f := range b.order {
		if !named[f.Name] {
			return altered(f.Name, "not listed in the manifest")
		}
	}
	return nil
}

// document decodes a JSON file.
func (b *Bundle) document(name string, into any) error {
	f := b.entries[name]
	if f == nil {
		return altered(name, "missing")
	}
	r, err := f.Open()
	if err != nil {
		return altered(name, "%v", err)
	}
	defer r.Close()
	if err := plan.Decode(r, min(b.limits.Document, plan.MaxFile), into); err != nil {
		return altered(name, "%v", err)
	}
	return nil
}

// Unpack writes the files below dir, which must be empty. It returns an error for each file that differs from the
// manifest.
func (b *Bundle) Unpack(dir string) ([]error, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("unpack bundle: %w", err)
	}
	defer root.Close()
	var found []error
	for _, f := range b.Manifest.Files {
		err := b.unpack(root, f)
		switch {
		case errors.Is(err, ErrAltered):
			found = append(found, err)
		case err != nil:
			return found, fmt.Errorf("unpack %s: %w", f.Name, err)
		}
	}
	return found, nil
}

func (b *Bundle) unpack(root *os.Root, f File) error {
	from, err := b.entries[f.Name].Open()
	if err != nil {
		return altered(f.Name, "%v", err)
	}
	defer from.Close()
	if err := root.MkdirAll(path.Dir(f.Name), 0o700); err != nil {
		return err
	}
	to, err := root.OpenFile(f.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	disk := &disk{to: to}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(disk, sum, b.guard(f)), io.LimitReader(from, f.Size+1))
	if closed := to.Close(); disk.err == nil {
		disk.err = closed
	}
	switch {
	case disk.err != nil:
		return disk.err
	case err != nil:
		return altered(f.Name, "%v", err)
	case n != f.Size || hex.EncodeToString(sum.Sum(nil)) != f.SHA256:
		return altered(f.Name, "sha256 %s, the manifest has %s", hex.EncodeToString(sum.Sum(nil)), clip(f.SHA256))
	}
	return nil
}

// disk separates errors of writing from those of reading.
type disk struct {
	to  io.Writer
	err error
}

func (d *disk) Write(p []byte) (int, error) {
	n, err := d.to.Write(p)
	d.err = err
	return n, err
}

// guard returns a writer that fails if a file exceeds the memory of its later readers: per line in .jsonl files, else
// as a whole.
func (b *Bundle) guard(f File) io.Writer {
	if !strings.HasPrefix(f.Name, runDir+"/") {
		return io.Discard
	}
	if strings.HasSuffix(f.Name, ".jsonl") {
		return &guard{max: b.limits.Line, lines: true}
	}
	return &guard{max: int(b.limits.Document)}
}

type guard struct {
	max, n int
	lines  bool
}

func (g *guard) Write(p []byte) (int, error) {
	for _, c := range p {
		if g.n++; g.n > g.max {
			return 0, fmt.Errorf("more than %d bytes in one file or line", g.max)
		}
		if g.lines && c == '\n' {
			g.n = 0
		}
	}
	return len(p), nil
}

// valid reports whether a name may occur in a bundle. It must be below run/ or files/ or be a known document, and be
// portable between file systems.
func valid(name string) bool {
	if !fs.ValidPath(name) || len(name) > 400 || strings.ContainsAny(name, `\:*?"<>|`) || strings.Count(name, "/") > 4 {
		return false
	}
	for _, part := range strings.Split(name, "/") {
		if strings.HasPrefix(part, ".") || strings.ContainsFunc(part, unicode.IsControl) {
			return false
		}
	}
	top, _, below := strings.Cut(name, "/")
	if !below {
		return name == manifestName || name == environmentName
	}
	return top == runDir || top == filesDir
}

// clip shortens a text of unknown origin for a message.
func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}

// Plan reads the plan of a bundle that was unpacked below dir.
func (b *Bundle) Plan(dir string) (plan.Run, error) {
	run, err := b.record(dir)
	if err != nil {
		return plan.Run{}, err
	}
	return run.Plan(), nil
}

// Environment reads the environment of the run.
func (b *Bundle) Environment() (e Environment, err error) {
	err = b.document(environmentName, &e)
	return e, err
}

// Digest returns the SHA-256 of a file from the manifest; "" if it is not listed.
func (b *Bundle) Digest(name string) string {
	for _, f := range b.Manifest.Files {
		if f.Name == name {
			return f.SHA256
		}
	}
	return ""
}

// record opens the run of a bundle that was unpacked below dir. It checks the plan, which is from an untrusted source.
func (b *Bundle) record(dir string) (*runs.Run, error) {
	name := path.Join(runDir, "run.json")
	run, err := runs.Open("", filepath.Join(dir, runDir)+string(filepath.Separator))
	if errors.Is(err, os.ErrNotExist) {
		return nil, altered(name, "missing")
	}
	if err != nil {
		return nil, altered(name, "%v", err)
	}
	for _, c := range run.Plan().Cells {
		for _, w := range c.Workload.Parts() {
			if err := w.Bounded(); err != nil {
				return nil, altered(name, "cell %s: %v", clip(c.ID), err)
			}
		}
	}
	return run, nil
}
