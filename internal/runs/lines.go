package runs

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"example.org/lockstep/lockstep/internal/files"
	"example.org/lockstep/lockstep/internal/plan"
)

// Limits of a file of JSON lines.
const (
	maxLines  = 500_000
	maxDamage = 100 // descriptions of skipped lines
)

// linesOf reads a file of JSON lines. Warnings describe skipped damaged lines. A missing file has no lines.
func linesOf[T any](path string) (all []T, warnings []string, err error) {
	name := filepath.Base(path)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	_, damage, err := readLines(file, func(v T) error {
		if len(all) == maxLines {
			return fmt.Errorf("%s has more than %d lines: %w", name, maxLines, plan.ErrTooLarge)
		}
		all = append(all, v)
		return nil
	})
	for _, d := range damage {
		warnings = append(warnings, name+": "+d)
	}
	return all, warnings, err
}

// readLines calls each with the values of JSON lines in order, until it returns an error. It returns the end of the
// last complete line, and descriptions of skipped lines: damaged ones, and an incomplete last one of a killed writer.
func readLines[T any](from io.Reader, each func(T) error) (end int64, damage []string, err error) {
	lines := bufio.NewReaderSize(from, 1<<16)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF && len(line) > 0 {
			damage = append(damage, fmt.Sprintf("line %d is truncated and was skipped", n))
		}
		if err == io.EOF {
			return end, damage, nil
		}
		if err != nil {
			return end, damage, err
		}
		end += int64(len(line))
		var v T
		if bad := json.Unmarshal(line, &v); bad != nil {
			switch {
			case len(damage) < maxDamage:
				damage = append(damage, fmt.Sprintf("line %d skipped: %v", n, bad))
			case len(damage) == maxDamage:
				damage = append(damage, fmt.Sprintf("line %d and others skipped", n))
			}
		} else if err := each(v); err != nil {
			return end, damage, err
		}
	}
}

// encode returns JSON with a line end, without secrets. HTML escapes are off, as they would hide URLs from the
// redaction.
func encode(v any, indent string) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return []byte(plan.Redact(b.String())), nil
}

// appendLine adds a value to a file of JSON lines, without secrets.
func appendLine(path string, v any) error {
	line, err := encode(v, "")
	if err != nil {
		return err
	}
	return files.AppendLine(path, line, fileMode)
}
