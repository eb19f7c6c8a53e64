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
)

// Reasons for which points are dropped, besides refusals, which are named by their status.
const (
	whyFull  = "queue full"
	whyLate  = "not delivered in time"
	whyTime  = "a time that InfluxDB cannot hold"
	whySpool = "spool full"
	whyDisk  = "the spool could not be written"
)

// writer hands batches to InfluxDB, one at a time, in their order, and counts what comes of them. While InfluxDB is away what is to come waits in the
// spool, if there is one, else in the queue.
type writer struct {
	api   api.WriteAPIBlocking
	queue *queue
	tune  Tuning
	log   *slog.Logger
	scrub func(string) string
	tally *tally
	done  chan struct{}
	down  bool // the last request failed
	stuck bool // the disk did not take the last lines

	spool *spool        // nil: none
	held  []string      // a batch that waits for its next try, without a spool
	pause time.Duration // before the next try
}

// batch is what is to be written next, the oldest first.
type batch struct {
	lines []string
	size  int64 // its bytes in the spool; 0: it is not there
}

// run writes until the queue is closed and nothing is left, or ctx ends. What is left then stays in the spool, or is dropped.
func (w *writer) run(ctx context.Context) {
	defer close(w.done)
	w.pause = w.tune.LeastPause
	for {
		b := w.next(ctx)
		if len(b.lines) == 0 {
			break
		}
		last := w.closing()
		if w.attempt(ctx, b.lines) {
			w.pause = w.tune.LeastPause
			w.forget(b)
			continue
		}
		w.keep(b)
		if last || ctx.Err() != nil {
			break
		}
		w.wait(ctx)
		w.pause = min(2*w.pause, w.tune.MostPause)
		if ctx.Err() == nil {
			w.tally.retry()
		}
	}
	w.leave()
}

// next waits for something to write. While there is anything in the spool, what is newer goes there, too.
func (w *writer) next(ctx context.Context) batch {
	for !w.spool.empty() {
		w.shelve()
		lines, size, err := w.spool.oldest(w.tune.Batch)
		if err == nil && len(lines) > 0 {
			return batch{lines, size}
		}
		w.lose(err)
	}
	if held := w.held; len(held) > 0 {
		w.held = nil
		return batch{lines: held}
	}
	return batch{lines: w.queue.next(ctx)}
}

// forget lets go of what was dealt with.
func (w *writer) forget(b batch) {
	if b.size == 0 {
		return
	}
	if err := w.spool.forget(len(b.lines), b.size); err != nil {
		w.log.Warn("take away the spool of points for InfluxDB", "error", err)
	}
}

// keep has a batch wait for its next try.
func (w *writer) keep(b batch) {
	switch {
	case b.size > 0: // it is there
	case w.spool == nil:
		w.held = b.lines
	default:
		w.store(b.lines)
		w.shelve()
	}
}

// shelve moves what is in the queue to the spool.
func (w *writer) shelve() {
	for lines := w.queue.take(); len(lines) > 0; lines = w.queue.take() {
		w.store(lines)
	}
}

func (w *writer) store(lines []string) {
	refused, err := w.spool.add(lines)
	w.told(err)
	if err != nil {
		w.tally.drop(whyDisk, refused)
		return
	}
	w.tally.drop(whySpool, refused)
}

// told tells a person of the disk, once for each change.
func (w *writer) told(err error) {
	switch {
	case err != nil && !w.stuck:
		w.log.Warn("points for InfluxDB cannot be kept on disk, and are dropped; ctl sink replay writes them again", "error", err)
	case err == nil && w.stuck:
		w.log.Warn("points for InfluxDB are kept on disk again")
	}
	w.stuck = err != nil
}

// lose gives up a spool that cannot be read.
func (w *writer) lose(err error) {
	w.log.Warn("points for InfluxDB that wait on disk cannot be read; ctl sink replay writes them again", "error", err)
	w.tally.drop(whyDisk, int(w.spool.lines))
	_ = w.spool.close() // its lines are dropped
	w.spool = nil
}

// leave accounts for what was not delivered.
func (w *writer) leave() {
	if w.spool == nil {
		w.tally.drop(whyLate, len(w.held)+w.queue.clear())
		return
	}
	w.shelve()
	w.tally.spooled(w.spool.lines)
	if err := w.spool.close(); err != nil {
		w.log.Warn("close the spool of points for InfluxDB", "error", err)
	}
}

// attempt writes a batch once. It returns false if another try may do better.
func (w *writer) attempt(ctx context.Context, lines []string) bool {
	err := w.write(ctx, lines)
	var refused *influxhttp.Error
	var other otherError
	errors.As(err, &refused)
	if err == nil {
		w.tally.wrote(len(lines))
		w.recovered()
		return true
	}
	w.failed(err)
	switch {
	case errors.As(err, &other):
		w.tally.refuse(other.status, "refused: not an InfluxDB", len(lines))
		return true
	case refused != nil && !passing(refused.StatusCode):
		w.refuse(refused, len(lines))
		return true
	case refused != nil && refused.RetryAfter > 0:
		w.pause = max(w.pause, min(time.Duration(refused.RetryAfter)*time.Second, w.tune.MostPause))
	}
	return false
}

// passing tells whether a status may be another one later: no answer, too many requests, or the server's own trouble.
func passing(status int) bool {
	return status == 0 || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}

// partly finds how many points of a batch InfluxDB left out while it took the others.
var partly = regexp.MustCompile(`partial write: .*dropped=([0-9]+)`)

// refuse counts a batch that InfluxDB will never take, or not all of it.
func (w *writer) refuse(e *influxhttp.Error, n int) {
	dropped := n
	if found := partly.FindStringSubmatch(e.Message); found != nil {
		if k, err := strconv.Atoi(found[1]); err == nil && k <= n {
			dropped = k
		}
	}
	w.tally.wrote(n - dropped)
	w.tally.refuse(e.StatusCode, fmt.Sprintf("refused: %d %s", e.StatusCode, http.StatusText(e.StatusCode)), dropped)
}

func (w *writer) write(ctx context.Context, batch []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.tune.Request, fmt.Errorf("no answer within %v", w.tune.Request))
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

// wait waits until the next try is due, or it is the last. What comes meanwhile goes to disk.
func (w *writer) wait(ctx context.Context) {
	t := time.NewTimer(w.pause)
	defer t.Stop()
	more := w.queue.changed
	if w.spool == nil {
		more = nil
	}
	for {
		select {
		case <-more:
			w.shelve()
		case <-t.C:
			return
		case <-w.queue.closed:
			return
		case <-ctx.Done():
			return
		}
	}
}

// failed and recovered tell a person, once for each change.
func (w *writer) failed(err error) {
	words := text(w.scrub(err.Error()))
	w.tally.failed(words)
	if !w.down {
		w.down = true
		w.log.Warn("InfluxDB does not take points; the record has all of them", "error", words)
	}
}

func (w *writer) recovered() {
	if w.down {
		w.down = false
		w.log.Warn("InfluxDB takes points again")
	}
}
