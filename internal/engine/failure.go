package engine

import (
	"context"
	"errors"
	"net"

	"lockstep/internal/record"
	"lockstep/pkg/drivers"
)

// countFailure accounts for a message that was not accepted, by kind: a deadline passed, the link was gone, or anything else. A deadline
// of ours goes first: it closes links that are stuck, which then say that they are closed.
func (p *publisher) countFailure(ctx context.Context, w *record.Window, err error, due, send int64) {
	w.Counts[record.PublishErrors]++
	p.unanswered(w, due, send, p.e.now())
	switch {
	case timedOut(err) || errors.Is(ctx.Err(), context.DeadlineExceeded):
		w.Counts[record.Timeouts]++
	case errors.Is(err, drivers.ErrClosed):
		w.Counts[record.ClosedErrors]++
	}
}

// unanswered records when a message failed without an answer of the broker.
func (p *publisher) unanswered(w *record.Window, due, send, now int64) {
	w.Record(record.SendFailed, now-send)
	if p.schedule != nil {
		w.Record(record.Unanswered, now-due)
	}
}

func timedOut(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}
