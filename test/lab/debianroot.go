package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// releaseRoot is a root folder with programs and libraries of another Debian release than the machine's.
type releaseRoot struct {
	program
	release  string
	packages []string
}

// rootTools are the packages of programs that scripts in a root need. They are essential in Debian, so packages do not
// depend on them.
var rootTools = []string{"base-files", "coreutils", "dash", "grep", "hostname", "libc-bin", "mawk", "sed"}

// newReleaseRoot describes a root with packages of a release, in apt-get's syntax, and their dependencies.
func newReleaseRoot(key, release string, packages ...string) releaseRoot {
	r := releaseRoot{release: release, packages: append(packages, rootTools...)}
	r.program = program{key: key, fetch: r.fetch}
	return r
}

// meet implements need.
func (r releaseRoot) meet(ctx context.Context, s *site) error {
	if err := canChangeRoot(); err != nil {
		return err
	}
	return r.program.meet(ctx, s)
}

// canChangeRoot returns an error if the process cannot use a separate root. The error names what is missing.
func canChangeRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("mount a root of its own: the lab does not run as root: run it as root")
	}
	for _, name := range []string{"unshare", "mount", "chroot"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("mount a root of its own: %w: install util-linux and coreutils", err)
		}
	}
	return nil
}

// fetch downloads the packages with its own apt configuration, which ignores the machine's packages, and unpacks them
// into dir.
func (r releaseRoot) fetch(ctx context.Context, s *site, dir string) error {
	for _, name := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%w: run the lab on Debian", err)
		}
	}
	mirror, err := debianMirror(ctx)
	if err != nil {
		return err
	}
	state := dir + ".apt"
	defer os.RemoveAll(state)
	config, err := configureApt(state, mirror, r.release)
	if err != nil {
		return err
	}
	install := append([]string{"-c", config, "install", "-y", "--download-only"}, r.packages...)
	for _, args := range [][]string{{"-c", config, "update"}, install} {
		if err := finish(tool(ctx, "", "apt-get", args...)); err != nil {
			return err
		}
	}
	return unpackRoot(ctx, filepath.Join(state, "archives"), dir)
}

// debianMirror returns the address of the Debian mirror in the machine's apt sources.
func debianMirror(ctx context.Context) (string, error) {
	mirror, err := listedMirror(ctx)
	if mirror != "" || err != nil {
		return mirror, err
	}
	// Without package lists, apt does not know the origin of its sources.
	unlock, err := lockApt(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := finish(tool(ctx, "", "apt-get", "update")); err != nil {
		return "", err
	}
	mirror, err = listedMirror(ctx)
	if mirror == "" && err == nil {
		err = errors.New("find a mirror of Debian: apt's sources have no mirror; add one to /etc/apt/sources.list")
	}
	return mirror, err
}

func listedMirror(ctx context.Context) (string, error) {
	text, err := tool(ctx, "", "apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(COMPONENT) $(REPO_URI)",
		"Created-By: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("find a mirror of Debian: apt-get indextargets: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if mirror, found := strings.CutPrefix(strings.TrimSpace(line), "Debian Debian main "); found {
			return mirror, nil
		}
	}
	return "", nil
}

// debianKeyring contains the keys of all releases.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// configureApt writes an apt configuration whose files are all below dir.
func configureApt(dir, mirror, release string) (file string, err error) {
	options := "target=Packages"
	if _, err := os.Stat(debianKeyring); err == nil {
		options += " signed-by=" + debianKeyring
	}
	for _, name := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return "", err
		}
	}
	// The status file is empty: no package is installed, so apt downloads all dependencies.
	config := fmt.Sprintf(`Dir::State::lists "%[1]s/lists";
Dir::State::status "%[1]s/status";
Dir::State::extended_states "%[1]s/extended_states";
Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Cache::archives "%[1]s/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
`, dir)
	source := fmt.Sprintf("deb [%s] %s %s main\n", options, mirror, release)
	return filepath.Join(dir, "apt.conf"), write(dir,
		map[string]string{"apt.conf": config, "sources.list": source, "status": ""})
}

// unpackRoot unpacks packages. It also writes those files of their installation scripts that the programs need.
func unpackRoot(ctx context.Context, archives, dir string) error {
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.MkdirAll(filepath.Join(dir, "usr", name), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("usr/"+name, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	packages, err := filepath.Glob(filepath.Join(archives, "*.deb"))
	if err != nil || len(packages) == 0 {
		return fmt.Errorf("unpack %s: %d packages, %w", archives, len(packages), err)
	}
	for _, p := range packages {
		if err := finish(tool(ctx, "", "dpkg-deb", "--extract", p, dir)); err != nil {
			return err
		}
	}
	for _, name := range []string{"dev", "proc", "tmp", strings.TrimPrefix(instanceInRoot, "/")} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	return write(filepath.Join(dir, "etc"), map[string]string{
		"hosts":  "127.0.0.1 localhost\n",
		"passwd": "root:x:0:0:root:/root:/bin/sh\n",
		"group":  "root:x:0:\n",
	})
}

// instanceInRoot is the path of an instance's folder inside a root.
const instanceInRoot = "/lab"

// enter writes a script that runs a command in the root, and returns its path. The command sees the root read-only, and
// dir as instanceInRoot. The script's process becomes the command. The mounts end with the last process in their
// namespace.
func (r releaseRoot) enter(s *site, dir string) (string, error) {
	script := fmt.Sprintf(`#!/bin/sh
root='%s' dir='%s'
export root dir PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
unset TMPDIR
exec unshare --mount /bin/sh -ec '
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t tmpfs tmpfs "$root/tmp"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$dir" "$root%s"
exec chroot "$root" "$@"' sh "$@"
`, r.in(s), dir, instanceInRoot)
	file := filepath.Join(dir, "in-root")
	return file, os.WriteFile(file, []byte(script), 0o700)
}
