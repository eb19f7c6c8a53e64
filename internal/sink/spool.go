package sink

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// spool keeps lines on disk, in order, while InfluxDB is away. It is one file; what was delivered of it is forgotten when all was, or when room is
// needed. When it is full it keeps what it has, which is older, and takes no more. A process that was killed leaves it as it is: what was
// delivered by then is delivered again, which changes nothing. It belongs to one goroutine, and is not synced: the record has all of it.
type spool struct {
	path  string
	most  int64 // bytes
	file  *os.File
	first int64 // where the lines begin that were not delivered
	end   int64
	lines int64 // from first to end
	full  bool  // something was refused since lines were forgotten last
}

// openSpool finds what an earlier process left at path; the file is made when there is something to keep.
func openSpool(path string, most int64) (*spool, error) {
	s := &spool{path: path, most: most}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the spool of points: %w", err)
	}
	s.file = file
	chunk := make([]byte, 1<<20)
	for at := int64(0); ; {
		n, err := file.ReadAt(chunk, at)
		s.lines += int64(bytes.Count(chunk[:n], []byte{'\n'}))
		if last := bytes.LastIndexByte(chunk[:n], '\n'); last >= 0 {
			s.end = at + int64(last) + 1
		}
		at += int64(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("read the spool of points: %w", err), file.Close())
		}
	}
	if err := file.Truncate(s.end); err != nil { // a line that was cut off
		return nil, errors.Join(fmt.Errorf("open the spool of points: %w", err), file.Close())
	}
	return s, nil
}

func (s *spool) empty() bool { return s == nil || s.lines == 0 }

// add keeps lines at the end, and tells how many it has no room for.
func (s *spool) add(lines []string) (refused int, err error) {
	if len(lines) == 0 || s.full {
		return len(lines), nil
	}
	if s.file == nil {
		if s.file, err = os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
			return len(lines), fmt.Errorf("make the spool of points: %w", err)
		}
	}
	var text []byte
	fit := 0
	for _, l := range lines {
		if s.end-s.first+int64(len(text)+len(l))+1 > s.most {
			break
		}
		text = append(append(text, l...), '\n')
		fit++
	}
	if s.end+int64(len(text)) > s.most {
		if err := s.compact(); err != nil {
			return len(lines), err
		}
	}
	if _, err := s.file.WriteAt(text, s.end); err != nil {
		return len(lines), errors.Join(fmt.Errorf("write the spool of points: %w", err), s.file.Truncate(s.end))
	}
	s.end += int64(len(text))
	s.lines += int64(fit)
	s.full = fit < len(lines)
	return len(lines) - fit, nil
}

// compact moves what was not delivered to the beginning.
func (s *spool) compact() error {
	chunk := make([]byte, 1<<20)
	to := int64(0)
	for from := s.first; from < s.end; {
		n, err := s.file.ReadAt(chunk[:min(int64(len(chunk)), s.end-from)], from)
		if err != nil && err != io.EOF || n == 0 {
			return fmt.Errorf("make room in the spool of points: %w", errors.Join(err, io.ErrUnexpectedEOF))
		}
		if _, err := s.file.WriteAt(chunk[:n], to); err != nil {
			return fmt.Errorf("make room in the spool of points: %w", err)
		}
		from, to = from+int64(n), to+int64(n)
	}
	s.first, s.end = 0, to
	return s.file.Truncate(to)
}

// oldest returns the lines that were kept first, at most so many, and their bytes.
func (s *spool) oldest(most int) (lines []string, size int64, err error) {
	for length := int64(1 << 18); ; length *= 4 {
		chunk := make([]byte, min(length, s.end-s.first))
		if _, err := s.file.ReadAt(chunk, s.first); err != nil && err != io.EOF {
			return nil, 0, fmt.Errorf("read the spool of points: %w", err)
		}
		for len(lines) < most {
			line, rest, whole := bytes.Cut(chunk, []byte{'\n'})
			if !whole {
				break
			}
			lines, size, chunk = append(lines, string(line)), size+int64(len(line))+1, rest
		}
		if len(lines) > 0 || s.first+length >= s.end {
			return lines, size, nil
		}
	}
}

// forget lets go of the oldest lines.
func (s *spool) forget(lines int, size int64) error {
	s.full = false
	s.first += size
	s.lines -= int64(lines)
	if s.lines > 0 {
		return nil
	}
	s.first, s.end, s.lines = 0, 0, 0
	err := errors.Join(s.file.Close(), os.Remove(s.path))
	s.file = nil
	return err
}

func (s *spool) close() error {
	if s == nil || s.file == nil {
		return nil
	}
	return s.file.Close()
}
