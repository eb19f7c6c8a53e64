package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Suffixes of temporary files, whose names begin with a dot. RemoveIncomplete removes those of records.
const (
	recordSuffix = ".tmp"
	outputSuffix = ".part"
)

// WriteRecord writes a file of a record. After it returns nil, path has data after any crash. Otherwise path is
// unchanged, unless only the sync of the directory failed, which is an error, too.
func WriteRecord(path string, data []byte, mode fs.FileMode) error {
	return replace(path, mode, recordSuffix, writes(data), func(err error) error { return err })
}

// WriteSecret writes a file like WriteRecord, but readable only by its owner. It ignores file systems that cannot sync
// directories.
func WriteSecret(path string, data []byte) error {
	return replace(path, 0o600, outputSuffix, writes(data), unlessUnsupported)
}

func writes(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// WriteOutput writes a file that can be made again. Readers see the old file or the complete new one. It ignores file
// systems that cannot sync directories. It writes directly to devices, pipes and the targets of links.
func WriteOutput(path string, mode fs.FileMode, write func(io.Writer) error) error {
	// a link, a device or a pipe
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
		if err != nil {
			return err
		}
		return errors.Join(write(file), file.Close())
	}
	return replace(path, mode, outputSuffix, write, unlessUnsupported)
}

func unlessUnsupported(err error) error {
	for _, ignored := range []error{syscall.EINVAL, errors.ErrUnsupported, fs.ErrPermission} {
		if errors.Is(err, ignored) {
			return nil
		}
	}
	return err
}

// folderError adds ErrFolder to a cause.
type folderError struct{ error }

func (e folderError) Unwrap() []error { return []error{e.error, ErrFolder} }

// replace writes a temporary file beside path and renames it. ofSync filters the error of the directory sync.
func replace(path string, mode fs.FileMode, suffix string, write func(io.Writer) error,
	ofSync func(error) error) error {
	dir := filepath.Dir(path)
	temp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*"+suffix)
	if err != nil {
		var why *fs.PathError
		if errors.As(err, &why) { // its path is that of the temporary file, which the caller did not name
			err = why.Err
		}
		return fmt.Errorf("write %s: write into folder %s: %w", path, dir, folderError{err})
	}
	err = write(temp)
	if err == nil {
		err = errors.Join(temp.Chmod(mode), temp.Sync())
	}
	err = errors.Join(err, temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(temp.Name()))
	}
	if err := ofSync(SyncDir(dir)); err != nil {
		return fmt.Errorf("write %s: sync folder %s: %w", path, dir, err)
	}
	return nil
}

// RemoveIncomplete removes temporary files of records that a killed process has left. It searches the directories that
// match pattern below root.
func RemoveIncomplete(root, pattern string) error {
	left, err := fs.Glob(os.DirFS(root), pattern+"/.*"+recordSuffix)
	if err != nil {
		return err
	}
	for _, file := range left {
		if err := os.Remove(filepath.Join(root, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// AppendLine appends a line, which must end with a line feed, in one write. An incomplete last line of a killed writer
// stays a separate line.
func AppendLine(path string, line []byte, mode fs.FileMode) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if last := []byte{'\n'}; end > 0 {
		if _, err := file.ReadAt(last, end-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	_, err = file.Write(line)
	return err
}
