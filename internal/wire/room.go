package wire

import (
	"context"
	"fmt"
)

// MakeRoom deletes the records of runs that have ended and were copied, oldest first and whole ones, when more than half of the record's room is
// used; not of those that are needed. On a control plane of this process (local) its one follower is the copy. full tells that nine tenths are used all the same.
func (l *Lease) MakeRoom(ctx context.Context, local bool, needed func(run string) bool) (full bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	used, err := l.used(ctx)
	if err != nil || used < 0.5 {
		return false, err
	}
	runs, err := l.conn.Runs(ctx)
	if err != nil {
		return false, err
	}
	for _, r := range runs {
		if used < 0.5 {
			break
		}
		if !r.Over() || !r.Copied && !local || needed(r.Run) {
			continue
		}
		if err := l.conn.purge(ctx, streamRecord, 0, recordAll(r.Run)); err != nil {
			return false, err
		}
		if used, err = l.used(ctx); err != nil {
			return false, err
		}
	}
	return used >= 0.9, nil
}

// used is the part of the record's room that is used.
func (l *Lease) used(ctx context.Context) (float64, error) {
	used, limit, err := l.conn.RecordRoom(ctx)
	if err != nil || limit == 0 {
		return 0, err
	}
	return float64(used) / float64(limit), nil
}

// RecordRoom is how many bytes the records of runs take on the control plane, and how many they may; 0: there is no limit.
func (c *Conn) RecordRoom(ctx context.Context) (used, limit uint64, err error) {
	s, err := c.js.Stream(ctx, streamRecord)
	if err != nil {
		return 0, 0, fmt.Errorf("look at %s: %w", streamRecord, err)
	}
	info := s.CachedInfo()
	return info.State.Bytes, uint64(max(0, info.Config.MaxBytes)), nil
}
