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

	"lockstep/internal/plan"
)

// Bounds of a file of JSON lines.
const (
	maxLines  = 500_000
	maxDamage = 100 // descriptions of lines that are left out
)

// linesOf reads a file of JSON lines. It returns what is damaged, and left out, as warnings. A file that is not there
// has none.
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

// readLines calls each for the values of JSON lines, in order, until it fails. It returns where the last whole line
// ends, and describes the lines that are left out: damaged ones, and a last one without its end, whose writer was
// killed.
func readLines[T any](from io.Reader, each func(T) error) (end int64, damage []string, err error) {
	lines := bufio.NewReaderSize(from, 1<<16)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF && len(line) > 0 {
			damage = append(damage, fmt.Sprintf("line %d is cut off in the middle and left out", n))
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
				damage = append(damage, fmt.Sprintf("line %d left out: %v", n, bad))
			case len(damage) == maxDamage:
				damage = append(damage, fmt.Sprintf("line %d and others left out", n))
			}
		} else if err := each(v); err != nil {
			return end, damage, err
		}
	}
}

// encode writes JSON, with a line's end, without the secrets of texts. HTML escapes would hide URLs from redaction.
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
