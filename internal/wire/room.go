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
	s, err := l.conn.js.Stream(ctx, streamRecord)
	if err != nil {
		return 0, fmt.Errorf("look at %s: %w", streamRecord, err)
	}
	info := s.CachedInfo()
	if info.Config.MaxBytes <= 0 {
		return 0, nil
	}
	return float64(info.State.Bytes) / float64(info.Config.MaxBytes), nil
}
