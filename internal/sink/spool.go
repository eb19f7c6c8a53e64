package sink

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// spool keeps lines on disk, in order, while the InfluxDB that they are meant for is away. It is a folder that it has for itself (claim), with files
// that are appended to and removed whole, so that a kill at any moment leaves whole lines; what was delivered by then may be delivered again, which
// changes nothing. When it is full it keeps what it has, which is older, and takes no more. It belongs to one goroutine, and is not synced: the record
// has all of it.
type spool struct {
	*claim
	most     int64     // bytes on disk
	segments []segment // the oldest first
	first    int64     // of the first: where the lines begin that were not delivered
	lines    int64     // that were not delivered
	full     bool      // something was refused since lines were forgotten last
	torn     bool      // the last segment may end in a part of a line
}

// parts is how many files a full spool has at least: only whole ones make room.
const parts = 64

// openSpool makes the spool of a target below path this process's own, with what an earlier one left in it. It fails with ErrSpoolInUse if another has it.
func openSpool(path string, to Target, most int64) (*spool, error) {
	mine, err := claimSpool(path, to, true)
	if err != nil {
		return nil, err
	}
	s := &spool{claim: mine, most: most}
	if s.segments, err = openSegments(mine.dir); err != nil {
		return nil, errors.Join(fmt.Errorf("read the spool of points: %w", err), mine.leave())
	}
	for _, x := range s.segments {
		s.lines += x.lines
	}
	return s, nil
}

func (s *spool) empty() bool { return s == nil || s.lines == 0 }

func (s *spool) size() (all int64) {
	for _, x := range s.segments {
		all += x.size
	}
	return all
}

// add keeps lines at the end, and tells how many it has no room for.
func (s *spool) add(lines []string) (refused int, err error) {
	if s.full {
		return len(lines), nil
	}
	room := s.most - s.size()
	for len(lines) > 0 {
		var text []byte
		n := 0
		for ; n < len(lines) && int64(len(text)) < s.most/parts; n++ {
			if int64(len(text)+len(lines[n]))+1 > room {
				break
			}
			text = append(append(text, lines[n]...), '\n')
		}
		if n == 0 {
			s.full = true
			break
		}
		if err := s.last().append(s.dir, text, int64(n)); err != nil {
			s.torn = true
			return len(lines), fmt.Errorf("write the spool of points: %w", err)
		}
		room, lines, s.lines = room-int64(len(text)), lines[n:], s.lines+int64(n)
	}
	return len(lines), nil
}

// last is the segment to append to.
func (s *spool) last() *segment {
	n := len(s.segments)
	if n == 0 || s.torn || s.segments[n-1].size >= s.most/parts {
		number := 1
		if n > 0 {
			number = s.segments[n-1].number + 1
		}
		s.segments, s.torn = append(s.segments, segment{number: number}), false
	}
	return &s.segments[len(s.segments)-1]
}

// oldest returns the lines that were kept first, at most so many, and their bytes. They are of one segment.
func (s *spool) oldest(most int) (lines []string, size int64, err error) {
	if err := s.shed(); err != nil {
		return nil, 0, err
	}
	if lines, size, err = s.segments[0].read(s.dir, s.first, most); err != nil {
		return nil, 0, fmt.Errorf("read the spool of points: %w", err)
	}
	return lines, size, nil
}

// forget lets go of the oldest lines.
func (s *spool) forget(lines int, size int64) error {
	s.full = false
	s.first += size
	s.lines -= int64(lines)
	return s.shed()
}

// shed removes the files of which all was delivered.
func (s *spool) shed() error {
	for len(s.segments) > 0 && s.first >= s.segments[0].size {
		if err := os.Remove(segmentFile(s.dir, s.segments[0].number)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("take away delivered points: %w", err)
		}
		s.segments, s.first = slices.Delete(s.segments, 0, 1), 0
	}
	return nil
}

// close lets others have the spool; an empty one goes.
func (s *spool) close() error {
	switch {
	case s == nil:
		return nil
	case s.lines == 0:
		return s.remove()
	}
	return s.leave()
}
