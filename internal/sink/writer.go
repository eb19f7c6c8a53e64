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
	whyLate  = "not delivered when the run had ended"
	whyTime  = "a time that InfluxDB cannot hold"
	whyOther = "refused: not an InfluxDB"
)

// writer hands batches to InfluxDB, one at a time, and counts what comes of them.
type writer struct {
	api   api.WriteAPIBlocking
	queue *queue
	tune  Tuning
	log   *slog.Logger
	scrub func(string) string
	tally *tally
	done  chan struct{}
	down  bool // the last request failed
}

// run writes until the queue is closed and empty, or ctx ends. What is left then is dropped.
func (w *writer) run(ctx context.Context) {
	defer close(w.done)
	for {
		batch := w.queue.next(ctx)
		if len(batch) == 0 {
			break
		}
		if !w.deliver(ctx, batch) {
			break
		}
	}
	w.tally.drop(whyLate, w.queue.clear())
}

// deliver writes a batch, again and again while InfluxDB is away. It returns false if there is no use in trying others: the queue is closed,
// and a try since then has failed.
func (w *writer) deliver(ctx context.Context, batch []string) bool {
	pause := w.tune.LeastPause
	for {
		last := w.closing()
		err := w.write(ctx, batch)
		var refused *influxhttp.Error
		errors.As(err, &refused)
		switch {
		case err == nil:
			w.tally.wrote(len(batch))
			w.recovered()
			return true
		case errors.Is(err, errOther):
			w.failed(err)
			w.tally.drop(whyOther, len(batch))
			return true
		case refused != nil && !passing(refused.StatusCode):
			w.failed(err)
			w.refuse(refused, len(batch))
			return true
		}
		w.failed(err)
		if last || ctx.Err() != nil {
			w.tally.drop(whyLate, len(batch))
			return false
		}
		if refused != nil && refused.RetryAfter > 0 {
			pause = max(pause, min(time.Duration(refused.RetryAfter)*time.Second, w.tune.MostPause))
		}
		w.wait(ctx, pause)
		pause = min(2*pause, w.tune.MostPause)
		if ctx.Err() == nil {
			w.tally.retry()
		}
	}
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
	w.tally.drop(fmt.Sprintf("refused: %d %s", e.StatusCode, http.StatusText(e.StatusCode)), dropped)
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

func (w *writer) wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.queue.closed:
	case <-ctx.Done():
	}
}

// failed and recovered tell a person, once for each change.
func (w *writer) failed(err error) {
	words := text(w.scrub(err.Error()))
	w.tally.failed(words)
	if !w.down {
		w.down = true
		w.log.Warn("InfluxDB does not take points; the run and its record go on", "error", words)
	}
}

func (w *writer) recovered() {
	if w.down {
		w.down = false
		w.log.Warn("InfluxDB takes points again")
	}
}
