package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// ansible is Ansible with its linters, in a Python virtual environment. ansible.txt pins all packages: change the key
// with it.
var ansible = program{key: "ansible-core-2.19.14-lint-26.10.1", fetch: fetchAnsible}

func fetchAnsible(ctx context.Context, s *site, dir string) error {
	src, err := source(ctx)
	if err != nil {
		return err
	}
	if err := finish(tool(ctx, "", "python3", "-m", "venv", dir)); err != nil {
		return errors.Join(errors.New("make a virtual environment of Python: on Debian that needs python3-venv"), err)
	}
	pip := tool(ctx, "", filepath.Join(dir, "bin", "python"), "-m", "pip", "install", "--quiet",
		"--disable-pip-version-check",
		"--requirement", filepath.Join(src, "test/lab/ansible.txt"))
	if err := finish(pip); err != nil {
		return err
	}
	return relocate(filepath.Join(dir, "bin"), dir, strings.TrimSuffix(dir, ".partial"))
}

// relocate replaces the path of the installation folder in scripts.
func relocate(scripts, from, to string) error {
	entries, err := os.ReadDir(scripts)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		path := filepath.Join(scripts, e.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, bytes.ReplaceAll(text, []byte(from), []byte(to)), 0o700); err != nil {
			return err
		}
	}
	return nil
}
