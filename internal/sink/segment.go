package sink

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// segment is a file of whole lines, which is only ever appended to, and removed when all of it was delivered. What a kill or a full disk leaves of a
// line at its end is cut off when it is opened again.
type segment struct {
	number int
	size   int64 // bytes of whole lines
	lines  int64
}

const segmentSuffix = ".lines"

func segmentFile(dir string, number int) string {
	return filepath.Join(dir, fmt.Sprintf("%09d%s", number, segmentSuffix))
}

// openSegments finds what an earlier process left in dir, the oldest first.
func openSegments(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []segment
	for _, e := range entries {
		number := 0
		name, is := strings.CutSuffix(e.Name(), segmentSuffix)
		if _, err := fmt.Sscanf(name, "%d", &number); err != nil || !is {
			continue
		}
		s, err := openSegment(dir, number)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b segment) int { return a.number - b.number })
	return all, nil
}

func openSegment(dir string, number int) (segment, error) {
	s := segment{number: number}
	file, err := os.OpenFile(segmentFile(dir, number), os.O_RDWR, 0)
	if err != nil {
		return s, err
	}
	defer file.Close()
	chunk := make([]byte, 1<<20)
	for at := int64(0); ; {
		n, err := file.ReadAt(chunk, at)
		s.lines += int64(bytes.Count(chunk[:n], []byte{'\n'}))
		if last := bytes.LastIndexByte(chunk[:n], '\n'); last >= 0 {
			s.size = at + int64(last) + 1
		}
		at += int64(n)
		if errors.Is(err, io.EOF) {
			return s, file.Truncate(s.size)
		}
		if err != nil {
			return s, err
		}
	}
}

// append writes whole lines at the end of the segment's file.
func (s *segment) append(dir string, text []byte, lines int64) error {
	file, err := os.OpenFile(segmentFile(dir, s.number), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if _, err = file.WriteAt(text, s.size); err != nil {
		err = errors.Join(err, file.Truncate(s.size))
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	s.size += int64(len(text))
	s.lines += lines
	return nil
}

// read returns the lines from a place on, at most so many, and their bytes.
func (s *segment) read(dir string, from int64, most int) (lines []string, size int64, err error) {
	file, err := os.Open(segmentFile(dir, s.number))
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	for length := int64(1 << 18); ; length *= 4 {
		chunk := make([]byte, min(length, s.size-from))
		if _, err := file.ReadAt(chunk, from); err != nil {
			return nil, 0, err
		}
		for len(lines) < most {
			line, rest, whole := bytes.Cut(chunk, []byte{'\n'})
			if !whole {
				break
			}
			lines, size, chunk = append(lines, string(line)), size+int64(len(line))+1, rest
		}
		if len(lines) > 0 || from+length >= s.size {
			return lines, size, nil
		}
	}
}
