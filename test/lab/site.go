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

// site is where a lab's parts are put. Its methods are safe for concurrent use.
type site struct {
	programs string // what was downloaded or built once for all labs of this user
	dir      string // of this lab alone
	owned    *os.File

	mu        sync.Mutex
	out       io.Writer
	reserved  []net.Listener
	preferred []int // ports of the next plan
}

// newSite makes a folder for one lab below the user's cache folder.
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

// say tells the user what is going on.
func (s *site) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "lab: "+format+"\n", args...)
}

// bin is where a program lies that is built for this lab.
func (s *site) bin(name string) string { return filepath.Join(s.dir, "bin", name) }

// close gives the ports back and, unless they are to be kept, removes this lab's files.
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

// loopback is a port's address, as everything in a lab has it.
func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// source is the folder of the product's module, which the command line has to be in.
func source(ctx context.Context) (string, error) {
	text, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the source: go env GOMOD: %w", err)
	}
	file := strings.TrimSpace(string(text))
	module, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(module), "module lockstep\n") {
		return "", errors.New("find the source: run the lab from within its repository")
	}
	return filepath.Dir(file), nil
}

// write writes files, given as name and text, into a folder that it makes.
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
