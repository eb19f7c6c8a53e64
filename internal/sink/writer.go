package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/influxdata/influxdb-client-go/v2/api"
	influxhttp "github.com/influxdata/influxdb-client-go/v2/api/http"

	"example.org/lockstep/lockstep/internal/plan"
)

// Reasons for which points are dropped. Refusals by InfluxDB are named by their status instead.
const (
	whyFull = "queue full"
	whyLate = "not delivered in time"
	whyTime = "timestamp out of range for InfluxDB"
)

// writer sends batches to InfluxDB, one at a time and in order, and counts the results. It retries a batch after a
// temporary error, while newer points wait in the queue.
type writer struct {
	api    api.WriteAPIBlocking
	queue  *queue
	tune   Tuning
	log    *slog.Logger
	scrub  func(string) string
	counts *counts
	done   chan struct{}
	down   bool          // the last request failed
	pause  time.Duration // before the next retry
}

// run writes until the queue is closed and empty, a request fails after the queue was closed, or ctx ends. The
// remaining points are dropped.
func (w *writer) run(ctx context.Context) {
	defer close(w.done)
	w.pause = w.tune.MinPause
	batch := w.queue.next(ctx)
	for len(batch) > 0 {
		last := w.closing()
		if w.attempt(ctx, batch) {
			w.pause = w.tune.MinPause
			batch = w.queue.next(ctx)
			continue
		}
		if last || !w.wait(ctx) {
			break
		}
		w.pause = min(2*w.pause, w.tune.MaxPause)
		w.counts.change(func(d *plan.Delivery) { d.Retries++ })
	}
	w.counts.drop(whyLate, len(batch)+w.queue.clear())
}

// attempt sends a batch once. It returns false if a retry may succeed.
func (w *writer) attempt(ctx context.Context, lines []string) bool {
	err := w.write(ctx, lines)
	var refused *influxhttp.Error
	var other otherError
	errors.As(err, &refused)
	if err == nil {
		w.counts.wrote(len(lines))
		if w.down {
			w.down = false
			w.log.Warn("writing points to InfluxDB again")
		}
		return true
	}
	w.failed(ctx, err)
	switch {
	case errors.As(err, &other):
		w.counts.refuse(other.status, "rejected: not an InfluxDB", len(lines))
		return true
	case refused != nil && !passing(refused.StatusCode):
		w.refuse(refused, len(lines))
		return true
	case refused != nil && refused.RetryAfter > 0:
		w.pause = max(w.pause, min(time.Duration(refused.RetryAfter)*time.Second, w.tune.MaxPause))
	}
	return false
}

// passing reports whether a retry may have another status: there was no answer, too many requests, or a server error.
func passing(status int) bool {
	return status == 0 || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests ||
		status >= http.StatusInternalServerError
}

// partly matches the number of points that InfluxDB dropped from a batch while it accepted the others.
var partly = regexp.MustCompile(`partial write: .*dropped=([0-9]+)`)

// refuse counts a batch that InfluxDB permanently refuses, completely or in part.
func (w *writer) refuse(e *influxhttp.Error, n int) {
	dropped := n
	if found := partly.FindStringSubmatch(e.Message); found != nil {
		if k, err := strconv.Atoi(found[1]); err == nil && k <= n {
			dropped = k
		}
	}
	w.counts.wrote(n - dropped)
	w.counts.refuse(e.StatusCode, fmt.Sprintf("rejected: %d %s", e.StatusCode, http.StatusText(e.StatusCode)), dropped)
}

func (w *writer) write(ctx context.Context, batch []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.tune.Request, fmt.Errorf("no response within %v", w.tune.Request))
	defer cancel()
	err := w.api.WriteRecord(ctx, batch...)
	var answer *influxhttp.Error
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	if errors.As(err, &answer) && answer.StatusCode != 0 {
		return fmt.Errorf("HTTP %d: %w", answer.StatusCode, err)
	}
	return err
}

func (w *writer) closing() bool {
	select {
	case <-w.queue.closed:
		return true
	default:
		return false
	}
}

// wait waits until the next retry is due or the queue is closed. It returns false if ctx has ended.
func (w *writer) wait(ctx context.Context) bool {
	t := time.NewTimer(w.pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.queue.closed:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// failed and recovered log each change once. If Close interrupts a request during an outage, the earlier error stays.
func (w *writer) failed(ctx context.Context, err error) {
	if w.down && ctx.Err() != nil {
		return
	}
	words := text(w.scrub(err.Error()))
	w.counts.change(func(d *plan.Delivery) { d.LastError = words })
	if !w.down {
		w.down = true
		w.log.Warn("cannot write points to InfluxDB; the record is complete", "error", words)
	}
}
