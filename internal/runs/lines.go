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

	"lockstep/internal/plan"
)

// appendLine adds v to a file of JSON lines in one write. What a writer that was killed left of a line stays a damaged
// line by itself.
func (r *Run) appendLine(name string, v any) error {
	file, err := os.OpenFile(filepath.Join(r.dir, name), os.O_CREATE|os.O_RDWR|os.O_APPEND, fileMode)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // what was written is checked
	line, err := encode(v, "")
	if err != nil {
		return err
	}
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if last := []byte{'\n'}; end > 0 {
		if _, err := file.ReadAt(last, end-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	_, err = file.Write(line)
	return err
}

// Bounds of a file of JSON lines.
const (
	maxLines  = 500_000
	maxDamage = 100 // descriptions of lines that are left out
)

// linesOf reads a file of JSON lines of the run; what is damaged is left out, with a warning. The caller holds mu.
func linesOf[T any](r *Run, name string) (all []T, err error) {
	file, err := os.Open(filepath.Join(r.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
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
		r.warn(name + ": " + d)
	}
	return all, err
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
