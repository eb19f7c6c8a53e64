// Package files locks files between processes.
package files

import "errors"

// ErrLocked is returned by TryLock if another process, or another open file of this process, holds the lock.
var ErrLocked = errors.New("locked by another process")
