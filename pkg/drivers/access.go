package drivers

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Maximum sizes of files that a matrix may name, in bytes.
const (
	MaxFile    = 1 << 20 // secrets, certificates, keys, credentials
	MaxPayload = 1 << 30 // payload files
)

// Access determines what a matrix may use of the host that executes it: files, environment variables, and the host's
// cloud identity. References, and options that name files, must be read through it. The zero value permits nothing.
// Copies are safe for concurrent use.
type Access struct {
	full      bool
	folders   []string
	variables []string
	cloud     bool
}

// FullAccess permits everything that the user of the process may use. It is for matrices of that user.
func FullAccess() Access { return Access{full: true, cloud: true} }

// LimitedAccess permits the files below absolute folders, some variables, and the host's cloud identity if cloud is
// set. The error lists every folder and variable that cannot be permitted.
func LimitedAccess(folders, variables []string, cloud bool) (Access, error) {
	a := Access{variables: variables, cloud: cloud}
	var errs []error
	for _, folder := range folders {
		info, err := os.Stat(folder)
		switch {
		case !filepath.IsAbs(folder):
			err = errors.New("it is not absolute: give an absolute path")
		case err == nil && !info.IsDir():
			err = errors.New("it is not a folder: give the folder that the files are in")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("allow files of %q: %w", folder, err))
		}
		a.folders = append(a.folders, filepath.Clean(folder))
	}
	for _, name := range variables {
		if name == "" || strings.ContainsAny(name, "={}") || isOwn(name) {
			errs = append(errs, fmt.Errorf("allow variable %q: give the name of a variable that does not begin with %s",
				name, ownVariables))
		}
	}
	return a, errors.Join(errs...)
}

// ownVariables is the prefix of the variables that configure Lockstep itself, including its credentials.
const ownVariables = "LOCKSTEP_"

// isOwn ignores case, because Windows does.
func isOwn(name string) bool { return strings.HasPrefix(strings.ToUpper(name), ownVariables) }

// Getenv returns the value of a variable. The error for a variable that is not permitted is the same whether it is set
// or not.
func (a Access) Getenv(name string) (string, error) {
	switch {
	case a.full || slices.Contains(a.variables, name):
	case isOwn(name):
		return "", fmt.Errorf("variable %s is Lockstep's own: give the secret another name", name)
	default:
		return "", fmt.Errorf("variable %s may not be read on this host: allow it with --env %s", name, name)
	}
	value := os.Getenv(name)
	if value == "" {
		return "", fmt.Errorf("variable %s is not set on this host: set it", name)
	}
	return value, nil
}

// ReadFile returns the content of a regular file of at most MaxFile bytes. The error for a file that is not permitted
// is the same whether it exists or not.
func (a Access) ReadFile(path string) ([]byte, error) { return a.read(path, MaxFile) }

// ReadPayload is like ReadFile for payload files of at most MaxPayload bytes.
func (a Access) ReadPayload(path string) ([]byte, error) { return a.read(path, MaxPayload) }

// read checks the file after opening it, because the path may change in between. It does not wait for the writer of a
// FIFO, and does not read devices.
func (a Access) read(path string, limit int64) ([]byte, error) {
	file, err := a.open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // it was only read
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: it is not a regular file", path)
	}
	var text bytes.Buffer
	if info.Size() <= limit {
		text.Grow(int(info.Size()) + bytes.MinRead)
		if _, err := text.ReadFrom(io.LimitReader(file, limit+1)); err != nil { // it may grow
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
	}
	if size := max(info.Size(), int64(text.Len())); size > limit {
		return nil, fmt.Errorf("read %s: it has more than %d bytes", path, limit)
	}
	return text.Bytes(), nil
}

// open resolves symbolic links below the permitted folder. It rejects links that lead out of it.
func (a Access) open(path string) (*os.File, error) {
	const flags = os.O_RDONLY | syscall.O_NONBLOCK
	if a.full {
		return os.OpenFile(path, flags, 0)
	}
	for _, folder := range a.folders {
		name, err := filepath.Rel(folder, filepath.Clean(path))
		if err != nil || !filepath.IsLocal(name) {
			continue
		}
		root, err := os.OpenRoot(folder)
		if err != nil {
			return nil, err
		}
		defer root.Close() // the file stays open
		return root.OpenFile(name, flags, 0)
	}
	return nil, fmt.Errorf("file %s may not be read on this host: allow its folder with --files", path)
}

// LoadTLS adds certificates to a configuration: the authorities in ca, and the client certificate in cert and key.
// Empty paths are ignored.
func (a Access) LoadTLS(into *tls.Config, ca, cert, key string) error {
	if ca != "" {
		text, err := a.ReadFile(ca)
		if err != nil {
			return fmt.Errorf("read certificate authorities: %w", err)
		}
		into.RootCAs = x509.NewCertPool()
		if !into.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("read certificate authorities: %s has no PEM certificate", ca)
		}
	}
	if cert == "" && key == "" {
		return nil
	}
	certText, err := a.ReadFile(cert)
	if err != nil {
		return fmt.Errorf("read client certificate: %w", err)
	}
	keyText, err := a.ReadFile(key)
	if err != nil {
		return fmt.Errorf("read key of the client certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certText, keyText)
	if err != nil {
		return fmt.Errorf("read client certificate %s and key %s: %w", cert, key, err)
	}
	into.Certificates = []tls.Certificate{pair}
	return nil
}

// CloudIdentity returns an error unless a driver may use the host's own cloud credentials, from its environment, files
// or instance.
func (a Access) CloudIdentity() error {
	if a.cloud {
		return nil
	}
	return errors.New("the cloud identity of this host may not be used: give credentials in the options, or allow it with --cloud-identity")
}
