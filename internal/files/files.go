// Package files locks files between processes and writes files atomically.
package files

import (
	"errors"
	"io/fs"
	"os"
)

// ErrLocked is returned, wrapped, if another process, or another open file of this process, holds the lock.
var ErrLocked = errors.New("locked by another process")

// ErrFolder is returned, wrapped, if a file cannot be created in its folder.
var ErrFolder = errors.New("no file can be created in the folder")

// OpenLocked opens a file and locks it exclusively, without waiting. The lock ends when the file is closed or the
// process ends.
func OpenLocked(path string, flag int, mode fs.FileMode) (*os.File, error) {
	file, err := os.OpenFile(path, flag, mode)
	if err != nil {
		return nil, err
	}
	if err := TryLock(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
