package runs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// tempEnd ends the names, which begin with a dot, of files that are not whole yet.
const tempEnd = ".tmp"

// sweep removes from a run's directory what a process that was killed left half written.
func sweep(dir string) error {
	for _, pattern := range []string{".*" + tempEnd, tasksDir + "/*/.*" + tempEnd} {
		left, err := fs.Glob(os.DirFS(dir), pattern)
		if err != nil {
			return err
		}
		for _, file := range left {
			if err := os.Remove(filepath.Join(dir, file)); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
	}
	return nil
}

// writeAtomic makes path hold data, whole and on disk, or leaves it as it was.
func writeAtomic(path string, data []byte) error {
	dir := filepath.Dir(path)
	temp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*"+tempEnd)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(temp.Name()) // nothing to remove once it is renamed
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Chmod(fileMode)
	}
	if err == nil {
		err = temp.Sync()
	}
	if closed := temp.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// syncDir makes the names in a directory last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closed := d.Close(); err == nil {
		err = closed
	}
	return err
}
