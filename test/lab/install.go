package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// need is a requirement of a part.
type need interface {
	// id identifies the need. Equal needs of several parts are met once.
	id() string
	// meet installs what is missing, or returns an error with an instruction.
	meet(ctx context.Context, s *site) error
}

// meetAll installs the needs of the parts concurrently.
func meetAll(ctx context.Context, s *site, parts []Part) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the first failure ends the other downloads
	needs := map[string]need{}
	for _, part := range parts {
		for _, n := range part.Needs {
			needs[n.id()] = n
		}
	}
	var wg sync.WaitGroup
	failures := make(chan error, len(needs))
	for _, n := range needs {
		wg.Go(func() {
			if err := n.meet(ctx, s); err != nil {
				failures <- fmt.Errorf("install %s: %w", n.id(), err)
				cancel()
			}
		})
	}
	wg.Wait()
	close(failures)
	return <-failures
}

// whereAll returns one line per need, with its location.
func whereAll(s *site, parts []Part) (lines []string) {
	for _, part := range parts {
		for _, n := range part.Needs {
			at := "built anew for each lab"
			switch n := n.(type) {
			case interface{ in(*site) string }:
				at = n.in(s)
			case debian:
				at = n.path()
			}
			if line := n.id() + ": " + at; !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// program is downloaded or built once, and stored for all labs of this user.
type program struct {
	key   string // name and version; another version needs another key
	fetch func(ctx context.Context, s *site, dir string) error
}

func (p program) id() string { return p.key }

// in returns the program's folder.
func (p program) in(s *site) string { return filepath.Join(s.programs, p.key) }

// meet fills a temporary folder and renames it, so that a lab never sees an incomplete one. A second lab waits.
func (p program) meet(ctx context.Context, s *site) error {
	final := p.in(s)
	if _, err := os.Stat(final); err == nil {
		return nil
	}
	unlock, err := lock(ctx, s, p.key)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(final); err == nil {
		return nil
	}
	partial := final + ".partial"
	if err := errors.Join(os.RemoveAll(partial), os.MkdirAll(partial, 0o700)); err != nil {
		return err
	}
	begun := time.Now()
	s.print("installing %s", p.key)
	if err := p.fetch(ctx, s, partial); err != nil {
		return errors.Join(err, os.RemoveAll(partial))
	}
	s.print("installed %s in %.1f s", p.key, time.Since(begun).Seconds())
	return os.Rename(partial, final)
}

// lock acquires a lock that all labs of this user share. The system releases it when this process ends.
func lock(ctx context.Context, s *site, name string) (unlock func(), err error) {
	return lockFile(ctx, filepath.Join(s.programs, name+".lock"), name)
}

// lockApt is the lock for the machine's packages. Labs with different cache folders share it.
func lockApt(ctx context.Context) (unlock func(), err error) {
	return lockFile(ctx, filepath.Join(os.TempDir(), "lockstep-lab-apt-get.lock"), "packages with apt-get")
}

func lockFile(ctx context.Context, path, name string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("wait for another lab that installs %s: %w", name, ctx.Err())
		case <-ticker.C:
		}
	}
}

// debian is a program of the system's packages.
type debian struct {
	file     string // exists if it is installed: a path, or a program's name
	packages string
}

func (d debian) id() string { return d.packages }

func (d debian) meet(ctx context.Context, s *site) error {
	if d.there() {
		return nil
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%s is missing: run \"apt-get install %s\" as root", d.file, d.packages)
	}
	unlock, err := lockApt(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if d.there() {
		return nil
	}
	s.print("installing %s with apt-get", d.packages)
	// wait for other programs that use apt-get
	install := append([]string{"install", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=600"},
		strings.Fields(d.packages)...)
	for _, args := range [][]string{{"update"}, install} {
		cmd := tool(ctx, "", "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if err := finish(cmd); err != nil {
			return err
		}
	}
	if !d.there() {
		return fmt.Errorf("%s is missing although %s is installed", d.file, d.packages)
	}
	return nil
}

func (d debian) there() bool {
	_, err := exec.LookPath(d.file)
	return err == nil
}

// path returns the path of the program, which meet has found.
func (d debian) path() string {
	path, _ := exec.LookPath(d.file)
	return path
}

// goCommand is built for each lab. Go's build cache makes this fast, and the program is always up to date.
type goCommand struct {
	name   string
	module string // folder of its module, relative to Lockstep's
	pkg    string
}

func (c goCommand) id() string { return c.name }

func (c goCommand) meet(ctx context.Context, s *site) error {
	src, err := source(ctx)
	if err != nil {
		return err
	}
	return finish(tool(ctx, filepath.Join(src, c.module), "go", "build", "-o", s.bin(c.name), c.pkg))
}

// tool returns a command that is killed with its child processes when ctx ends.
func tool(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// finish runs a command. The error contains its output.
func finish(cmd *exec.Cmd) error {
	text, err := cmd.CombinedOutput()
	if err != nil {
		const maxOutput = 4000 // bytes; the cause is at the end
		text = text[max(0, len(text)-maxOutput):]
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(text))
	}
	return nil
}
