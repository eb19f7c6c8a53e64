package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// site has the folders and ports of a lab. Its methods are safe for concurrent use.
type site struct {
	programs string // folder of downloads and builds, shared by all labs of this user
	dir      string // folder of this lab
	owned    *os.File

	mu       sync.Mutex
	out      io.Writer
	reserved []net.Listener
}

// newSite creates a folder for one lab in the user's cache folder.
func newSite(out io.Writer) (*site, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find a folder for the brokers' files: %w", err)
	}
	root := filepath.Join(cache, "lockstep-lab")
	s := &site{programs: filepath.Join(root, "programs"), out: out}
	labs := filepath.Join(root, "labs")
	for _, dir := range []string{s.programs, labs} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make a folder for the brokers' files: %w", err)
		}
	}
	if err := removeLeftovers(labs); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp(labs, time.Now().Format("0102-150405-")); err != nil {
		return nil, fmt.Errorf("make a folder for the brokers' files: %w", err)
	}
	if s.owned, err = own(s.dir); err != nil {
		return nil, err
	}
	return s, os.Mkdir(s.bin(""), 0o700)
}

// print prints a progress message to the user.
func (s *site) print(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "lab: "+format+"\n", args...)
}

// bin returns the path of a program that is built for this lab.
func (s *site) bin(name string) string { return filepath.Join(s.dir, "bin", name) }

// close releases the ports and, unless keep is set, removes this lab's files.
func (s *site) close(keep bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.reserved {
		_ = r.Close()
	}
	s.reserved = nil
	if s.owned != nil {
		defer s.owned.Close()
	}
	if keep {
		return os.Remove(filepath.Join(s.dir, owner))
	}
	return os.RemoveAll(s.dir)
}

// loopback returns the loopback address of a port.
func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// source returns the folder of Lockstep's module. The current folder must be inside it.
func source(ctx context.Context) (string, error) {
	text, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the source: go env GOMOD: %w", err)
	}
	file := strings.TrimSpace(string(text))
	module, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(module), "\nmodule example.org/lockstep/lockstep\n") {
		return "", errors.New("find the source: run the lab from within its repository")
	}
	return filepath.Dir(file), nil
}

// write creates a folder with the given files: contents by name.
func write(dir string, files map[string]string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
