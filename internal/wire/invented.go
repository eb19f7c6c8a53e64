package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// An agent's key lets its holder write parts of any run, also of runs that never were. Those of genuine runs begin with a leader's fence, and are listed
// or queued; what has none of that for inventedAfter is deleted when the record needs room. It is looked for at most every sweepEvery.
const (
	inventedAfter = 10 * time.Minute
	sweepEvery    = time.Minute
)

// sweep deletes records of runs that nobody submitted. The caller holds clearing.
func (l *Lease) sweep(ctx context.Context, needed func(run string) bool) error {
	if time.Since(l.swept) < sweepEvery {
		return nil
	}
	return l.sweepOlder(ctx, inventedAfter, needed)
}

// sweepOlder is sweep for records whose first message is at least so old.
func (l *Lease) sweepOlder(ctx context.Context, age time.Duration, needed func(run string) bool) error {
	s, err := l.conn.js.Stream(ctx, streamRecord)
	if err != nil {
		return fmt.Errorf("look at %s: %w", streamRecord, err)
	}
	end := s.CachedInfo().State.LastSeq // before anything is asked of the runs: one that begins meanwhile is behind it
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(root+"record.>"))
	if err != nil {
		return fmt.Errorf("look at %s: %w", streamRecord, err)
	}
	known := map[string]bool{}
	for subject := range info.State.Subjects {
		word, _, _ := strings.Cut(strings.TrimPrefix(subject, root+"record."), ".")
		if _, seen := known[word]; seen {
			continue
		}
		known[word] = true
		invented, err := l.invented(ctx, s, word, info.TimeStamp.Add(-age), needed)
		if err != nil {
			return err
		}
		if !invented {
			continue
		}
		l.log.Warn("deleting the record of a run that nobody submitted", "run", word)
		if err := l.purge(ctx, streamRecord, end, root+"record."+word, root+"record."+word+".>"); err != nil {
			return err
		}
	}
	l.swept = time.Now()
	return nil
}

// invented tells whether the record of a run, by its word in subjects, is of one that nobody submitted, and began before a time.
func (l *Lease) invented(ctx context.Context, s jetstream.Stream, word string, before time.Time, needed func(run string) bool) (bool, error) {
	run, err := untoken(word)
	if err != nil || token(run) != word {
		return true, nil //nolint:nilerr // nobody could submit it
	}
	if needed(run) {
		return false, nil
	}
	first, err := s.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(recordAll(run)))
	if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && first.Time.After(before) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", streamRecord, err)
	}
	fence, err := l.conn.lastMessage(ctx, streamRecord, subjectEpoch(run))
	if err != nil || fence.Seq > 0 {
		return false, err
	}
	state, err := l.conn.RunState(ctx, run)
	if errors.Is(err, ErrUnreadable) {
		return false, nil
	}
	if err != nil || state.Run != "" {
		return false, err
	}
	queued, err := l.conn.Queued(ctx, run)
	return err == nil && !queued, err
}
