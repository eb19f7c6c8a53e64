package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Files are the folders of this host that matrices may name files of: secrets as ${file:/path}, payloads. The rest of the host's files is nobody's on
// the control plane: who submits a matrix also says where the broker is that its secrets are sent to.
type Files struct {
	roots []string
}

// OpenFiles takes absolute folders.
func OpenFiles(folders []string) (Files, error) {
	var f Files
	for _, folder := range folders {
		if !filepath.IsAbs(folder) {
			return f, fmt.Errorf("let matrices read files of %q: want an absolute path", folder)
		}
		info, err := os.Stat(folder)
		if err == nil && !info.IsDir() {
			err = errors.New("it is no folder")
		}
		if err != nil {
			return f, fmt.Errorf("let matrices read files of %s: %w", folder, err)
		}
		f.roots = append(f.roots, filepath.Clean(folder))
	}
	return f, nil
}

// ReadFile reads a regular file of the folders. Links that lead out of them do not count.
func (f Files) ReadFile(path string) (text []byte, err error) {
	err = f.within(path, func(root *os.Root, name string) error {
		text, err = root.ReadFile(name)
		return err
	})
	return text, err
}

// Check tells whether a file may be read.
func (f Files) Check(path string) error {
	return f.within(path, func(*os.Root, string) error { return nil })
}

func (f Files) within(path string, do func(root *os.Root, name string) error) error {
	for _, folder := range f.roots {
		name, err := filepath.Rel(folder, filepath.Clean(path))
		if err != nil || !filepath.IsLocal(name) {
			continue
		}
		root, err := os.OpenRoot(folder)
		if err != nil {
			return fmt.Errorf("open %s: %w", folder, err)
		}
		defer root.Close() //nolint:errcheck // nothing was written
		info, err := root.Stat(name)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || info.Size() > mostSize {
			return fmt.Errorf("%s is no regular file of at most %d bytes", path, mostSize)
		}
		return do(root, name)
	}
	return fmt.Errorf("matrices may not read %s on this host: start the agent with --files and the folder it is in", path)
}

// ownVariables are those with which the agent itself is told what it is, credentials included.
const ownVariables = "LOCKSTEP_"

// Getenv looks up what a matrix may know of the environment: all but what is the agent's own.
func Getenv(name string) (string, bool) {
	if strings.HasPrefix(name, ownVariables) {
		return "", false
	}
	return os.LookupEnv(name)
}
